"""The pod_vif driver ``neutron-vif``: one bound Neutron port for each interface.

It serves Pods on bare metal, and wherever the node's own Open vSwitch is part of the cloud.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import BOUND_TO
from kuryr_k8s.cloud.neutron.automatic_addresses import asked_subnet_ids_of
from kuryr_k8s.cloud.neutron.specific_ports import HOST
from kuryr_k8s.drivers.base import (
    DEVICE_OWNER,
    POOL_TAG,
    BindingFailed,
    DriverContext,
    PodNetwork,
    PooledPort,
    PooledVIFDriver,
    PoolKey,
    PortRequest,
)
from kuryr_k8s.drivers.base.port_settings import security_of
from kuryr_k8s.drivers.vif import neutron_plan as vif_plan
from kuryr_k8s.drivers.vif.tagged_ports import TaggedPorts
from kuryr_k8s.model.pod import Node
from kuryr_k8s.model.vif import VIFBase, VIFOpenVSwitch

Json = dict[str, Any]
HOSTS = 80  # in a query: its URL then stays below the 8 KB that servers and proxies read


class NeutronVIF(TaggedPorts, PooledVIFDriver):
    """Ports bound to the nodes' hosts, identified by (cluster tag, Pod uid, interface name).

    A port has all of these marks from its creation, so that after a lost answer it is found
    again, and no second port is created.
    """

    kind = VIFOpenVSwitch
    claims_unmarked = True  # device_owner and device_id are those that others may use, too

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._bridge = context.conf.neutron_defaults.ovs_bridge

    async def ensure(self, request: PortRequest) -> VIFBase:
        if request.port_id is not None:
            request.require_plain("neutron-vif", but=("port_id",))
            host = {HOST: vif_plan.host_id_of(request.node)}
            taken = await self._neutron.specific_ports.take(
                request.port_id, request.pod_uid, host, as_found=request.as_found
            )
            return vif_plan.vif_of(taken, request.pod_network, self._bridge, self._mtu)
        request.require_plain("neutron-vif", but=vif_plan.CHOSEN)
        port = await self._find_on_device(request, DEVICE_OWNER) if request.may_exist else None
        if port is None:
            port = await self._create(request)
        else:
            port = await self._adopt(port, request)
        try:
            return vif_plan.vif_of(port, request.pod_network, self._bridge, self._mtu)
        except BindingFailed:
            await self._neutron.delete_port(port["id"])
            raise

    async def _adopt(self, port: Json, request: PortRequest) -> Json:
        """Bring a port of an earlier attempt up to date: the configuration may have changed."""
        fits = request.pod_network.may_have(asked_subnet_ids_of(port))
        if not (fits and vif_plan.has_what_is_asked(port, request)):
            await self._neutron.delete_port(port["id"])  # no KuryrPort names it yet
            return await self._create(request)
        host = {HOST: vif_plan.host_id_of(request.node)}
        return await self._bring_up_to_date(port, host | security_of(request))

    async def _create(self, request: PortRequest) -> Json:
        host_id = vif_plan.host_id_of(request.node)
        return await self._create_for(
            request, lambda chosen: vif_plan.port_body(chosen, host_id, self._tags)
        )

    async def release(self, vif: VIFBase) -> None:
        await self._neutron.delete_port(vif.id)

    async def release_unrecorded(self, pod_uid: str) -> int:
        found = await self._list_on_device(pod_uid, DEVICE_OWNER)
        # a pool's port is one that the Pod has used
        unrecorded = [port for port in found if self.made(port) and POOL_TAG not in port["tags"]]
        return await self._discard_unrecorded(pod_uid, unrecorded)

    def made(self, port: Json) -> bool:
        return vif_plan.is_made_here(port)

    def pod_uid_of(self, port: Json) -> str | None:
        return vif_plan.pod_uid_of(port)

    # -- ports of pools

    @property
    def pooled_marks(self) -> dict[str, str]:
        return {"device_id": self._pool_device}

    async def place(self, node: Node) -> str:
        return vif_plan.host_id_of(node)

    def queries_of_places(self, places: Sequence[str]) -> Sequence[Mapping[str, Sequence[str]]]:
        return [
            {BOUND_TO: places[start : start + HOSTS]} for start in range(0, len(places), HOSTS)
        ]

    async def create_pooled(
        self, key: PoolKey, count: int
    ) -> tuple[list[PooledPort], errors.CloudError | None]:
        body = vif_plan.pooled_body(key, self._tags, self._pool_device)
        ports, failure = await self._neutron.create_ports([body] * count)
        return [vif_plan.pooled_port_of(port, self._bridge) for port in ports], failure

    async def find_pooled(self, ports: Sequence[Json]) -> list[PooledPort]:
        return [
            vif_plan.pooled_port_of(port, self._bridge)
            for port in ports
            if POOL_TAG in port["tags"] and port.get("binding:host_id")
        ]

    async def delete_pooled(self, pooled: PooledPort) -> None:
        await self._neutron.delete_port(pooled.id)

    def vif_of_pooled(self, pooled: PooledPort, pod_network: PodNetwork) -> VIFBase:
        return vif_plan.vif_of_pooled(pooled, pod_network, self._mtu)
