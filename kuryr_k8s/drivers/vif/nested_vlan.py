"""The pod_vif driver ``nested-vlan``, for Pods on nodes that are VMs.

A Pod's port is a subport of the trunk on the VM's port, and the Pod gets the VLAN interface of
that subport. A port is created, then attached together with others; it is detached, then deleted.
Whatever gets lost on the way, the port is found by its tags, and the trunk shows whether it is
attached.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron import trunks
from kuryr_k8s.cloud.neutron.automatic_addresses import asked_subnet_ids_of
from kuryr_k8s.cloud.neutron.specific_ports import PortInUse
from kuryr_k8s.cloud.neutron.trunks import parent_of
from kuryr_k8s.drivers.base import (
    DEVICE_OWNER,
    POOL_TAG,
    DriverContext,
    PodNetwork,
    PooledPort,
    PooledVIFDriver,
    PoolKey,
    PortRequest,
)
from kuryr_k8s.drivers.base.port_settings import security_of
from kuryr_k8s.drivers.vif import nested_plan
from kuryr_k8s.drivers.vif import neutron_plan as vif_plan
from kuryr_k8s.drivers.vif.node_trunks import NodeTrunks
from kuryr_k8s.drivers.vif.tagged_ports import TaggedPorts
from kuryr_k8s.drivers.vif.trunk_ports import TrunkPorts
from kuryr_k8s.model.pod import Node
from kuryr_k8s.model.vif import VIFBase, VIFOpenVSwitch, VIFVlanNested

LOG = logging.getLogger(__name__)
Json = dict[str, Any]


class NestedVLAN(TaggedPorts, PooledVIFDriver):
    """Subports of the nodes' trunks, identified by (cluster tag, Pod's tag, interface's tag)."""

    kind = VIFVlanNested
    # Neutron sets its own while a port is on a trunk, and clears it afterwards
    device_owners = (DEVICE_OWNER, "trunk:subport", "")

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._trunks = NodeTrunks(context.neutron, context.conf)
        self._creating = 0  # calls of create_pooled that are in progress

    async def start(self) -> None:
        await self._trunks.check()

    def forget(self, node_name: str) -> None:
        self._trunks.forget_node(node_name)

    def releases(self, vif: VIFBase) -> bool:
        """Return True for VIFs of neutron-vif, too: the node was made a VM since."""
        return isinstance(vif, VIFVlanNested | VIFOpenVSwitch)

    async def ensure(self, request: PortRequest) -> VIFBase:
        if request.port_id is not None:
            return await self._ensure_specific(request.port_id, request)
        request.require_plain("nested-vlan", but=vif_plan.CHOSEN)
        trunk = await self._trunks.of_node(request.node)
        port = await self._find(request) if request.may_exist else None
        found = port is not None
        port = await self._adopt(port, request, trunk) if port else await self._create(request)
        try:
            vlan_id = await self._attach(trunk, port["id"])
        except errors.Refused:
            await self._neutron.delete_port(port["id"])  # a remedy may take long
            raise
        if found and not parent_of(port):
            await self._check_whole(trunk, port["id"])
        pooled = nested_plan.pooled_port_of(port, trunk.id, vlan_id)
        return nested_plan.vif_of(pooled, request.pod_network, self._mtu)

    async def _ensure_specific(self, port_id: str, request: PortRequest) -> VIFBase:
        """Attach a port that a user made."""
        request.require_plain("nested-vlan", but=("port_id",))
        trunk = await self._trunks.of_node(request.node)
        ports, pod_uid = self._neutron.specific_ports, request.pod_uid
        await ports.reserve(port_id, pod_uid, trunk.parent, as_found=request.as_found)
        trunk.reread()  # whoever gives such a port back detaches it
        try:
            vlan_id = await self._attach(trunk, port_id)
        except errors.Conflict as error:
            if error.kind == trunks.ATTACHED:
                raise PortInUse(f"port {port_id} is on another trunk") from error
            raise
        port = await ports.seal(port_id, pod_uid, trunk.parent)
        if parent_of(port) != trunk.parent:
            raise _incomplete(port_id)  # the next attempt detaches it first
        pooled = nested_plan.pooled_port_of(port, trunk.id, vlan_id)
        return nested_plan.vif_of(pooled, request.pod_network, self._mtu)

    async def parent_port(self, node: Node) -> str:
        return (await self._trunks.of_node(node)).parent

    async def _find(self, request: PortRequest) -> Json | None:
        """Find the port that an earlier attempt made."""
        query = {
            "project_id": request.project_id,
            "network_id": request.pod_network.network.id,
        }
        mark = nested_plan.pod_tag(request.pod_uid)
        tags = (vif_plan.interface_tag(request.ifname), mark)
        return await self._find_tagged(query, tags, untagged=query | {"description": mark})

    async def _adopt(self, port: Json, request: PortRequest, trunk: TrunkPorts) -> Json:
        """Bring a port of an earlier attempt up to date: options or the VM may have changed."""
        elsewhere = parent_of(port) not in ("", trunk.parent)
        fits = request.pod_network.may_have(asked_subnet_ids_of(port))
        if elsewhere or not (fits and vif_plan.has_what_is_asked(port, request)):
            await self._remove(port["id"])  # no KuryrPort names it yet
            return await self._create(request)
        return await self._bring_up_to_date(port, security_of(request))

    async def _create(self, request: PortRequest) -> Json:
        return await self._create_for(
            request, lambda chosen: nested_plan.port_body(chosen, self._tags)
        )

    async def _attach(self, trunk: TrunkPorts, port_id: str) -> int:
        try:
            return await trunk.attach(port_id)
        except errors.NotFound as error:
            if error.kind != trunks.NO_PORT:
                self._trunks.forget(trunk)
            raise

    async def _check_whole(self, trunk: TrunkPorts, port_id: str) -> None:
        """Check that the port is attached in OVN too, and not only to the trunk."""
        if not parent_of(await self._neutron.get_port(port_id)):
            await trunk.detach(port_id)
            raise _incomplete(port_id)

    async def release(self, vif: VIFBase) -> None:
        await self._remove(vif.id)

    async def release_unrecorded(self, pod_uid: str) -> int:
        mark = nested_plan.pod_tag(pod_uid)
        found = await self._list_tagged({}, (mark,))
        found += await self._list_untagged({"description": mark}, self._tags)
        return await self._discard_unrecorded(pod_uid, found)

    def made(self, port: Json) -> bool:
        return nested_plan.is_made_here(port)

    def pod_uid_of(self, port: Json) -> str | None:
        return None if POOL_TAG in port["tags"] else nested_plan.pod_uid_of(port)

    async def discard(self, port: Json) -> None:
        await self._remove(port["id"])

    async def _remove(self, port_id: str) -> None:
        """Detach the port if it is attached, and delete it; a port that is gone is no error.

        :raises errors.NotOurs: the port does not bear the mark; a trunk carries others' ports too.
        """
        trunk = self._trunks.carrying(port_id)
        try:
            await self._neutron.own_port(port_id)
            if trunk is None:
                parent = parent_of(await self._neutron.get_port(port_id))
                trunk = await self._trunks.of_parent(parent) if parent else None
        except errors.NotFound:
            return
        if trunk is not None:
            await trunk.detach(port_id)
        try:
            await self._neutron.delete_port(port_id)
        except errors.Conflict as error:
            if error.kind != trunks.IS_SUBPORT:
                raise
            await self._remove_hidden(port_id, error)

    async def _remove_hidden(self, port_id: str, error: errors.Conflict) -> None:
        """Remove a port that does not show its trunk: its attachment was interrupted."""
        trunk = (await self._trunks.read_all()).get(port_id)
        if trunk is None:
            raise error
        await self._trunks.register(trunk).detach(port_id)
        await self._neutron.delete_port(port_id)

    # -- ports of pools

    @property
    def pooled_marks(self) -> dict[str, str]:
        return {"description": self._pool_device}

    async def place(self, node: Node) -> str:
        return (await self._trunks.of_node(node)).id

    async def has_place(self, place: str) -> bool:
        try:
            await self._neutron.trunks.get_trunk(place)
        except errors.NotFound:
            return False
        return True

    async def create_pooled(
        self, key: PoolKey, count: int
    ) -> tuple[list[PooledPort], errors.CloudError | None]:
        self._creating += 1
        try:
            trunk = await self._trunks.of_id(key.place)
            body = nested_plan.pooled_body(key, self._tags, self._pool_device)
            ports, failure = await self._neutron.create_ports([body] * count)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._attach_pooled(port, trunk)) for port in ports]
        except errors.CloudError as error:
            return [], error
        finally:
            self._creating -= 1
        outcomes = [task.result() for task in tasks]
        failures = [outcome for outcome in outcomes if isinstance(outcome, errors.CloudError)]
        pooled = [outcome for outcome in outcomes if isinstance(outcome, PooledPort)]
        return pooled, next(iter(failures), failure)

    async def _attach_pooled(
        self, port: Json, trunk: TrunkPorts
    ) -> PooledPort | errors.CloudError:
        try:
            vlan_id = await self._attach(trunk, port["id"])
        except errors.CloudError as error:
            if error.is_refusal or isinstance(error, errors.OverQuota):
                await self._give_up(port["id"])
            if error.kind == trunks.NO_PORT:
                return errors.CloudError(error.brief)  # NotFound would mean the trunk
            return error
        return nested_plan.pooled_port_of(port, trunk.id, vlan_id)

    async def _give_up(self, port_id: str) -> None:
        """Delete a port that is certainly not attached; if that fails, a survey finds it."""
        try:
            await self._neutron.delete_port(port_id)
        except errors.CloudError as error:
            LOG.warning(
                "port %s of a pool is not attached and cannot be deleted: %s", port_id, error
            )

    async def find_pooled(self, ports: Sequence[Json]) -> list[PooledPort]:
        """Select the ports of pools; those that are attached incompletely or not at all are unfit.

        While ports are being created, such ports may be in transition, and are left out.
        """
        mine = [
            port for port in ports if POOL_TAG in port["tags"] and nested_plan.is_made_here(port)
        ]
        if not mine:
            return []
        by_port = await self._trunks.read(mine)
        found = []
        for port in mine:
            trunk = by_port.get(port["id"])
            whole = trunk is not None and (
                parent_of(port) == trunk.port_id
                or self._trunks.carrying(port["id"])
                is not None  # attached after the list was read
            )
            if not whole and self._creating:
                continue
            where = ("", 0) if trunk is None else (trunk.id, trunk.vlan_ids[port["id"]])
            found.append(nested_plan.pooled_port_of(port, *where, whole=whole))
            if trunk is not None:
                self._trunks.register(trunk)
        return found

    async def delete_pooled(self, pooled: PooledPort) -> None:
        await self._remove(pooled.id)

    def vif_of_pooled(self, pooled: PooledPort, pod_network: PodNetwork) -> VIFBase:
        return nested_plan.vif_of(pooled, pod_network, self._mtu)


def _incomplete(port_id: str) -> errors.CloudError:
    return errors.CloudError(f"Neutron attached port {port_id} incompletely; it is attached again")
