"""What ``kuryr0`` should be, and which of its routes would cut the node off."""

import ipaddress
from collections.abc import Iterable, Mapping

from kuryr_k8s.cni.netlink import NodeLink, NodeRoute
from kuryr_k8s.cni.nft import no_table
from kuryr_k8s.model.node_interface import NodeInterface

NAME = "kuryr0"
TABLE = "inet kuryr-node"
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
_FAMILIES = {4: "ip", 6: "ip6"}
_LINK_LOCAL = {4: "169.254.0.0/16", 6: "fe80::/10"}


def needed(
    api_server: Iterable[Address], tunnels: Iterable[str], others: Iterable[Interface]
) -> dict[Address, str]:
    """Return the addresses that the node must reach by other ways, and what each of them is.

    :param tunnels: what ovn-controller is told; what is no address is ignored.
    :param others: the addresses of the node's other interfaces. One without a network says nothing
        of what the node reaches there: kube-proxy, for example, gives the node all ClusterIPs.
    """
    found: dict[Address, str] = {}
    for own in others:
        if own.network.num_addresses > 1:
            found[own.ip] = f"the node's own address {own.ip}"
    for tunnel in tunnels:
        try:
            address = ipaddress.ip_address(tunnel)
        except ValueError:
            continue
        found[address] = f"{address}, where Open vSwitch ends its tunnels"
    for address in api_server:
        found[address] = f"the API server's address {address}"
    return found


def link(
    wanted: NodeInterface, needs: Mapping[Address, str], internal_ips: Iterable[str]
) -> tuple[NodeLink, list[str]]:
    """Return the interface without the routes that must not be, and why each of them is left out.

    The networks of its own addresses count as routes: they are not on its link by themselves.

    :param internal_ips: the Node's; packets that come from them do not go to the interface.
    """
    own = frozenset(wanted.addresses)
    routes = [NodeRoute(address.network) for address in wanted.addresses]
    routes += [NodeRoute(route.destination, route.gateway) for route in wanted.routes]
    left_out: dict[NodeRoute, str] = {}
    for route in routes:
        to = route.destination
        for address, what in needs.items():
            if address.version == to.version and address in to:
                left_out[route] = f"the route to {to} is left out: it contains {what}"
    mine = {address.ip for address in own}
    interface = NodeLink(
        mac=wanted.mac_address.lower(),
        mtu=wanted.mtu,
        addresses=own,
        routes=frozenset(route for route in routes if route not in left_out),
        passing=frozenset(_addresses(internal_ips) - mine),
    )
    return interface, sorted(left_out.values())


def masquerading(addresses: Iterable[Interface]) -> str:
    """Return the text by which nft replaces the table of ``kuryr0``.

    Neutron lets nothing out of ``kuryr0`` that has another source, such as a connection to a
    hostPort. And a connection that began with the source ``kuryr0`` may leave elsewhere, if
    kube-proxy leads its ClusterIP to a Pod in a node's own network.
    """
    rules = []
    for own in sorted(addresses, key=str):
        family = _FAMILIES[own.version]
        kept = f"{{ {own.ip}, {_LINK_LOCAL[own.version]} }}"
        rules.append(f'oifname "{NAME}" {family} saddr != {kept} masquerade')
        rules.append(f'oifname != {{ "{NAME}", "lo" }} {family} saddr {own.ip} masquerade')
    chain = ["chain postrouting {", "type nat hook postrouting priority 100", *rules, "}"]
    return no_table(TABLE) + "\n".join([f"table {TABLE} {{", *chain, "}", ""])


def _addresses(texts: Iterable[str]) -> set[Address]:
    found = set()
    for text in texts:
        try:
            found.add(ipaddress.ip_address(text))
        except ValueError:
            continue
    return found
