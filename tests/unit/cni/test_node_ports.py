"""What a node makes of Services: which node ports, the table of them, which flows are wrong."""

import ipaddress
import struct

import pytest

from kuryr_k8s.cni.netlink.flows import Direction, UdpTarget, is_wrong
from kuryr_k8s.cni.netlink.messages import attribute, nested
from kuryr_k8s.cni.services import nftables
from kuryr_k8s.model.node_port import NodePort, ServiceAtNodes
from tests.kit.service_objects import service_item

BOTH = ("10.96.0.10", "fd96::10")


def at_nodes(*ports, addresses=BOTH, labels=None, **spec):
    """A Service of type NodePort; ports are (protocol, port, node port)."""
    item = service_item((), addresses, labels=labels, **{"type": "NodePort"} | spec)
    item["spec"]["ports"] = [
        {"protocol": protocol, "port": port, "nodePort": node_port}
        for protocol, port, node_port in ports
    ]
    return ServiceAtNodes.read(item)


def test_every_port_leads_to_the_cluster_ip_of_each_family():
    assert at_nodes(("TCP", 80, 30080), ("SCTP", 9, 30009)).node_ports == (
        NodePort("TCP", 30080, "10.96.0.10", 80),
        NodePort("TCP", 30080, "fd96::10", 80),
        NodePort("SCTP", 30009, "10.96.0.10", 9),
        NodePort("SCTP", 30009, "fd96::10", 9),
    )


def test_load_balancer_without_node_ports_has_none():
    service = at_nodes(("TCP", 80, None), type="LoadBalancer", allocateLoadBalancerNodePorts=False)
    assert service.node_ports == ()
    assert service.health_check_port is None


@pytest.mark.parametrize(
    "changes",
    [
        {"addresses": ("None",)},
        {"labels": {"service.kubernetes.io/service-proxy-name": "other"}},
        {"labels": {"service.kubernetes.io/headless": ""}},
    ],
    ids=["headless", "another proxy's", "headless by label"],
)
def test_services_of_others_are_left_alone(changes):
    service = at_nodes(("TCP", 80, 30080), healthCheckNodePort=32000, **changes)
    assert service.node_ports == ()
    assert service.health_check_port is None


def test_class_of_another_concerns_what_is_outside_of_the_nodes():
    classed = {"type": "LoadBalancer", "loadBalancerClass": "example.com/other"}
    service = at_nodes(("TCP", 80, 30080), healthCheckNodePort=32000, **classed)
    assert [port.port for port in service.node_ports] == [30080, 30080]
    assert service.health_check_port == 32000


def test_health_check_port_is_known():
    assert at_nodes(type="LoadBalancer", healthCheckNodePort=32000).health_check_port == 32000


def test_table_holds_each_node_port_by_its_version_and_protocol():
    table = nftables.table(at_nodes(("TCP", 80, 30080), ("UDP", 53, 30080)).node_ports)
    assert table.startswith(
        "table inet kuryr-node-ports\n"
        "delete table inet kuryr-node-ports\n"
        "table inet kuryr-node-ports {\n"
        "map to-ip {\n"
        "type inet_proto . inet_service : ipv4_addr . inet_service\n"
        "elements = { tcp . 30080 : 10.96.0.10 . 80, udp . 30080 : 10.96.0.10 . 53 }\n"
        "}\n"
        "set led-ip {\n"
        "type ipv4_addr . inet_proto . inet_service\n"
        "elements = { 10.96.0.10 . tcp . 80, 10.96.0.10 . udp . 53 }\n"
        "}\n"
        "map to-ip6 {\n"
        "type inet_proto . inet_service : ipv6_addr . inet_service\n"
        "elements = { tcp . 30080 : fd96::10 . 80, udp . 30080 : fd96::10 . 53 }\n"
    )


def test_table_of_no_node_ports_has_no_elements():
    assert "elements" not in nftables.table(())


def networks(*texts):
    return [ipaddress.ip_network(text) for text in texts]


