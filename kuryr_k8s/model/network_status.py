"""The annotation ``k8s.v1.cni.cncf.io/network-status``: what a Pod's interfaces are. Pure.

The form is that of Multus and of the client library of NetworkAttachmentDefinitions, which all
readers know: addresses without prefixes, ``gateway``, and ``dns`` always there.
"""

import json
from collections.abc import Mapping
from typing import Any

from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.vif import EVERYWHERE, Subnet, VIFBase, VIFSriov

NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"
DEFAULT_NETWORK = "kuryr"  # the name in the CNI configuration that we install


def network_status(vifs: Mapping[str, VIFBase], network_names: Mapping[str, str]) -> str:
    """Return the annotation for these interfaces, the default one first.

    :param network_names: the names of networks by the interfaces' names; other interfaces, but the
        default one, are left out.
    """
    names = sorted(vifs, key=lambda name: name != DEFAULT_IFNAME)
    shown = [
        _element(name, vifs[name], network_names.get(name) or DEFAULT_NETWORK)
        for name in names
        if name == DEFAULT_IFNAME or name in network_names
    ]
    return json.dumps(shown)


def _element(ifname: str, vif: VIFBase, network: str) -> dict[str, Any]:
    subnets = vif.network.subnets if vif.network is not None else ()
    is_default = ifname == DEFAULT_IFNAME
    element: dict[str, Any] = {
        "name": network,
        "interface": ifname,
        "ips": list(vif.ips),
        "mac": vif.address,
    }
    if vif.network is not None and vif.network.mtu:
        element["mtu"] = vif.network.mtu
    if is_default:
        element["default"] = True
    servers = [server for subnet in subnets for server in subnet.dns] if is_default else []
    element["dns"] = {"nameservers": servers} if servers else {}
    gateways = [gateway for subnet in subnets for gateway in _gateways(subnet, is_default)]
    if gateways:
        element["gateway"] = gateways
    if isinstance(vif, VIFSriov):
        # Device Information Specification 1.1.0 of the Network Plumbing WG
        pci = {"pci-address": vif.dev_address}
        element["device-info"] = {"type": "pci", "version": "1.1.0", "pci": pci}
    return element


def _gateways(subnet: Subnet, is_default: bool) -> list[str]:
    """Return the gateways of the default routes; the standard shows no others."""
    if is_default:
        return [subnet.gateway] if subnet.gateway and subnet.ips else []
    return [
        each.gateway for each in subnet.routes if each.cidr in EVERYWHERE.values() and each.gateway
    ]
