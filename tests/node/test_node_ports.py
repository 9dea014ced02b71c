"""Node ports in real namespaces: connections to the node come to the ClusterIPs, by real nft."""

import asyncio
import functools
import ipaddress
import json
import logging
import os
import random
import socket
import subprocess
import sys
import threading
import time

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from pyroute2 import NFCTSocket
from pyroute2.netlink.nfnetlink.nfctsocket import NFCTAttrTuple

from kuryr_k8s import errors
from kuryr_k8s.cni import nft
from kuryr_k8s.cni.netlink import Flows, Links
from kuryr_k8s.cni.netlink.flows import NETFILTER
from kuryr_k8s.cni.netlink.threads import Threads
from kuryr_k8s.cni.patience import USUAL
from kuryr_k8s.cni.services import nftables
from kuryr_k8s.cni.services.health_checks import HealthChecks
from kuryr_k8s.cni.services.node_ports import NodePorts, remove
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.node_port import NodePort
from tests.kit.node.node_port_services import Services
from tests.node import switching_tables
from tests.node.crossing import (
    ANSWER,
    CLIENT,
    FACING,
    NODE,
    OTHER,
    V4,
    V6,
    WEB,
    Answering,
    Crossing,
)
from tests.node.workbench import PATIENT, eventually, shell

KEY = Key("", "node")
KINDS = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM}
HTTP, DNS = 30080, 30053
FIREWALL = """table inet firewall {
chain input { type filter hook input priority 0
ct state established,related accept
}
}
"""


@pytest.fixture
def crossing(namespaces):
    return Crossing(namespaces(), namespaces())


@pytest.fixture
def node_ports_of():
    """Makes what a daemon has that starts now, for these Services."""
    links = Links()

    def make(services, registry=None, flows=links.flows, networks=()):
        node_ports = NodePorts(services, flows, PATIENT, networks)
        for collector in node_ports.collectors() if registry else ():
            registry.register(collector)
        return node_ports

    yield make
    links.close()


class ByTurns:
    """Flows that each correction asks for by another protocol of netlink."""

    def __init__(self, threads, protocols):
        self._flows = [Flows(threads, protocol=protocol) for protocol in reversed(protocols)]

    async def correct(self, targets):
        return await self._flows.pop().correct(targets)


@pytest.fixture
def by_turns():
    threads = Threads("conntrack", 1)
    yield lambda *protocols: ByTurns(threads, protocols)
    threads.close()


def lead(port, addresses, target=80, protocol="TCP"):
    return [NodePort(protocol, port, address, target) for address in addresses]


async def until_reconciled(node_ports):
    """As the loop does it: when it is told to wait, it does."""
    while True:
        try:
            return await node_ports.reconcile(KEY)
        except errors.Wait as wait:
            await asyncio.sleep(wait.delay)


def listed(table=nftables.TABLE):
    """A table as nft shows it, without its handles; None where there is none."""
    done = subprocess.run(
        ["nft", "--json", "list", "table", *table.split()], capture_output=True, check=False
    )
    if done.returncode:
        return None
    found = json.loads(done.stdout)["nftables"][1:]
    for entry in found:
        for value in entry.values():
            value.pop("handle", None)
    return found


def led():
    """The node ports of the table: {(protocol, port): {addresses}}."""
    found = {}
    for entry in listed() or ():
        for key, target in entry.get("map", {}).get("elem", ()):
            protocol, port = key["concat"]
            found.setdefault((protocol, port), set()).add(target["concat"][0])
    return found


class Datagrams:
    """A socket of the client that asks again and again: one flow."""

    def __init__(self, crossing, address, port):
        self._channel = crossing.open(crossing.client, socket.SOCK_DGRAM, address)
        self._channel.settimeout(ANSWER)
        self._channel.connect((address, port))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._channel.close()

    def ask(self):
        """Who answers, or None."""
        try:
            self._channel.send(b"?")
            return self._channel.recv(100).decode().split()[0]
        except ConnectionRefusedError:
            return None


def flows_to(port):
    """What the node remembers of IPv4 flows to a port: {destination: number of the memory}."""
    with NFCTSocket() as conntrack:
        found = [
            (NFCTAttrTuple.from_netlink(socket.AF_INET, flow.get_attr("CTA_TUPLE_ORIG")), flow)
            for flow in conntrack.dump()
        ]
    return {way.daddr: flow.get_attr("CTA_ID") for way, flow in found if way.dport == port}


