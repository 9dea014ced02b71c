"""Pure translation for ports on virtual functions (VFs) of network cards."""

from dataclasses import replace
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import DIRECT, BindingFailed, PodNetwork, PortRequest
from kuryr_k8s.drivers.vif import neutron_plan as vif_plan
from kuryr_k8s.model import vif as model
from kuryr_k8s.model.device import Device

Json = dict[str, Any]
DEVICE_OWNER = "compute:kuryr:sriov"
CHOSEN = (*vif_plan.CHOSEN, "vnic_type", "device")  # what a new port can have of its own
HARDWARE = "hw_veb"  # binding:vif_type of a VF that the card itself switches


def device_of(request: PortRequest) -> Device:
    """Return the VF that the node has allotted to the Pod.

    :raises errors.Refused: it has allotted none: no Multi-VIF driver has asked for one.
    """
    if request.device is None:
        raise errors.Refused(f"interface {request.ifname}: the pod_vif driver sriov needs a VF")
    return request.device


def binding_of(request: PortRequest) -> Json:
    """Return the fields of a port that bind it to the VF."""
    return {
        "binding:host_id": vif_plan.host_id_of(request.node),
        "binding:profile": device_of(request).binding_profile,
    }


def port_body(request: PortRequest, tags: tuple[str, ...]) -> Json:
    """Make the body of a port that is on its VF from its creation."""
    host_id = vif_plan.host_id_of(request.node)
    own = {"device_owner": DEVICE_OWNER, "binding:vnic_type": DIRECT}
    return vif_plan.port_body(request, host_id, tags) | own | binding_of(request)


def vif_of(
    port: Json, device: Device, pod_network: PodNetwork, mtu: int, pod_name: str
) -> model.VIFSriov:
    """Describe the VIF that the node plugs for a port.

    :param mtu: an upper limit; 0 for none.
    :raises BindingFailed: Neutron could not bind the port to the VF.
    """
    kind = port.get("binding:vif_type")
    if kind != HARDWARE:
        host = port.get("binding:host_id")
        raise BindingFailed(
            f"Neutron could not bind a port to VF {device.pci_slot} of physical network "
            f"{device.physnet} on host {host!r} (vif_type {kind}): is the network on it, and is a "
            "NIC Switch agent of that host name alive (openstack network agent list)?"
        )
    vlan = int((port.get("binding:vif_details") or {}).get("vlan") or 0)
    pooled = vif_plan.pooled_port_of(port, None)
    network = vif_plan.network_of(pooled, pod_network, mtu)
    return model.VIFSriov(
        id=port["id"],
        address=port["mac_address"],
        plugin="sriov",
        vif_name=f"tap{port['id']}"[: vif_plan.IFNAME_LIMIT],
        network=replace(network, bridge=None, vlan=vlan, should_provide_vlan=bool(vlan)),
        dev_address=device.pci_slot,
        physnet=device.physnet,
        pod_name=pod_name,
        has_traffic_filtering=port.get("port_security_enabled", True),  # the card drops other MACs
    )
