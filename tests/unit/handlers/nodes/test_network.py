"""Which routes a node gets through its port, and which configurations are refused."""

import ipaddress

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Network, Subnet
from kuryr_k8s.handlers.nodes.network import NodeNetwork


def subnet(cidr, gateway):
    return Subnet(
        id=cidr,
        network_id="nodes",
        cidr=cidr,
        ip_version=6 if ":" in cidr else 4,
        gateway_ip=gateway,
        dns_nameservers=(),
        host_routes=(),
    )


V4, V6 = subnet("10.63.0.0/24", "10.63.0.1"), subnet("fd63::/64", "fd63::1")


def network(*destinations, subnets=(V4, V6)):
    return NodeNetwork(
        network=Network(id="nodes", name="nodes", mtu=1442, project_id="k8s", shared=False),
        subnets=subnets,
        destinations=tuple(map(ipaddress.ip_network, destinations)),
    )


def occupied(found, **internal):
    """What InternalIPs of Nodes, by their names, are in the way of."""
    read = {
        name: [ipaddress.ip_address(address) for address in addresses]
        for name, addresses in internal.items()
    }
    return found.occupied(read, read)


def routed(found, name="node1", **internal):
    routes, left_out = found.routes(name, occupied(found, **internal))
    named = [f"{route.destination} via {route.gateway}" for route in routes]
    return named, [str(destination) for destination in left_out]


def test_each_destination_is_reached_through_the_gateway_of_its_address_family():
    assert routed(network("10.62.0.0/16", "fd62::/64")) == (
        ["10.62.0.0/16 via 10.63.0.1", "fd62::/64 via fd63::1"],
        [],
    )


def test_destination_of_a_family_without_a_subnet_has_no_route():
    assert routed(network("10.62.0.0/16", "fd62::/64", subnets=(V4,))) == (
        ["10.62.0.0/16 via 10.63.0.1"],
        [],
    )


def test_the_nodes_own_subnet_is_on_the_link():
    assert routed(network("10.63.0.0/24")) == ([], [])


def test_only_the_route_that_contains_the_nodes_internal_ip_is_left_out():
    found = network("10.62.0.0/16", "10.96.0.0/15", "fd62::/64")
    assert routed(found, node1=["10.96.3.4", "fd18::1"]) == (
        ["10.62.0.0/16 via 10.63.0.1", "fd62::/64 via fd63::1"],
        ["10.96.0.0/15"],
    )


def test_route_to_several_other_nodes_is_left_out():
    found = network("198.18.0.0/24")
    assert routed(found, node2=["198.18.0.2"], node3=["198.18.0.3"]) == ([], ["198.18.0.0/24"])


def test_one_node_cannot_take_a_route_away_from_others():
    found = network("10.62.0.0/16")
    assert routed(found, node2=["10.62.0.1"]) == (["10.62.0.0/16 via 10.63.0.1"], [])


def test_subnet_of_the_nodes_own_or_several_nodes_internal_ips_is_refused():
    found = network()
    there = occupied(found, node1=["10.63.0.7"], node2=["10.63.0.8"])
    for name in ("node1", "node3"):
        with pytest.raises(errors.Refused, match=r"10\.63\.0\.0/24 contains .*node1, node2"):
            found.check(name, there)


def test_one_node_cannot_keep_others_from_their_ports():
    found = network()
    there = occupied(found, node2=["10.63.0.8"])
    found.check("node1", there)
    with pytest.raises(errors.Refused, match="node2"):
        found.check("node2", there)
