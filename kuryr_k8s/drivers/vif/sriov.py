"""The pod_vif driver ``sriov``: a Neutron port for each virtual function (VF) of a network card.

The VF comes from the node: its daemon names it in the KuryrPort before the port is made. Neutron
binds the port to it, and says by which VLAN the card reaches the network. No agent is needed for
that, and such a port stays DOWN without one: the interface works once the node has plugged it.

Security groups do not apply: the card has no filter for them.
"""

from typing import Any

from kuryr_k8s.cloud.neutron.automatic_addresses import asked_subnet_ids_of
from kuryr_k8s.drivers.base import BindingFailed, PortRequest
from kuryr_k8s.drivers.base.port_settings import security_of
from kuryr_k8s.drivers.vif import neutron_plan as vif_plan
from kuryr_k8s.drivers.vif import sriov_plan
from kuryr_k8s.drivers.vif.tagged_ports import TaggedPorts
from kuryr_k8s.model.vif import VIFBase, VIFSriov

Json = dict[str, Any]


class SRIOV(TaggedPorts):
    """Ports bound to VFs, identified by (cluster tag, Pod uid, interface name)."""

    kind = VIFSriov
    device_owners = (sriov_plan.DEVICE_OWNER,)

    async def ensure(self, request: PortRequest) -> VIFBase:
        if request.port_id is not None:
            request.require_plain("sriov", but=("port_id", "vnic_type", "device"))
            binding = sriov_plan.binding_of(request)
            taken = await self._neutron.specific_ports.take(
                request.port_id, request.pod_uid, binding, as_found=request.as_found
            )
            return self._vif_of(taken, request)
        request.require_plain("sriov", but=sriov_plan.CHOSEN)
        port = (
            await self._find_on_device(request, sriov_plan.DEVICE_OWNER)
            if request.may_exist
            else None
        )
        if port is None:
            port = await self._create(request)
        else:
            port = await self._adopt(port, request)
        try:
            return self._vif_of(port, request)
        except BindingFailed:
            await self._neutron.delete_port(port["id"])
            raise

    def _vif_of(self, port: Json, request: PortRequest) -> VIFBase:
        device = sriov_plan.device_of(request)
        return sriov_plan.vif_of(port, device, request.pod_network, self._mtu, request.pod_name)

    async def _adopt(self, port: Json, request: PortRequest) -> Json:
        """Bring a port of an earlier attempt up to date: the node may have allotted another VF."""
        fits = request.pod_network.may_have(asked_subnet_ids_of(port))
        if not (fits and vif_plan.has_what_is_asked(port, request)):
            await self._neutron.delete_port(port["id"])  # no KuryrPort names it yet
            return await self._create(request)
        wanted = sriov_plan.binding_of(request) | security_of(request)
        return await self._bring_up_to_date(port, wanted)

    async def _create(self, request: PortRequest) -> Json:
        return await self._create_for(
            request, lambda chosen: sriov_plan.port_body(chosen, self._tags)
        )

    async def release(self, vif: VIFBase) -> None:
        await self._neutron.delete_port(vif.id)

    async def release_unrecorded(self, pod_uid: str) -> int:
        found = await self._list_on_device(pod_uid, sriov_plan.DEVICE_OWNER)
        return await self._discard_unrecorded(pod_uid, found)
