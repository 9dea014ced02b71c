"""Plans for ``kuryr0``: its addresses, its rules, and its routes that do not cut the node off."""

import ipaddress
from collections.abc import Iterable, Mapping

from kuryr_k8s.cni.netlink import PASSING_MARK, NodeLink, NodeRoute
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


def link(wanted: NodeInterface, needs: Mapping[Address, str]) -> tuple[NodeLink, list[str]]:
    """Return the interface without the routes that must not be, and why each of them is left out.

    The networks of its own addresses count as routes: they are not on its link by themselves.
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
    interface = NodeLink(
        mac=wanted.mac_address.lower(),
        mtu=wanted.mtu,
        addresses=own,
        routes=frozenset(route for route in routes if route not in left_out),
    )
    return interface, sorted(left_out.values())


def packet_rules(addresses: Iterable[Interface]) -> str:
    """Return the text by which nft replaces the table of ``kuryr0``.

    Neutron lets nothing out of ``kuryr0`` that has another source, such as a connection to a
    hostPort. And a connection that began with the source ``kuryr0`` may leave elsewhere, if
    kube-proxy leads its ClusterIP to a Pod in a node's own network.

    Who asks the node at another interface is answered by the way he came, even if the table of
    routes leads to him: a Pod whose router leads to the nodes' own network, for example. A program
    of the node may answer, or, for a node port, another Pod by way of ``kuryr0``.
    """
    mark = f"{PASSING_MARK:#x}"
    elsewhere = f'iifname != {{ "{NAME}", "lo" }} ct state new fib daddr type local'
    answer = f"ct direction reply ct mark and {mark} == {mark} meta mark set meta mark or {mark}"
    incoming = [f"{elsewhere} ct mark set ct mark or {mark}", f'iifname "{NAME}" {answer}']
    rules = []
    for own in sorted(addresses, key=str):
        family = _FAMILIES[own.version]
        kept = f"{{ {own.ip}, {_LINK_LOCAL[own.version]} }}"
        rules.append(f'oifname "{NAME}" {family} saddr != {kept} masquerade')
        rules.append(f'oifname != {{ "{NAME}", "lo" }} {family} saddr {own.ip} masquerade')
    chains = ["chain prerouting {", "type filter hook prerouting priority -150", *incoming, "}"]
    chains += ["chain output {", "type route hook output priority -150", answer, "}"]
    chains += ["chain postrouting {", "type nat hook postrouting priority 100", *rules, "}"]
    return no_table(TABLE) + "\n".join([f"table {TABLE} {{", *chains, "}", ""])
