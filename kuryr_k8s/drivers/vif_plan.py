"""Pure translation between requests, Neutron ports and VIFs; no input, no output."""

import ipaddress
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud import neutron
from kuryr_k8s.drivers.base import PodNetwork, PortRequest
from kuryr_k8s.model import vif as model

Json = dict[str, Any]
DEVICE_OWNER = "compute:kuryr"
NAME_LIMIT = 255
IFNAME_LIMIT = 14  # the ancestor's, and one less than the kernel's


class BindingFailed(errors.Refused):
    """Neutron has no live agent that could bind the port on its host."""

    reason = "PortBindingFailed"


def interface_tag(ifname: str) -> str:
    """The tag that tells apart the ports of one Pod."""
    return f"kuryr-ifname:{ifname}"


def port_body(request: PortRequest, tags: tuple[str, ...]) -> Json:
    """The port to ask Neutron for: bound, tagged and named from the first instant."""
    return {
        "network_id": request.pod_network.network.id,
        "project_id": request.project_id,
        "fixed_ips": [{"subnet_id": subnet.id} for subnet in request.pod_network.subnets],
        "device_id": request.pod_uid,
        "device_owner": DEVICE_OWNER,
        "binding:host_id": request.host_id,
        "security_groups": list(request.security_groups),
        "name": request.pod_name[:NAME_LIMIT],
        "admin_state_up": True,
        "tags": [*tags, interface_tag(request.ifname)],
    }


def vif_of(
    port: Json, pod_network: PodNetwork, conf_bridge: str | None, mtu: int
) -> model.VIFBase:
    """The VIF that the node plugs for this port.

    :param mtu: upper limit; 0 for none.
    :raises BindingFailed: the port is not bound.
    """
    kind = port.get("binding:vif_type")
    if kind != "ovs":
        host = port.get("binding:host_id")
        raise BindingFailed(
            f"Neutron could not bind a port on host {host!r} (vif_type {kind}): is an agent of "
            "that host name alive (openstack network agent list)?"
        )
    bridge = conf_bridge or port.get("binding:vif_details", {}).get("bridge_name") or "br-int"
    network = pod_network.network
    return model.VIFOpenVSwitch(
        id=port["id"],
        address=port["mac_address"],
        plugin="ovs",
        has_traffic_filtering=True,
        vif_name=f"tap{port['id']}"[:IFNAME_LIMIT],
        bridge_name=bridge,
        port_profile=model.VIFPortProfileOpenVSwitch(interface_id=port["id"]),
        network=model.Network(
            id=network.id,
            label=network.name,
            bridge=bridge,
            mtu=min(network.mtu, mtu) if mtu else network.mtu,
            subnets=tuple(_subnet(subnet, port) for subnet in pod_network.subnets),
        ),
    )


def _subnet(subnet: neutron.Subnet, port: Json) -> model.Subnet:
    addresses = [ip["ip_address"] for ip in port["fixed_ips"] if ip["subnet_id"] == subnet.id]
    return model.Subnet(
        cidr=str(ipaddress.ip_network(subnet.cidr)),
        gateway=subnet.gateway_ip,
        dns=subnet.dns_nameservers,
        ips=tuple(model.FixedIP(address=address) for address in addresses),
        routes=tuple(model.Route(cidr=to, gateway=via) for to, via in subnet.host_routes),
    )
