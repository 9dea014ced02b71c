"""kuryr0 with a real Open vSwitch: plugged, kept and removed as the Node's annotation says."""

import asyncio
import contextlib
import dataclasses
import os
import socket
import subprocess
import time
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from kuryr_k8s.cni import nft
from kuryr_k8s.cni.netlink import Links, device
from kuryr_k8s.cni.node.interface import NodeInterfacePart
from kuryr_k8s.cni.node.plan import NAME, TABLE
from kuryr_k8s.cni.ovs.switch import OpenVSwitch
from kuryr_k8s.cni.patience import Patience
from kuryr_k8s.k8s.events import EventRecorder
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.node_interface import NodeInterface, Route
from tests.kit.node.own_node import Api, Nodes
from tests.node.crossing import ANSWER, inside
from tests.node.real_switch import RealSwitch
from tests.node.workbench import PATIENCE, eventually, ip, shell

KEY = Key("", "node1")
POD, POD6 = "10.62.0.5", "fd62::5"
WANTED = NodeInterface(
    port_id="11111111-0000-4000-8000-000000000001",
    mac_address="fa:16:3e:63:00:0b",
    mtu=1400,
    addresses=(ip_interface("10.63.0.11/24"), ip_interface("fd63::b/64")),
    routes=(
        Route(ip_network("10.62.0.0/16"), ip_address("10.63.0.1")),
        Route(ip_network("fd62::/64"), ip_address("fd63::1")),
    ),
)
SOURCE, SOURCE6 = "10.63.0.11", "fd63::b"
DESTINATIONS = {"10.62.0.0/16", "10.63.0.0/24", "fd62::/64", "fd63::/64"}
REPAIR = 5.0  # seconds that a repair may take


@pytest.fixture
def switch(tmp_path):
    switch = RealSwitch(tmp_path)
    try:
        switch.start()
        yield switch
    finally:
        switch.stop()


@pytest.fixture
def pods(namespaces, switch):
    """The network of Pods behind the bridge: a namespace with addresses of gateways and Pods."""
    name = namespaces()
    shell(f"ip link add pods type veth peer name eth0 netns {name}")
    shell("ip link set pods up")
    for address in ("10.63.0.1/24", f"{POD}/32"):
        shell(f"ip -n {name} address add {address} dev eth0")
    for address in ("fd63::1/64", f"{POD6}/128"):
        shell(f"ip -n {name} address add {address} dev eth0 nodad")
    shell(f"ip -n {name} link set eth0 up")
    with inside(name):
        device.checksums_off("eth0")
    device.checksums_off("pods")
    switch.vsctl("add-port", "br-int", "pods")
    return name


class Daemon:
    """What a daemon has that keeps the interface."""

    def __init__(self, switch, nodes, api=None):
        self.api = api or Api()
        self.switch = OpenVSwitch(switch.remote)
        self.links = Links()
        self.part = NodeInterfacePart(
            nodes,
            KEY,
            self.switch,
            self.links.node,
            self.api,
            EventRecorder(self.api, "kuryr-k8s-daemon", "node1"),
            Patience(node_port_installed=PATIENCE),
        )

    @contextlib.asynccontextmanager
    async def running(self):
        async with asyncio.TaskGroup() as group:
            loops = [*self.switch.loops(), *self.part.loops()]
            tasks = [group.create_task(loop.run()) for loop in loops]
            try:
                yield self
            finally:
                for task in tasks:
                    task.cancel()
        self.links.close()

    @property
    def up(self):
        [_, up] = self.part.collectors()
        return next(iter(up.collect())).samples[0].value == 1


@contextlib.asynccontextmanager
async def plugged(switch, nodes, api=None):
    """A daemon that has plugged the interface, which OVN has installed."""
    async with Daemon(switch, nodes, api).running() as daemon:
        await eventually(lambda: switch.ids(NAME))
        switch.install(NAME)
        await eventually(lambda: daemon.up)
        yield daemon


@pytest.fixture
def nodes():
    nodes = Nodes(KEY)
    nodes.put(WANTED)
    return nodes


def addresses():
    """The addresses of the interface but the link-local one; empty without it."""
    try:
        [link] = ip("address", "show", "dev", NAME)
    except subprocess.CalledProcessError:
        return set()
    return {
        f"{found['local']}/{found['prefixlen']}"
        for found in link["addr_info"]
        if found["scope"] == "global"
    }


