"""Which routes kuryr0 gets, how packets leave by it, and when the daemon looks at it."""

import asyncio
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from kuryr_k8s.cni.netlink import NodeRoute
from kuryr_k8s.cni.node import plan
from kuryr_k8s.cni.node.interface import NodeInterfacePart
from kuryr_k8s.cni.ovs.switch import InterfaceRow
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.node_interface import NodeInterface, Route
from tests.kit.node.own_node import Api, Nodes

PODS, PODS6 = ip_network("10.62.0.0/16"), ip_network("fd62::/64")
SERVICES = ip_network("10.96.0.0/16")
GATEWAY, GATEWAY6 = ip_address("10.63.0.1"), ip_address("fd63::1")
ON_LINK = {NodeRoute(ip_network("10.63.0.0/24")), NodeRoute(ip_network("fd63::/64"))}
WANTED = NodeInterface(
    port_id="port-1",
    mac_address="FA:16:3E:00:00:01",
    mtu=1442,
    addresses=(ip_interface("10.63.0.11/24"), ip_interface("fd63::b/64")),
    routes=(Route(PODS, GATEWAY), Route(SERVICES, GATEWAY), Route(PODS6, GATEWAY6)),
)
ALL = {NodeRoute(route.destination, route.gateway) for route in WANTED.routes} | ON_LINK


def link(*, api=(), tunnels=(), others=()):
    needs = plan.needed(map(ip_address, api), tunnels, map(ip_interface, others))
    return plan.link(WANTED, needs)


def left_out(**surroundings):
    """The destinations that the interface does without, and that it gives a reason for each."""
    found, reasons = link(**surroundings)
    missing = {str(route.destination) for route in ALL - found.routes}
    assert found.routes <= ALL
    assert len(reasons) == len(missing)
    assert all(any(f"to {name} " in reason for reason in reasons) for name in missing)
    return missing


def test_all_routes_and_the_networks_of_the_addresses_are_there_usually():
    assert (
        left_out(
            api=["198.18.0.1"], tunnels=["198.18.0.2"], others=["198.18.0.2/24", "fd18::2/64"]
        )
        == set()
    )


def test_only_the_route_to_an_api_server_behind_a_service_is_left_out():
    assert left_out(api=["10.96.0.1"]) == {"10.96.0.0/16"}


def test_route_that_contains_an_end_of_tunnels_is_left_out():
    assert left_out(tunnels=["198.18.0.2", "10.62.7.7"]) == {"10.62.0.0/16"}
    assert left_out(tunnels=["fd62::7", "", "junk"]) == {"fd62::/64"}


def test_network_of_the_interface_itself_is_left_out_where_the_node_is_in_it_already():
    assert left_out(others=["10.63.0.2/24"]) == {"10.63.0.0/24"}


def test_addresses_without_a_network_leave_no_route_out():
    """kube-proxy gives the node all ClusterIPs, and a DNS cache that of the cluster's DNS."""
    assert left_out(others=["10.96.0.10/32", "fd62::10/128"]) == set()


def test_reason_names_the_address():
    _, [reason] = link(api=["10.96.0.1"])
    assert reason == (
        "the route to 10.96.0.0/16 is left out: it contains the API server's address 10.96.0.1"
    )


def test_mac_is_written_as_the_kernel_does():
    assert link()[0].mac == "fa:16:3e:00:00:01"


def test_masquerading_keeps_the_source_of_kuryr0_there_and_nowhere_else():
    text = plan.packet_rules([ip_interface("10.63.0.11/24")])
    assert 'oifname "kuryr0" ip saddr != { 10.63.0.11, 169.254.0.0/16 } masquerade' in text
    assert 'oifname != { "kuryr0", "lo" } ip saddr 10.63.0.11 masquerade' in text
    assert "ip6" not in text


class Switch:
    """What the daemon knows of Open vSwitch, and who hears that something in it has changed."""

    def __init__(self):
        self.connected = asyncio.Event()
        self.row = None
        self.encap = ["198.18.0.2"]
        self.bridge = "br-int"
        self._subscribers = []

    def subscribe(self, subscriber):
        self._subscribers.append(subscriber)

    subscribe_ports = subscribe

    def find(self, _name):
        return self.row

    def integration_bridge(self):
        return self.bridge

    def encap_ips(self):
        return self.encap

    def change(self, **fields):
        vars(self).update(fields)
        for subscriber in self._subscribers:
            subscriber()


@pytest.fixture
def queue():
    """The switch, and the queue of the part that keeps kuryr0; nobody takes anything from it."""
    switch, key = Switch(), Key("", "node1")
    part = NodeInterfacePart(Nodes(key), key, switch, None, Api(), None)
    switch.connected.set()
    switch.change()
    [loop] = part.loops()
    loop.queue.done(loop.queue.take())
    return switch, loop.queue


def test_ports_of_pods_that_come_and_go_cause_no_look_at_the_interface(queue):
    switch, waiting = queue
    switch.change()
    assert len(waiting) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"row": InterfaceRow("row", plan.NAME, {"iface-id": "port-1"}, "")},
        {"encap": ["198.18.0.3"]},
        {"bridge": "br-other"},
        {"connected": asyncio.Event()},
    ],
    ids=lambda change: next(iter(change)),
)
def test_change_of_what_the_interface_depends_on_causes_a_look_at_it(queue, change):
    switch, waiting = queue
    switch.change(**change)
    assert len(waiting) == 1
