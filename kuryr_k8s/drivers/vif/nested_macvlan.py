"""The pod_vif driver ``nested-macvlan``, for Pods on nodes that are virtual machines.

A Pod gets a macvlan of the virtual machine's own interface, in that interface's network. Its port
holds its addresses and its MAC; those are allowed address pairs of the virtual machine's port,
whose security groups apply. The pairs are added after the port is made, and removed before it is
deleted: so whatever gets lost on the way, the port tells of them. A sweep finds pairs that came
after the deletion, by a call that nobody had an answer to.
"""

from collections.abc import Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.automatic_addresses import asked_subnet_ids_of
from kuryr_k8s.drivers.base import DEVICE_OWNER, DriverContext, PortRequest
from kuryr_k8s.drivers.vif import macvlan_plan
from kuryr_k8s.drivers.vif import neutron_plan as vif_plan
from kuryr_k8s.drivers.vif.node_ports import NodePort, NodePorts, check_subnets_are_set
from kuryr_k8s.drivers.vif.parent_pairs import ParentPairs
from kuryr_k8s.drivers.vif.stray_pairs import StrayPairSweep
from kuryr_k8s.drivers.vif.tagged_ports import TaggedPorts
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.k8s.resources import NODES, Key
from kuryr_k8s.model.pod import Node
from kuryr_k8s.model.vif import VIFBase, VIFMacvlanNested

UNAUTHORIZED = 401
Json = dict[str, Any]


class NestedMacvlan(TaggedPorts):
    """Ports of Pods, identified by (cluster tag, Pod's mark, interface's tag)."""

    kind = VIFMacvlanNested

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._nodes = NodePorts(context.neutron, context.conf)
        self._pairs = ParentPairs(
            context.neutron.address_pairs, context.conf.pod_vif_nested.rev_update_attempts
        )
        context.informers.of(NODES).subscribe(self._forget_gone)

    async def start(self) -> None:
        check_subnets_are_set(self._context.conf)

    def loops(self) -> Sequence[Controller[Any]]:
        """Return the sweep of pairs that no Pod's port has."""
        return (StrayPairSweep(self._context, self._pairs).loop,)

    def _forget_gone(self, key: Key, _old: Node | None, new: Node | None) -> None:
        if new is None:
            self._nodes.forget_node(key.name)

    async def ensure(self, request: PortRequest) -> VIFBase:
        request.require_plain("nested-macvlan", but=macvlan_plan.CHOSEN)
        if request.own_groups:
            raise errors.Refused(
                f"interface {request.ifname}: a macvlan has the security groups of its node's port"
            )
        parent = await self._nodes.of_node(request.node)
        network = request.pod_network.network
        if parent.network_id != network.id:
            raise errors.Refused(
                f"interface {request.ifname}: a macvlan is in the network of its node's port "
                f"({parent.network_id}), not in network {network.id}"
            )
        port = await self._find(request, parent) if request.may_exist else None
        if port is None:
            port = await self._create(request, parent)
        else:
            port = await self._adopt(port, request, parent)
        await self._let_through(port, parent)
        return macvlan_plan.vif_of(port, request.pod_network, self._mtu)

    async def _let_through(self, port: Json, parent: NodePort) -> None:
        try:
            await self._pairs.add(parent.id, macvlan_plan.pairs_of(port))
        except errors.NotFound:
            self._nodes.forget(parent)
            raise
        except (errors.BadRequest, errors.OverQuota) as error:
            if error.status != UNAUTHORIZED:  # which passes; other remedies may take long
                await self._remove(port["id"])
            raise

    async def _find(self, request: PortRequest, parent: NodePort) -> Json | None:
        """Find the port that an earlier attempt made."""
        query = {
            "project_id": request.project_id,
            "network_id": request.pod_network.network.id,
        }
        tags = (
            vif_plan.interface_tag(request.ifname),
            macvlan_plan.pod_mark(request.pod_uid),
        )
        described = {"description": macvlan_plan.description(request.pod_uid, parent.id)}
        return await self._find_tagged(query, tags, untagged=query | described)

    async def _adopt(self, port: Json, request: PortRequest, parent: NodePort) -> Json:
        """Return a port of an earlier attempt, or another one: the node may have changed."""
        elsewhere = macvlan_plan.parent_of(port) != parent.id
        fits = request.pod_network.may_have(asked_subnet_ids_of(port))
        if elsewhere or not (fits and vif_plan.has_addresses(port, request)):
            await self._remove(port["id"])  # no KuryrPort names it yet
            return await self._create(request, parent)
        return port

    async def _create(self, request: PortRequest, parent: NodePort) -> Json:
        return await self._create_for(
            request, lambda chosen: macvlan_plan.port_body(chosen, parent.id, self._tags)
        )

    async def update_security_groups(self, vif: VIFBase, groups: tuple[str, ...]) -> None:
        """Do nothing: those of the virtual machine's port apply."""

    async def release(self, vif: VIFBase) -> None:
        await self._remove(vif.id)

    async def release_unrecorded(self, pod_uid: str) -> int:
        found = await self._list_tagged({}, (macvlan_plan.pod_mark(pod_uid),))
        untagged = await self._list_untagged({"device_owner": DEVICE_OWNER}, self._tags)
        found += [port for port in untagged if macvlan_plan.pod_uid_of(port) == pod_uid]
        return await self._discard_unrecorded(pod_uid, found)

    def made(self, port: Json) -> bool:
        return bool(macvlan_plan.pod_uid_of(port))

    def pod_uid_of(self, port: Json) -> str | None:
        return macvlan_plan.pod_uid_of(port)

    async def discard(self, port: Json) -> None:
        await self._remove(port["id"])

    async def _remove(self, port_id: str) -> None:
        """Remove a port's pairs, and delete it; a port that is gone is no error.

        :raises errors.NotOurs: the port does not bear the mark.
        """
        try:
            port = await self._neutron.own_port(port_id)
            mac = (await self._neutron.get_port(port_id))["mac_address"]
        except errors.NotFound:
            return
        if parent := macvlan_plan.parent_of(port):
            await self._pairs.remove(parent, mac)
        await self._neutron.delete_port(port_id)