def destinations():
    found = set()
    for family in ("-4", "-6"):
        command = ["ip", family, "-j", "route", "show", "table", "107"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode == 0:
            found |= {line["dst"] for line in ip(family, "route", "show", "table", "107")}
    return found


def rules():
    return [
        rule
        for family in ("-4", "-6")
        for rule in ip(family, "rule")
        if rule.get("priority") in (10700, 10701, 10702)
    ]


def reached(address, **options):
    """Whether an address answers to one request."""
    words = [word for key, value in options.items() for word in (f"-{key}", value)]
    command = ["ping", "-c1", "-W1", *words, address]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


async def until_reached(*wanted):
    """Seconds until all of them answer."""
    begun = time.monotonic()
    await asyncio.to_thread(until, lambda: all(map(reached, wanted)))
    return time.monotonic() - begun


def until(condition):
    """Wait, in a thread, until it holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


class Listener:
    """A Pod that tells from whom it heard."""

    def __init__(self, namespace, address, port=5000):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with inside(namespace):
            self._channel = socket.socket(family, socket.SOCK_DGRAM)
        self._channel.bind((address, port))
        self._channel.settimeout(PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._channel.close()

    def heard(self):
        _, peer = self._channel.recvfrom(100)
        return peer[0]


async def test_node_reaches_pods_in_both_families_and_they_reach_it(switch, pods, nodes):
    async with plugged(switch, nodes):
        await until_reached(POD, POD6)
        for address in (SOURCE, SOURCE6):
            shell(f"ip netns exec {pods} ping -c1 -W5 {address}")


async def test_interface_is_what_the_annotation_says(switch, nodes):
    async with plugged(switch, nodes):
        [link] = ip("link", "show", NAME)
        assert (link["address"], link["mtu"]) == (WANTED.mac_address, WANTED.mtu)
        assert addresses() == {str(address) for address in WANTED.addresses}
        assert destinations() == DESTINATIONS
        ids = switch.ids(NAME)
        assert ids.pop("ovn-installed")
        assert ids == {
            "iface-id": WANTED.port_id,
            "iface-status": "active",
            "attached-mac": WANTED.mac_address,
            "kuryr-node": "uid-1",
        }
        for setting, value in (("ipv6/conf/{}/accept_ra", "0"), ("ipv4/conf/{}/rp_filter", "2")):
            assert shell(f"cat /proc/sys/net/{setting.format(NAME)}").strip() == value


async def test_nothing_is_left_when_the_annotation_goes(switch, nodes):
    async with plugged(switch, nodes) as daemon:
        nodes.put()
        await eventually(lambda: switch.ids(NAME) is None and not daemon.links.exists(NAME))
        await eventually(lambda: not rules())
        assert not destinations()
        assert not await nft.exists(TABLE)
        assert not daemon.up


async def test_daemon_that_was_cut_off_in_a_removal_ends_it_later(switch, nodes):
    async with plugged(switch, nodes):
        pass
    switch.vsctl("del-port", NAME)
    nodes.put()
    async with Daemon(switch, nodes).running():
        await eventually(lambda: not rules())
    assert not await nft.exists(TABLE)


async def test_node_without_annotation_gets_nothing(switch):
    nodes = Nodes(KEY)
    nodes.put()
    async with Daemon(switch, nodes).running() as daemon:
        await daemon.switch.connected.wait()
        await daemon.part.reconcile(KEY)
        assert switch.ids(NAME) is None
        assert not rules()


async def test_path_outlives_the_daemon_and_its_next_one_changes_nothing(switch, pods, nodes):
    async with plugged(switch, nodes):
        await until_reached(POD, POD6)
        before = (switch.ids(NAME), ip("link", "show", NAME), destinations())
    assert reached(POD)
    assert reached(POD6)
    async with Daemon(switch, nodes).running() as daemon:
        await eventually(lambda: daemon.up)
        assert (switch.ids(NAME), ip("link", "show", NAME), destinations()) == before


def delete_row(switch):
    switch.vsctl("del-port", NAME)


def delete_link(_switch):
    shell(f"ip link delete {NAME}")


def set_down(_switch):
    shell(f"ip link set {NAME} down")


def delete_addresses(_switch):
    shell(f"ip address flush dev {NAME}")


def delete_routes(_switch):
    shell("ip -4 route flush table 107")
    shell("ip -6 route flush table 107")


def delete_rules(_switch):
    shell("ip -4 rule delete priority 10701")
    shell("ip -6 rule delete priority 10701")


def change_mac(_switch):
    shell(f"ip link set {NAME} address 02:00:00:00:00:01")


def restart_vswitchd(switch):
    switch.kill_vswitchd()
    switch.start_vswitchd()


@pytest.mark.parametrize(
    "damage",
    [
        delete_row,
        delete_link,
        set_down,
        delete_addresses,
        delete_routes,
        delete_rules,
        change_mac,
        restart_vswitchd,
    ],
)
async def test_path_is_back_within_seconds_after_damage(switch, pods, nodes, damage):
    async with plugged(switch, nodes):
        await until_reached(POD, POD6)
        damage(switch)
        assert await until_reached(POD, POD6) < REPAIR
        assert addresses() == {str(address) for address in WANTED.addresses}
        assert destinations() == DESTINATIONS


async def test_new_annotation_is_followed(switch, pods, nodes):
    """Another address and MTU, one route less, and one more."""
    async with plugged(switch, nodes):
        changed = dataclasses.replace(
            WANTED,
            mtu=1300,
            addresses=(ip_interface("10.63.0.12/24"),),
            routes=(Route(ip_network("10.62.0.0/24"), ip_address("10.63.0.1")),),
        )
        nodes.put(changed)
        await until_reached(POD)
        await eventually(lambda: addresses() == {"10.63.0.12/24"})
        await eventually(lambda: destinations() == {"10.62.0.0/24", "10.63.0.0/24"})
        [link] = ip("link", "show", NAME)
        assert link["mtu"] == 1300


async def test_new_port_takes_the_place_of_the_old_one(switch, pods, nodes):
    async with plugged(switch, nodes):
        other = dataclasses.replace(
            WANTED, port_id="22222222-0000-4000-8000-000000000002", mac_address="fa:16:3e:63:00:0c"
        )
        nodes.put(other)
        await eventually(lambda: (switch.ids(NAME) or {}).get("iface-id") == other.port_id)
        await until_reached(POD, POD6)
        [link] = ip("link", "show", NAME)
        assert link["address"] == other.mac_address


async def test_node_registered_again_keeps_its_interface_until_a_controller_speaks(
    switch, pods, nodes
):
    async with plugged(switch, nodes) as daemon:
        before = switch.ids(NAME)
        nodes.put(uid="uid-2")
        await daemon.part.reconcile(KEY)
        assert switch.ids(NAME) == before
        await until_reached(POD)
        nodes.put(WANTED, uid="uid-2")
        await eventually(lambda: switch.ids(NAME)["kuryr-node"] == "uid-2")
        nodes.put(uid="uid-2")
        await eventually(lambda: switch.ids(NAME) is None)


async def test_only_the_route_that_would_cut_the_node_off_is_left_out(switch, pods, nodes):
    api = Api("https://10.96.0.1:443")
    routes = (*WANTED.routes, Route(ip_network("10.96.0.0/16"), ip_address("10.63.0.1")))
    nodes.put(dataclasses.replace(WANTED, routes=routes))
    async with plugged(switch, nodes, api):
        await until_reached(POD, POD6)
        assert destinations() == DESTINATIONS
        await eventually(lambda: api.events)
        [(reason, note)] = api.events
        assert reason == "KuryrNodeRouteLeftOut"
        assert "10.96.0.0/16" in note
        api.server = "https://198.18.0.1:6443"
        await eventually(lambda: "10.96.0.0/16" in destinations())


async def test_other_ways_of_the_node_to_the_same_networks_do_not_matter(switch, pods, nodes):
    """The main table leads what is not ours by the node's own network: answers, for example."""
    shell("ip link add underlay type veth peer name far")
    try:
        shell("ip link set far up")
        shell("ip link set underlay up")
        shell("ip address add 198.18.0.1/24 dev underlay")
        shell("ip address add fd18::1/64 dev underlay nodad")
        for destination in ("10.62.0.0/16", "10.63.0.0/24"):
            shell(f"ip route add {destination} via 198.18.0.254 dev underlay")
        for destination in ("fd62::/64", "fd63::/64"):
            shell(f"ip -6 route add {destination} via fd18::fe dev underlay")
        async with plugged(switch, nodes):
            await until_reached(POD, POD6)
            assert destinations() == DESTINATIONS
    finally:
        shell("ip link delete underlay")


async def test_encapsulation_in_the_pods_network_leaves_its_route_out(switch, nodes):
    async with plugged(switch, nodes):
        switch.vsctl(
            "--no-wait", "set", "Open_vSwitch", ".", "external_ids:ovn-encap-ip=10.62.0.9"
        )
        await eventually(lambda: destinations() == DESTINATIONS - {"10.62.0.0/16"})


@pytest.mark.parametrize(("pod", "own"), [(POD, SOURCE), (POD6, SOURCE6)], ids=["IPv4", "IPv6"])
async def test_what_the_node_forwards_to_pods_comes_from_the_interface(
    switch, pods, nodes, namespaces, pod, own
):
    """As a connection to a hostPort does. Neutron drops what has another source."""
    client = namespaces()
    shell(f"ip link add client type veth peer name eth0 netns {client}")
    for where, link, v4, v6 in (("", "client", 1, 1), (f"-n {client}", "eth0", 2, 2)):
        shell(f"ip {where} address add 192.0.2.{v4}/24 dev {link}")
        shell(f"ip {where} address add 2001:db8::{v6}/64 dev {link} nodad")
        shell(f"ip {where} link set {link} up")
    shell("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
    shell(f"ip -n {client} route add default via 192.0.2.1")
    shell(f"ip -n {client} route add default via 2001:db8::1")
    with inside(client):
        family = socket.AF_INET6 if ":" in pod else socket.AF_INET
        sender = socket.socket(family, socket.SOCK_DGRAM)
    with sender, Listener(pods, pod) as listener:
        async with plugged(switch, nodes):
            await until_reached(POD, POD6)
            sender.sendto(b"?", (pod, 5000))
            assert await asyncio.to_thread(listener.heard) == own


async def test_connection_that_is_led_elsewhere_has_the_address_of_its_way(
    switch, nodes, namespaces
):
    """As kube-proxy leads a ClusterIP to a Pod in a node's own network."""
    other = namespaces()
    shell(f"ip link add under type veth peer name eth0 netns {other}")
    shell("ip address add 198.18.0.2/24 dev under")
    shell("ip link set under up")
    shell(f"ip -n {other} address add 198.18.0.1/24 dev eth0")
    shell(f"ip -n {other} link set eth0 up")
    await nft.apply(
        "table ip proxy {\nchain output { type nat hook output priority -100\n"
        "ip daddr 10.62.9.9 udp dport 53 dnat to 198.18.0.1:5000\n}\n}\n"
    )
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender, Listener(other, "198.18.0.1") as listener:
        async with plugged(switch, nodes):
            sender.sendto(b"?", ("10.62.9.9", 53))
            assert await asyncio.to_thread(listener.heard) == "198.18.0.2"


async def test_answers_from_another_address_leave_by_the_way_they_came(
    switch, pods, nodes, namespaces
):
    """A Pod whose router leads to the node's own network, without changing its address."""
    router = namespaces()
    shell(f"ip link add under type veth peer name eth0 netns {router}")
    shell("ip address add fd18::2/64 dev under nodad")
    shell("ip link set under up")
    shell(f"ip -n {router} address add fd18::99/64 dev eth0 nodad")
    shell(f"ip -n {router} address add fd62::77/128 dev eth0 nodad")
    shell(f"ip -n {router} link set eth0 up")
    shell("ip -6 route add default via fd18::99")
    async with plugged(switch, nodes):
        shell(f"ip netns exec {router} ping -c1 -W5 -I fd62::77 fd18::2")


async def lead_node_port(hook, match, pod):
    """Lead what matches to the Pod, as kube-proxy does."""
    table, to = ("ip6", f"[{pod}]:5000") if ":" in pod else ("ip", f"{pod}:5000")
    await nft.apply(
        f"table {table} proxy {{\nchain {hook} {{ type nat hook {hook} priority -100\n"
        f"{match} dnat to {to}\n}}\n}}\n"
    )


async def ask_for_node_port(client, server, *, node, pod):
    """A Pod answers in the node's place, and sees nobody but kuryr0."""
    server.bind((pod, 5000))
    for end in (client, server):
        end.settimeout(ANSWER)
    client.sendto(b"?", (node, 30000))
    asked, (address, port, *_) = await asyncio.to_thread(server.recvfrom, 100)
    assert address in (SOURCE, SOURCE6)
    server.sendto(asked, (address, port))
    answered, (address, *_) = await asyncio.to_thread(client.recvfrom, 100)
    assert (answered, address) == (b"?", node)


@pytest.mark.parametrize(
    ("asker", "node", "pod"),
    [("10.62.0.77", "198.18.0.2", POD), ("fd62::77", "fd18::2", POD6)],
    ids=["IPv4", "IPv6"],
)
async def test_pod_that_asks_for_a_node_port_is_answered_by_the_way_it_came(
    switch, pods, nodes, namespaces, asker, node, pod
):
    """Its router leads to the node's own network; the Pod that answers is behind kuryr0."""
    router = namespaces()
    family, length = ("-6", "128") if ":" in node else ("-4", "32")
    at_once = "nodad" if ":" in node else ""
    shell(f"ip link add under type veth peer name eth0 netns {router}")
    shell(f"ip address add {node}/{length} dev under {at_once}")
    shell("ip link set under up")
    shell(f"ip -n {router} address add {asker}/{length} dev eth0 {at_once}")
    shell(f"ip -n {router} link set eth0 up")
    shell(f"ip -n {router} {family} route add {node} dev eth0 src {asker}")
    shell(f"ip {family} route add {asker} dev under")
    shell("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
    await lead_node_port("prerouting", "udp dport 30000", pod)
    kind = socket.AF_INET6 if ":" in node else socket.AF_INET
    with inside(router):
        client = socket.socket(kind, socket.SOCK_DGRAM)
    with inside(pods):
        server = socket.socket(kind, socket.SOCK_DGRAM)
    with client, server:
        async with plugged(switch, nodes):
            await until_reached(POD, POD6)
            await ask_for_node_port(client, server, node=node, pod=pod)


@pytest.mark.parametrize(
    ("node", "pod"), [("198.18.0.2", POD), ("fd18::2", POD6)], ids=["IPv4", "IPv6"]
)
async def test_node_reaches_its_own_node_port(switch, pods, nodes, namespaces, node, pod):
    """Whatever else leads to the Pods: an operator's route, for example."""
    family = "-6" if ":" in node else "-4"
    shell(f"ip link add under type veth peer name eth0 netns {namespaces()}")
    shell(f"ip {family} address add {node} dev under {'nodad' if ':' in node else ''}")
    shell("ip link set under up")
    shell(f"ip {family} route add {pod} dev under")
    await lead_node_port("output", "fib daddr type local udp dport 30000", pod)
    kind = socket.AF_INET6 if ":" in node else socket.AF_INET
    with inside(pods):
        server = socket.socket(kind, socket.SOCK_DGRAM)
    with socket.socket(kind, socket.SOCK_DGRAM) as client, server:
        async with plugged(switch, nodes):
            await until_reached(POD, POD6)
            await ask_for_node_port(client, server, node=node, pod=pod)


async def test_flushed_rules_for_packets_come_back(switch, nodes, monkeypatch):
    monkeypatch.setattr("kuryr_k8s.cni.node.interface.KEPT", 0.0)
    async with plugged(switch, nodes):
        shell("nft flush ruleset")
        list_table = ["nft", "list", "table", *TABLE.split()]
        await eventually(lambda: subprocess.run(list_table, check=False).returncode == 0)


async def test_failures_are_told_and_tried_again_without_a_busy_loop(switch, nodes):
    """ovs-vswitchd does not run, then a bad annotation, then all is well."""
    switch.kill_vswitchd()
    async with Daemon(switch, nodes).running() as daemon:
        await eventually(lambda: switch.ids(NAME))
        before = sum(os.times()[:2])
        nodes.put("{junk")
        await eventually(lambda: daemon.api.events)
        assert daemon.api.events[0][0] == "KuryrNodeInterfaceFailed"
        await asyncio.sleep(3)
        assert sum(os.times()[:2]) - before < 1.0
        switch.start_vswitchd()
        nodes.put(WANTED)
        switch.install(NAME)
        await eventually(lambda: daemon.up)