@pytest.mark.parametrize("version", [V4, V6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("protocol", KINDS)
async def test_node_port_leads_to_the_service_at_every_address_of_the_node(
    crossing, node_ports_of, protocol, version
):
    kind = KINDS[protocol]
    services = Services(lead(HTTP, WEB, 80, protocol))
    await node_ports_of(services).reconcile(KEY)
    with Answering(crossing, "web", WEB[version], 80, kind):
        for address in (NODE[version], FACING[version]):
            for at in (crossing.client, None):
                answer = crossing.ask(address, HTTP, kind, at=at)
                assert answer == ("web", FACING[version])
        assert crossing.ask(NODE[version], HTTP + 1, kind, timeout=0.3) is None


@pytest.mark.parametrize("protocol", KINDS)
async def test_node_port_leads_nowhere_at_an_address_in_none_of_the_networks(
    crossing, node_ports_of, protocol
):
    """What listens there itself keeps its port, and no memory of its flows goes."""
    kind = KINDS[protocol]
    networks = [ipaddress.ip_network(text) for text in (f"{NODE[V4]}/32", "198.51.0.0/32")]
    node_ports = node_ports_of(Services(lead(HTTP, WEB, 80, protocol)), networks=networks)
    with (
        Answering(crossing, "web", WEB[V4], 80, kind),
        Answering(crossing, "own4", FACING[V4], HTTP, kind, at=None),
        Answering(crossing, "own6", NODE[V6], HTTP, kind, at=None),
    ):
        for _ in range(2):
            await until_reconciled(node_ports)
            assert crossing.ask(NODE[V4], HTTP, kind)[0] == "web"
            assert crossing.ask(FACING[V4], HTTP, kind)[0] == "own4"
            assert crossing.ask(NODE[V6], HTTP, kind)[0] == "own6"


async def test_health_check_is_not_answered_well_where_node_ports_lead_nowhere(
    crossing, node_ports_of
):
    services = Services(lead(HTTP, WEB), health_check_port=32000, name="web")
    node_ports = node_ports_of(services, networks=[ipaddress.ip_network(f"{NODE[V4]}/32")])
    checks = HealthChecks(services, node_ports.works_at, lambda _service: True)
    fresh = aiohttp.TCPConnector(force_close=True)
    async with asyncio.TaskGroup() as group, aiohttp.ClientSession(connector=fresh) as session:
        serving = group.create_task(checks.run())
        await checks.reconcile(KEY)
        await node_ports.reconcile(KEY)
        for address, status in ((NODE[V4], 200), (FACING[V4], 503), (f"[{NODE[V6]}]", 503)):
            async with session.get(f"http://{address}:32000/") as answer:
                assert answer.status == status
        serving.cancel()


async def test_same_number_leads_to_another_service_by_its_protocol(crossing):
    wanted = [*lead(DNS, WEB, 53, "TCP"), *lead(DNS, OTHER, 5353, "UDP")]
    await nftables.replace(wanted)
    with (
        Answering(crossing, "tcp", WEB[V4], 53),
        Answering(crossing, "udp", OTHER[V4], 5353, socket.SOCK_DGRAM),
    ):
        assert crossing.ask(NODE[V4], DNS)[0] == "tcp"
        assert crossing.ask(NODE[V4], DNS, socket.SOCK_DGRAM)[0] == "udp"


async def test_loopback_and_other_connections_are_left_alone(crossing):
    """A program of the node keeps its port at 127.0.0.1 and ::1; the client its own address."""
    await nftables.replace(lead(HTTP, WEB))
    shell(f"ip -n {crossing.services} route add 192.0.2.0/24 via {FACING[V4]}")
    with (
        Answering(crossing, "local4", "127.0.0.1", HTTP, at=None),
        Answering(crossing, "local6", "::1", HTTP, at=None),
        Answering(crossing, "web", WEB[V4], 80),
    ):
        assert crossing.ask("127.0.0.1", HTTP, at=None) == ("local4", "127.0.0.1")
        assert crossing.ask("::1", HTTP, at=None) == ("local6", "::1")
        assert crossing.ask(WEB[V4], 80) == ("web", CLIENT[V4])


async def test_no_request_is_lost_during_a_hundred_updates(crossing):
    """Nor the connection that is there before and after; and each update is seen."""
    steady = lead(HTTP, WEB)
    await nftables.replace(steady)
    done, lost, answered = threading.Event(), [], []

    def ask_on():
        while not done.is_set():
            version = random.choice((V4, V6))
            answer = crossing.ask(NODE[version], HTTP)
            (answered if answer == ("web", FACING[version]) else lost).append(answer)

    with (
        Answering(crossing, "web", WEB[V4], 80),
        Answering(crossing, "web", WEB[V6], 80),
        crossing.open(crossing.client, socket.SOCK_STREAM, NODE[V4]) as old,
    ):
        old.connect((NODE[V4], HTTP))
        asking = [threading.Thread(target=ask_on) for _ in range(3)]
        for thread in asking:
            thread.start()
        try:
            for number in range(100):
                others = lead(31000 + number, OTHER)
                await nftables.replace([*others, *steady])
                assert led().keys() == {("tcp", HTTP), ("tcp", 31000 + number)}
                await eventually(lambda updates=number: lost or len(answered) > updates)
        finally:
            done.set()
            for thread in asking:
                thread.join()
        old.settimeout(ANSWER)
        old.send(b"?")
        assert old.recv(100).decode() == f"web {FACING[V4]}"
    assert not lost
    assert len(answered) >= 100


async def test_foreign_tables_stay_as_they_are(crossing, node_ports_of):
    foreign = "inet filter"
    text = "chain input { type filter hook input priority 0\ntcp dport 22 counter accept\n}"
    await nft.apply(f"table {foreign} {{\n{text}\n}}\n")
    shell("iptables -t nat -A PREROUTING -p tcp --dport 8080 -j DNAT --to 10.0.0.1:80")
    rules = shell("iptables-save -t nat").splitlines()[1:-1]
    before = listed(foreign)
    node_ports = node_ports_of(Services(lead(HTTP, WEB)))
    await node_ports.reconcile(KEY)
    await remove()
    assert listed() is None
    assert listed(foreign) == before
    assert shell("iptables-save -t nat").splitlines()[1:-1] == rules


@pytest.mark.parametrize("version", [V4, V6], ids=["IPv4", "IPv6"])
async def test_datagrams_that_never_pause_follow_their_node_port(crossing, node_ports_of, version):
    """From before there was a Service, through another ClusterIP, to the end."""
    services = Services()
    node_ports = node_ports_of(services)
    await node_ports.reconcile(KEY)
    kind = socket.SOCK_DGRAM
    with (
        Answering(crossing, "web", WEB[version], 53, kind),
        Answering(crossing, "other", OTHER[version], 5353, kind),
        Datagrams(crossing, NODE[version], DNS) as sender,
    ):
        assert sender.ask() is None
        for name, address, target in (("web", WEB, 53), ("other", OTHER, 5353), (None, None, 0)):
            services.put(lead(DNS, address, target, "UDP") if address else ())
            await until_reconciled(node_ports)
            assert sender.ask() == name


def processor_time():
    """Seconds of it that were ours and those of nft that have ended."""
    return sum(os.times()[:4])


async def test_many_ports_are_no_more_work_than_one(crossing, node_ports_of):
    """The flow of one socket is corrected among those of a thousand ports, which took 20 s of a
    processor's time, many times what the table of so many takes: that is the measure, since
    processors differ, and by the clock it depends on who else wants one."""
    services = Services(lead(DNS, WEB, 53, "UDP"))
    node_ports = node_ports_of(services)
    await node_ports.reconcile(KEY)
    kind = socket.SOCK_DGRAM
    with (
        Answering(crossing, "web", WEB[V4], 53, kind),
        Answering(crossing, "other", OTHER[V4], 53, kind),
        Datagrams(crossing, NODE[V4], DNS) as sender,
    ):
        assert sender.ask() == "web"
        many = [
            node_port for port in range(31000, 32000) for node_port in lead(port, OTHER, 53, "UDP")
        ]
        before = processor_time()
        await nftables.replace([*lead(DNS, WEB, 53, "UDP"), *many])
        of_table = processor_time() - before
        services.put([*lead(DNS, OTHER, 53, "UDP"), *many])
        before = processor_time()
        await until_reconciled(node_ports)
        assert processor_time() - before < 5 * of_table + 1
        assert sender.ask() == "other"


async def test_flows_to_others_with_the_port_of_a_node_port_stay(crossing, node_ports_of):
    """Those that pass the node, and those to its loopback address: the very same go on."""
    shell(f"ip -n {crossing.services} route add 192.0.2.0/24 via {FACING[V4]}")
    kind = socket.SOCK_DGRAM
    services = Services(lead(DNS, WEB, 53, "UDP"))
    node_ports = node_ports_of(services)
    await node_ports.reconcile(KEY)  # else nobody asks the kernel to remember flows
    with (
        Answering(crossing, "beyond", OTHER[V4], DNS, kind),
        Answering(crossing, "local", "127.0.0.1", DNS, kind, at=None),
    ):
        assert crossing.ask(OTHER[V4], DNS, kind)[0] == "beyond"
        assert crossing.ask("127.0.0.1", DNS, kind, at=None)[0] == "local"
    before = await asyncio.to_thread(flows_to, DNS)
    assert before.keys() == {OTHER[V4], "127.0.0.1"}
    for wanted in (lead(DNS, OTHER, 53, "UDP"), ()):
        services.put(wanted)
        await until_reconciled(node_ports)
        assert await asyncio.to_thread(flows_to, DNS) == before


async def test_restart_leaves_exactly_what_is_wanted_then(crossing, node_ports_of):
    await nftables.replace([*lead(HTTP, WEB), *lead(31000, OTHER)])
    registry = CollectorRegistry()
    services = Services(lead(DNS, WEB, 53, "UDP"))
    restarted = node_ports_of(services, registry)
    assert led().keys() == {("tcp", HTTP), ("tcp", 31000)}  # until it knows what is wanted
    assert 0 < await restarted.reconcile(KEY) <= 60
    assert led() == {("udp", DNS): set(WEB)}
    assert registry.get_sample_value("kuryr_node_ports") == 2
    assert (
        registry.get_sample_value("kuryr_node_ports_transactions_total", {"outcome": "done"}) == 1
    )


async def test_table_that_somebody_flushed_is_put_back(crossing, node_ports_of):
    """Also for a socket that sent its first datagram while the table was not there."""
    wanted = [*lead(HTTP, WEB), *lead(DNS, WEB, 53, "UDP")]
    node_ports = node_ports_of(Services(wanted))
    await node_ports.reconcile(KEY)
    shell("nft flush ruleset")
    await nft.apply(FIREWALL)
    with (
        Answering(crossing, "web", WEB[V4], 53, socket.SOCK_DGRAM),
        Datagrams(crossing, NODE[V4], DNS) as old,
    ):
        assert old.ask() is None
        await until_reconciled(node_ports)
        assert led() == {("tcp", HTTP): set(WEB), ("udp", DNS): set(WEB)}
        assert old.ask() == "web"


def warnings_of(caplog):
    """What we tell besides what is told anyway, which depends on the level that others set.
    Threads of an earlier test may still have something to say."""
    return [
        record
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name.startswith("kuryr_k8s")
    ]


async def test_flows_that_could_not_be_corrected_are_so_the_next_time(
    crossing, node_ports_of, by_turns, caplog
):
    services = Services(lead(DNS, WEB, 53, "UDP"))
    nothing = socket.NETLINK_CRYPTO + 1  # the kernel has none
    node_ports = node_ports_of(services, flows=by_turns(NETFILTER, nothing, NETFILTER))
    await node_ports.reconcile(KEY)
    with (
        Answering(crossing, "web", WEB[V4], 53, socket.SOCK_DGRAM),
        Datagrams(crossing, NODE[V4], DNS) as old,
    ):
        assert old.ask() == "web"
        services.put(())
        await until_reconciled(node_ports)
        [record] = warnings_of(caplog)
        assert "Protocol not supported" in record.getMessage()
        assert old.ask() == "web"
        await until_reconciled(node_ports)
        assert old.ask() is None


async def test_many_changes_are_few_transactions(crossing, node_ports_of):
    registry, services, interval = CollectorRegistry(), Services(), USUAL.node_ports_interval
    loop = Controller("node-ports", node_ports_of(services, registry).reconcile, workers=1)
    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(loop.run())
        for number in range(100):
            services.put(lead(30000 + number, WEB))
            loop.queue.add_after(KEY, interval)
            await asyncio.sleep(0.01)
        await eventually(lambda: listed() and ("tcp", 30099) in led())
        elapsed = time.monotonic() - started
        running.cancel()
    done = registry.get_sample_value("kuryr_node_ports_transactions_total", {"outcome": "done"})
    assert 1 <= done <= elapsed / interval


def has_ended(group):
    """Whether no process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def test_killed_at_any_moment_leaves_one_of_the_two_tables():
    """Never half a table; and the next one replaces it."""
    for _ in range(6):
        program = [sys.executable, "-m", switching_tables.__name__]
        process = subprocess.Popen(program, stdout=subprocess.PIPE, start_new_session=True)
        process.stdout.read(1)  # it has begun
        time.sleep(random.uniform(0.0, 0.3))
        process.kill()
        process.wait()
        process.stdout.close()
        assert len(led()) in (1, switching_tables.MANY)
        asyncio.run(eventually(functools.partial(has_ended, process.pid)))  # its last nft, too
    asyncio.run(nftables.replace(lead(HTTP, WEB)))
    assert led() == {("tcp", HTTP): set(WEB)}
    assert listed(nftables.SUCCESSOR) is None


async def test_node_without_nft_says_so_and_goes_on(tmp_path, monkeypatch, node_ports_of):
    monkeypatch.setenv("PATH", str(tmp_path))
    registry = CollectorRegistry()
    node_ports = node_ports_of(Services(lead(HTTP, WEB)), registry)
    with pytest.raises(errors.Refused, match=r"cannot run nft .*No such file"):
        await node_ports.reconcile(KEY)
    assert not node_ports.working
    failed = {"outcome": "failed"}
    assert registry.get_sample_value("kuryr_node_ports_transactions_total", failed) == 1
    await remove()  # nothing to take away


async def test_node_ports_work_until_nft_fails_twice_in_a_row(
    crossing, node_ports_of, tmp_path, monkeypatch
):
    """The table before goes on leading."""
    node_ports = node_ports_of(Services(lead(HTTP, WEB)))
    await node_ports.reconcile(KEY)
    for _ in range(2):
        for works_then in (True, False):
            with monkeypatch.context() as patch:
                patch.setenv("PATH", str(tmp_path))
                with pytest.raises(errors.Refused):
                    await until_reconciled(node_ports)
            assert node_ports.working is works_then
        with Answering(crossing, "web", WEB[V4], 80):
            assert crossing.ask(NODE[V4], HTTP)[0] == "web"
        await until_reconciled(node_ports)
        assert node_ports.working


async def test_node_that_does_not_forward_what_node_ports_have_says_so(
    crossing, node_ports_of, caplog
):
    shell("sysctl -qw net.ipv4.ip_forward=0")
    services = Services(lead(HTTP, WEB[V6:]))
    node_ports = node_ports_of(services)
    await node_ports.reconcile(KEY)
    assert not warnings_of(caplog)
    services.put(lead(HTTP, WEB))
    await until_reconciled(node_ports)
    await until_reconciled(node_ports)
    [record] = warnings_of(caplog)
    assert "/proc/sys/net/ipv4/ip_forward is 0" in record.getMessage()


async def test_nft_that_fails_is_quoted_and_leaves_what_was(crossing):
    await nftables.replace(lead(HTTP, WEB))
    bad = [*lead(DNS, WEB), NodePort("TCP", 99999, WEB[V4], 80)]
    with pytest.raises(errors.KuryrError, match=r"nft ended with 1: .*99999"):
        await nftables.replace(bad)
    assert led() == {("tcp", HTTP): set(WEB)}


async def test_health_check_is_answered_at_every_address_while_node_ports_work(
    crossing, node_ports_of
):
    services = Services(lead(HTTP, WEB), health_check_port=32000, name="web")
    node_ports = node_ports_of(services)
    ready = {Key("default", "web")}
    checks = HealthChecks(services, node_ports.works_at, ready.__contains__)
    fresh = aiohttp.TCPConnector(force_close=True)
    async with asyncio.TaskGroup() as group, aiohttp.ClientSession(connector=fresh) as session:
        serving = group.create_task(checks.run())
        await checks.reconcile(KEY)
        v4, v6 = f"http://{NODE[V4]}:32000/", f"http://[{NODE[V6]}]:32000/healthz"
        async with session.get(v6) as answer:
            assert answer.status == 503
        await node_ports.reconcile(KEY)
        for url in (v4, v6):
            async with session.get(url) as answer:
                assert answer.status == 200
                assert answer.headers["X-Load-Balancing-Endpoint-Weight"] == "1"
                assert await answer.json() == {
                    "service": {"namespace": "default", "name": "web"},
                    "localEndpoints": 1,
                    "serviceProxyHealthy": True,
                }
        ready.clear()
        async with session.get(v4) as answer:
            assert answer.status == 503
            found = await answer.json()
            assert (found["localEndpoints"], found["serviceProxyHealthy"]) == (0, True)
        services.clear()
        await checks.reconcile(KEY)
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(v4)
        serving.cancel()
