"""Pure translation for Pods with a macvlan of their node's own interface.

A Pod's port is bound to no host: it holds the addresses and the MAC, and the port of the virtual
machine lets them through. Its description names the Pod and the virtual machine's port: Neutron
does not show everybody the tags of other projects' ports.

In OVN, a port answers for its addresses, and takes what is sent to its MAC, bound or not; and one
whose address is an allowed address pair of another becomes virtual: routers then send with the
other port's MAC. A port without port security and DHCP claims nothing there; and a pair of a whole
network (``10.0.0.5/32``) makes no port virtual.
"""

import ipaddress
from typing import Any

from kuryr_k8s.cloud.neutron.address_pairs import AddressPair
from kuryr_k8s.drivers.base import PodNetwork, PortRequest
from kuryr_k8s.drivers.vif import neutron_plan as vif_plan
from kuryr_k8s.model import vif as model

Json = dict[str, Any]
CHOSEN = ("addresses", "mac")  # what a new port can have of its own
_POD = "kuryr-macvlan:"


def pod_mark(pod_uid: str) -> str:
    """Return the tag of the ports of a Pod."""
    return f"{_POD}{pod_uid}"


def description(pod_uid: str, parent: str) -> str:
    """Return the description of a port.

    :param parent: the id of the virtual machine's port.
    """
    return f"{pod_mark(pod_uid)}:{parent}"


def pod_uid_of(port: Json) -> str:
    """Return the uid of the Pod for which the port was made; empty for other ports."""
    return _marked(port)[0]


def parent_of(port: Json) -> str:
    """Return the id of the virtual machine's port; empty for other ports."""
    return _marked(port)[1]


def _marked(port: Json) -> tuple[str, str]:
    text: str = port.get("description") or ""
    if not text.startswith(_POD):
        return "", ""
    pod_uid, _, parent = text.removeprefix(_POD).partition(":")
    return pod_uid, parent


def port_body(request: PortRequest, parent: str, tags: tuple[str, ...]) -> Json:
    """Make the body of a port that is bound to no host.

    It has no ``device_id``: so no other driver takes it for one of its own.
    """
    body = vif_plan.port_body(request, "", tags)
    return {name: value for name, value in body.items() if name != "binding:host_id"} | {
        "device_id": "",
        "description": description(request.pod_uid, parent),
        "tags": [*body["tags"], pod_mark(request.pod_uid)],
        "port_security_enabled": False,
        "security_groups": [],
        "extra_dhcp_opts": [
            {"opt_name": "dhcp_disabled", "opt_value": "true", "ip_version": version}
            for version in (4, 6)
        ],
    }


def pairs_of(port: Json) -> list[AddressPair]:
    """Return the pairs by which the virtual machine's port lets a port's addresses through."""
    networks = (str(ipaddress.ip_network(ip["ip_address"])) for ip in port["fixed_ips"])
    return [AddressPair(network, port["mac_address"]) for network in networks]


def may_be_ours(pair: Json, parent: Json) -> bool:
    """Return whether a pair has the form of ours: a whole network, and a MAC made by Neutron.

    :param parent: the virtual machine's port; the MACs that Neutron makes begin like its own.
    """
    address: str = pair["ip_address"]
    mac, own = pair["mac_address"], parent["mac_address"]
    return mac != own and mac[:8] == own[:8] and address.endswith(("/32", "/128"))


def vif_of(port: Json, pod_network: PodNetwork, mtu: int) -> model.VIFMacvlanNested:
    """Describe the VIF that the node plugs.

    :param mtu: an upper limit; 0 for none.
    """
    pooled = vif_plan.pooled_port_of(port, None)
    network = vif_plan.network_of(pooled, pod_network, mtu)
    return model.VIFMacvlanNested(
        id=port["id"],
        address=port["mac_address"],
        plugin="noop",
        vif_name=f"tap{port['id']}"[: vif_plan.IFNAME_LIMIT],
        network=network,
    )
