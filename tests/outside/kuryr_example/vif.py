"""The pod_vif driver of isolated interfaces: ports that are bound to no host.

Tags name the driver and the Pod; ``device_id`` names no Pod.
"""

from typing import Any

from kuryr_example.model import VIFIsolated

from kuryr_k8s.drivers.base import DriverContext, PodVIFDriver, PortRequest
from kuryr_k8s.model.vif import FixedIP, Network, Subnet, VIFBase

Json = dict[str, Any]
DEVICE_OWNER = "compute:kuryr"
TAG = "kuryr-example"
POD = "kuryr-example-pod:"  # the beginning of the tag that names the Pod


class IsolatedVIFDriver(PodVIFDriver):
    """Reserves a MAC and addresses in Neutron, and leaves the port unbound."""

    kind = VIFIsolated

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._neutron = context.neutron
        self._tags = (*context.conf.neutron_defaults.resource_tags, TAG)

    async def ensure(self, request: PortRequest) -> VIFBase:
        """Return the interface; an earlier attempt's port is found by its tags."""
        tags = (*self._tags, f"{POD}{request.pod_uid}", f"kuryr-ifname:{request.ifname}")
        found = []
        if request.may_exist:
            found = await self._neutron.list_ports({"tags": ",".join(tags)})
        port = found[0] if found else await self._neutron.create_port(_body(request, tags))
        return _vif(port, request)

    async def update_security_groups(self, vif: VIFBase, groups: tuple[str, ...]) -> None:
        """Change the port, although no packet passes."""
        await self._neutron.update_port(vif.id, {"security_groups": list(groups)})

    async def release(self, vif: VIFBase) -> None:
        """Delete the port."""
        await self._neutron.delete_port(vif.id)

    async def release_unrecorded(self, pod_uid: str) -> int:
        """Delete the ports that were made for the Pod; return how many."""
        tags = (*self._tags, f"{POD}{pod_uid}")
        found = await self._neutron.list_ports({"tags": ",".join(tags)})
        for port in found:
            await self._neutron.delete_port(port["id"])
        return len(found)

    def made(self, port: Json) -> bool:
        """Return whether the port bears this driver's tag."""
        return TAG in port["tags"]

    def pod_uid_of(self, port: Json) -> str | None:
        """Return the uid that the port's tag names."""
        return next((tag.removeprefix(POD) for tag in port["tags"] if tag.startswith(POD)), "")


def _body(request: PortRequest, tags: tuple[str, ...]) -> Json:
    return {
        "network_id": request.pod_network.network.id,
        "project_id": request.project_id,
        "fixed_ips": [{"subnet_id": subnet.id} for subnet in request.pod_network.subnets],
        "device_id": TAG,
        "device_owner": DEVICE_OWNER,
        "security_groups": list(request.security_groups),
        "name": request.pod_name,
        "tags": list(tags),
    }


def _vif(port: Json, request: PortRequest) -> VIFIsolated:
    network = request.pod_network.network
    addresses = {ip["subnet_id"]: ip["ip_address"] for ip in port["fixed_ips"]}
    return VIFIsolated(
        id=port["id"],
        address=port["mac_address"],
        vif_name=f"iso{port['id']}"[:14],
        network=Network(
            id=network.id,
            label=network.name,
            mtu=network.mtu,
            subnets=tuple(
                Subnet(cidr=subnet.cidr, ips=(FixedIP(address=addresses[subnet.id]),))
                for subnet in request.pod_network.subnets
                if subnet.id in addresses
            ),
        ),
    )