def rules(*texts):
    """Those that forward what arrives at addresses in these networks."""
    lines = nftables.table((), networks=networks(*texts)).split("\n")
    begin = lines.index("chain node-ports {")
    return lines[begin + 1 : lines.index("}", begin)]


def test_table_forwards_at_all_addresses_but_loopback_where_no_networks_are_named():
    assert rules() == [
        "ip daddr != 127.0.0.0/8 dnat ip to meta l4proto . th dport map @to-ip",
        "ip6 daddr != ::1 dnat ip6 to meta l4proto . th dport map @to-ip6",
    ]


def test_table_forwards_at_addresses_in_the_networks_alone():
    """nft refuses networks that overlap."""
    [v4, v6] = rules("192.0.2.0/24", "192.0.2.7/32", "198.51.100.1/32", "2001:db8::/64")
    within = "ip daddr != 127.0.0.0/8 ip daddr { 192.0.2.0/24, 198.51.100.1/32 } dnat ip to "
    assert v4.startswith(within)
    assert v6.startswith("ip6 daddr != ::1 ip6 daddr { 2001:db8::/64 } dnat ip6 to ")


def test_family_of_which_no_network_is_named_has_no_node_ports():
    [only] = rules("192.0.2.0/24")
    assert "dnat ip to" in only


def way(saddr, sport, daddr, dport):
    return Direction(packed(saddr), sport, packed(daddr), dport)


def packed(address):
    return ipaddress.ip_address(address).packed


CLIENT, NODE = "192.0.2.2", "192.0.2.1"
ASKED = way(CLIENT, 5000, NODE, 30053)
TO_SERVICE, UNCHANGED = way("10.96.0.10", 53, NODE, 6000), way(NODE, 30053, CLIENT, 5000)


@pytest.mark.parametrize(
    ("wrong", "answered"),
    [
        (False, TO_SERVICE),
        (True, way("10.96.0.11", 53, NODE, 6000)),
        (True, way("10.96.0.10", 54, NODE, 6000)),
        (True, UNCHANGED),
    ],
    ids=["as now", "old address", "old port", "to the node itself"],
)
def test_flow_is_wrong_that_is_led_elsewhere_or_not_at_all(wrong, answered):
    assert is_wrong(UdpTarget(4, 30053, "10.96.0.10", 53), ASKED, answered) is wrong


def test_flow_is_right_however_its_service_spells_the_address():
    asked = way("2001:db8::2", 5000, "2001:db8::1", 30053)
    answered = way("fd96::10", 53, "2001:db8::1", 6000)
    assert not is_wrong(UdpTarget(6, 30053, "FD96:0:0::10", 53), asked, answered)


def test_flow_is_wrong_that_is_still_led_where_no_node_port_is():
    nowhere = UdpTarget(4, 30053, None, 0)
    assert is_wrong(nowhere, ASKED, TO_SERVICE)
    assert not is_wrong(nowhere, ASKED, UNCHANGED)


def test_flow_to_an_address_without_node_ports_is_right_only_at_the_node_itself():
    elsewhere = UdpTarget(4, 30053, "10.96.0.10", 53, tuple(networks("198.51.100.0/24")))
    assert is_wrong(elsewhere, ASKED, TO_SERVICE)
    assert not is_wrong(elsewhere, ASKED, UNCHANGED)
    here = elsewhere._replace(networks=tuple(networks("192.0.2.0/24", "2001:db8::/64")))
    assert not is_wrong(here, ASKED, TO_SERVICE)
    assert is_wrong(here, ASKED, UNCHANGED)


@pytest.mark.parametrize(("protocol", "found"), [(17, ASKED), (6, None), (132, None)])
def test_flows_of_other_protocols_are_none_of_ours(protocol, found):
    """Of all protocols tells a kernel that knows no filter."""
    ip = attribute(1, packed(CLIENT)) + attribute(2, packed(NODE))
    ports = attribute(2, struct.pack("!H", 5000)) + attribute(3, struct.pack("!H", 30053))
    value = nested(1, ip) + nested(2, attribute(1, bytes([protocol])) + ports)
    assert Direction.read(value) == found
