"""VIFVlanNested on a kernel that has VLANs: run in a virtual machine, see test_vm_node.py."""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import random
import subprocess
from pathlib import Path

import pytest
from oslo_config import cfg

from kuryr_k8s import config
from kuryr_k8s.cni.bindings.base import (
    BindingError,
    Bindings,
    Claim,
    NamespaceGone,
)
from kuryr_k8s.cni.bindings.nested import NestedRecord
from kuryr_k8s.cni.bindings.vlan import VlanBinding
from kuryr_k8s.cni.netlink import Links, Vlan
from kuryr_k8s.cni.patience import USUAL, Patience
from kuryr_k8s.cni.pods.adds import Adds
from kuryr_k8s.cni.pods.attachments import Attachments
from kuryr_k8s.cni.pods.healing import Healing
from kuryr_k8s.cni.pods.kuryrports import KuryrPorts
from kuryr_k8s.cni.pods.outages import Outages
from kuryr_k8s.k8s.events import EventRecorder
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.vif import COVERED
from tests.kit.node.fakes import Api, Cache, kuryrport, vlan_vif
from tests.node.workbench import (
    NODE,
    PATIENCE,
    attachment,
    bare_context,
    eventually,
    ip,
    shell,
)

KILLS, MOST = 8, 30  # of a daemon: more of them until one came in between


@pytest.fixture
def trunk(namespaces):
    """eth0 with a default route, and what is behind it: VLANs 1 and 2 with their gateways."""
    behind = namespaces()
    shell(f"ip link add eth0 mtu 1442 type veth peer name eth0 netns {behind}")
    shell("ip addr add 192.0.2.2/24 dev eth0")
    shell("ip link set eth0 up")
    shell("ip route add default via 192.0.2.1")
    shell(f"ip -n {behind} link set eth0 up")
    return behind


@pytest.fixture
def gateway(trunk):
    for number in (1, 2):
        shell(f"ip -n {trunk} link add link eth0 name v{number} type vlan id {number}")
        shell(f"ip -n {trunk} addr add 10.77.0.1/16 dev v{number}")
        shell(f"ip -n {trunk} addr add fd77::1/64 dev v{number} nodad")
        shell(f"ip -n {trunk} link set v{number} up")
    return trunk


@pytest.fixture
def state(tmp_path):
    return tmp_path / "vlan"


@pytest.fixture
def daemon(state, trunk):
    """Makes the binding as a daemon does at its start: what it knows is in its directory."""
    links = Links()
    yield lambda patience=USUAL: make(state, links, patience)
    links.close()


def make(state, links, patience=USUAL):
    conf = cfg.ConfigOpts()
    conf.register_opts(config.GROUPS["binding"], group="binding")
    conf.set_override("state_dir", str(state), group="binding")
    conf([])
    return VlanBinding(bare_context(conf, links, patience=patience))


def pod_link(netns):
    return next((link for link in ip("-d", "link", netns=netns) if link["ifname"] == "eth0"), None)


def held(name):
    """The namespace lives as long as a process is in it, or this file is open."""
    return Path(f"/run/netns/{name}").open()


def remove_namespace(name):
    subprocess.run(["ip", "netns", "del", name], check=True)


def answers(address, netns):
    """Does it answer a ping?"""
    ping = ["ip", "netns", "exec", netns, "ping", "-c", "1", "-W", "5", address]
    return subprocess.run(ping, check=False, stdout=subprocess.DEVNULL).returncode == 0


async def gone(binding, vlan):
    """The kernel takes the interfaces of a dead namespace down a moment later."""
    await eventually(lambda: not binding._nested.exists(vlan, 0))


async def test_pod_has_a_vlan_interface_and_the_node_has_none(daemon, gateway, namespaces):
    netns, binding, vif = namespaces(), daemon(), vlan_vif(1)
    result = await binding.connect(attachment(netns), vif)
    await binding.ready(attachment(netns), vif)
    link = pod_link(netns)
    assert link["linkinfo"]["info_kind"] == "vlan"
    assert link["linkinfo"]["info_data"]["id"] == 1
    assert (link["address"], link["mtu"]) == (vif.address, 1442)
    assert "UP" in link["flags"]
    assert not [each for each in ip("-d", "link") if "vlan" in json.dumps(each.get("linkinfo"))]
    shown = [f"{a['local']}/{a['prefixlen']}" for a in ip("addr", netns=netns)[-1]["addr_info"]]
    assert {"10.77.0.11/16", "fd77::10/64"} <= {*shown}
    assert [i.name for i in result.interfaces] == ["eth0", "eth0"]
    assert [i.sandbox for i in result.interfaces] == ["", f"/run/netns/{netns}"]
    await eventually(lambda: answers("10.77.0.1", netns))
    await eventually(lambda: answers("fd77::1", netns))
    await binding.check(attachment(netns), vif)


async def test_runtime_that_takes_no_vlans_finds_a_macvlan_and_nothing_else(
    daemon, gateway, namespaces
):
    netns, binding = namespaces(), daemon()
    vif = dataclasses.replace(vlan_vif(1), plugin=COVERED)
    await binding.connect(attachment(netns), vif)
    await binding.ready(attachment(netns), vif)
    link = pod_link(netns)
    assert link["linkinfo"]["info_kind"] == "macvlan"
    assert (link["address"], link["mtu"]) == (vif.address, 1442)
    addressed = [each["ifname"] for each in ip("addr", netns=netns) if each["addr_info"]]
    assert addressed == ["lo", "eth0"]
    await eventually(lambda: answers("10.77.0.1", netns))
    await eventually(lambda: answers("fd77::1", netns))
    await binding.check(attachment(netns), vif)
    again = daemon()  # which has the records alone
    async with healing(again, vif) as api:
        shell(f"ip -n {netns} link del eth0")
        await restored(again, netns, api)
    await again.disconnect(attachment(netns))
    assert [each["ifname"] for each in ip("link", netns=netns)] == ["lo"]


async def test_connecting_again_changes_nothing(daemon, gateway, namespaces):
    netns, binding, vif = namespaces(), daemon(), vlan_vif(1)
    first = await binding.connect(attachment(netns), vif)
    before = pod_link(netns)["ifindex"]
    assert await daemon().connect(attachment(netns), vif) == first
    assert pod_link(netns)["ifindex"] == before


async def test_connecting_again_prepares_what_a_dead_daemon_only_made(daemon, gateway, namespaces):
    netns, binding, vif = namespaces(), daemon(), vlan_vif(1)
    await binding.connect(attachment(netns), vif)
    shell(f"ip -n {netns} addr flush dev eth0")
    again = daemon()
    await again.connect(attachment(netns), vif)
    await again.ready(attachment(netns), vif)
    await again.check(attachment(netns), vif)
    await eventually(lambda: answers("10.77.0.1", netns))


async def test_disconnect_removes_interface_and_record_and_may_be_repeated(
    daemon, state, namespaces
):
    netns, binding, vif = namespaces(), daemon(), vlan_vif(1)
    await binding.connect(attachment(netns), vif)
    await binding.disconnect(attachment(netns))
    await binding.disconnect(attachment(netns))
    assert pod_link(netns) is None
    assert not binding.attachments()
    assert not list(state.iterdir())
    with pytest.raises(BindingError):
        await binding.check(attachment(netns), vif)


async def test_namespace_whose_path_is_gone_is_still_cleaned(daemon, namespaces):
    netns, binding = namespaces(), daemon()
    await binding.connect(attachment(netns), vlan_vif(1))
    with held(netns):
        remove_namespace(netns)
        assert not binding.vanished(attachment(netns))
        await daemon().disconnect(attachment(netns))
        assert not binding._nested.exists(Vlan(link="eth0", vlan_id=1), 0)


async def test_interface_vanishes_with_its_namespace(daemon, namespaces):
    netns, binding = namespaces(), daemon()
    await binding.connect(attachment(netns), vlan_vif(1))
    assert not binding.vanished(attachment(netns))
    remove_namespace(netns)
    await gone(binding, Vlan(link="eth0", vlan_id=1))
    assert binding.vanished(attachment(netns))
    await binding.disconnect(attachment(netns))
    assert not binding.attachments()


async def test_record_outlives_the_daemon(daemon, gateway, namespaces):
    netns, binding, vif = namespaces(), daemon(), vlan_vif(1)
    await binding.connect(attachment(netns), vif)
    assert not daemon().working(attachment(netns))
    await binding.ready(attachment(netns), vif)
    again = daemon()
    assert list(again.attachments()) == [attachment(netns)]
    assert again.working(attachment(netns))


@contextlib.asynccontextmanager
async def healing(binding, vif=None):
    """The loop that heals, with the Pod of ``attachment`` in its cache."""
    cache, bindings, settled = Cache(), Bindings({"VIFVlanNested": binding}), asyncio.Event()
    cache.put(kuryrport("web", "u1", {"eth0": vif or vlan_vif(1)}))
    settled.set()
    api = Api(cache)
    kuryrports = KuryrPorts(cache, api)
    attachments = Attachments(
        bindings, kuryrports, adds=Adds(), settled=settled, add_timeout=PATIENCE
    )
    outages = Outages(NODE, EventRecorder(api, "test", "node1"))
    events = binding._links.events
    async with asyncio.TaskGroup() as group:
        part = Healing(NODE, bindings, attachments, kuryrports, events, outages)
        tasks = [group.create_task(loop.run()) for loop in part.loops()]
        yield api
        for task in tasks:
            task.cancel()


def reasons(api):
    return [event["reason"] for event in api.events]


async def test_interface_that_was_deleted_in_the_pod_is_made_again(daemon, gateway, namespaces):
    netns, binding = namespaces(), daemon()
    await connected(binding, netns)
    async with healing(binding) as api:
        await eventually(lambda: binding.states() == {attachment(netns): True})
        shell(f"ip -n {netns} link del eth0")
        await restored(binding, netns, api)


async def test_interface_is_made_again_when_its_link_is_back(daemon, gateway, namespaces):
    netns, binding = namespaces(), daemon()
    await connected(binding, netns)
    shell("ip link set eth0 down")  # Linux renames no link that is up before 6.2
    shell("ip link set eth0 name away")
    shell(f"ip -n {netns} link del eth0")
    async with healing(binding) as api:
        await eventually(lambda: binding.states() == {attachment(netns): False})
        shell("ip link set away name eth0")
        shell("ip link set eth0 up")
        await restored(binding, netns, api)


async def connected(binding, netns):
    await binding.connect(attachment(netns), vlan_vif(1))
    await binding.ready(attachment(netns), vlan_vif(1))


async def restored(binding, netns, api):
    """The Pod has its network, and users have heard of it."""
    vif = vlan_vif(1)
    await eventually(lambda: (pod_link(netns) or {}).get("address") == vif.address)
    await eventually(lambda: answers("10.77.0.1", netns))
    await eventually(lambda: answers("fd77::1", netns))
    await eventually(lambda: reasons(api)[-1:] == ["KuryrInterfaceRestored"])
    await binding.check(attachment(netns), vif)
    assert binding.working(attachment(netns))


async def test_interface_is_not_made_again_without_its_namespace(daemon, gateway, namespaces):
    netns, binding, vif = namespaces(), daemon(), vlan_vif(1)
    await binding.connect(attachment(netns), vif)
    await binding.ready(attachment(netns), vif)
    remove_namespace(netns)
    await gone(binding, Vlan(link="eth0", vlan_id=1))
    claim = Claim(key=Key("default", "web"), pod_uid="u1", name="eth0", vif=vif)
    assert await binding.lost([claim]) == []


async def test_what_another_has_is_neither_taken_nor_removed(daemon, namespaces):
    mine, other = namespaces(), namespaces()
    shell(f"ip link add link eth0 name foreign netns {other} type vlan id 1")
    binding = daemon()
    with pytest.raises(BindingError, match="has an interface already"):
        await binding.connect(attachment(mine), vlan_vif(1))
    with pytest.raises(BindingError, match="cannot find the interface"):
        await binding.disconnect(attachment(mine))
    assert "foreign" in str(ip("link", netns=other))
    remove_namespace(other)
    await gone(binding, Vlan(link="eth0", vlan_id=1))
    await binding.connect(attachment(mine), vlan_vif(1))


async def test_number_of_a_dead_namespace_means_another_one(daemon, namespaces):
    old, new = namespaces(), namespaces()
    binding, vlan = daemon(), Vlan(link="eth0", vlan_id=1)
    await binding.connect(attachment(old, "old"), vlan_vif(1))
    remove_namespace(old)
    await gone(binding, vlan)
    await binding.connect(attachment(new, "new"), vlan_vif(1))
    numbers = {record.number for record in binding._records.all()}
    assert len(numbers) == 1, "the kernel gives the number anew"
    await binding.disconnect(attachment(old, "old"))
    assert pod_link(new)
    assert list(binding.attachments()) == [attachment(new, "new")]


async def test_record_without_interface_is_removed(daemon, namespaces):
    netns, binding = namespaces(), daemon()
    number = await binding._nested.number(f"/run/netns/{netns}")
    vlan = Vlan(link="eth0", vlan_id=1)
    record = NestedRecord(
        attachment=attachment(netns), nested=vlan, number=number, name="tap1", port_id="p"
    )
    binding._records.put(record)
    again = daemon()
    assert again.vanished(attachment(netns))
    await again.disconnect(attachment(netns))
    assert not daemon().attachments()


async def test_missing_namespace_and_missing_link_are_said(daemon, namespaces):
    binding = daemon()
    with pytest.raises(NamespaceGone):
        await binding.connect(attachment("nowhere"), vlan_vif(1))
    assert not binding.attachments()
    shell("ip route del default")
    with pytest.raises(BindingError, match="no default route"):
        await daemon().connect(attachment(namespaces()), vlan_vif(1))


async def test_gateway_that_never_answers_does_not_hold_a_pod_up(daemon, namespaces):
    netns, binding = namespaces(), daemon(Patience(gateway=0.5))
    await binding.connect(attachment(netns), vlan_vif(1))
    await binding.ready(attachment(netns), vlan_vif(1))
    assert binding.working(attachment(netns))


async def test_addresses_are_announced_after_the_port_forwards(daemon, gateway, namespaces):
    """A neighbour that remembers another MAC learns the new one, although the port forwarded
    nothing when the link went up.
    """
    shell(f"ip -n {gateway} link set v1 down")
    netns, binding, vif = namespaces(), daemon(Patience(gateway=PATIENCE)), vlan_vif(1)
    await binding.connect(attachment(netns), vif)
    async with asyncio.TaskGroup() as group:
        group.create_task(binding.ready(attachment(netns), vif))
        await eventually(lambda: "UP" in pod_link(netns)["flags"])
        shell(f"ip -n {gateway} link set v1 up")
        shell(f"ip -n {gateway} addr replace fd77::1/64 dev v1 nodad")
        stale = "lladdr fa:16:3e:ff:ff:ff nud stale dev v1"
        shell(f"ip -n {gateway} neigh replace 10.77.0.11 {stale}")
    neighbour = ("neigh", "show", "10.77.0.11")
    await eventually(lambda: vif.address in str(ip(*neighbour, netns=gateway)))


async def test_kill_at_any_moment_leaves_nothing_that_is_not_recorded(daemon, state, namespaces):
    netns, vlan, chance = namespaces(), Vlan(link="eth0", vlan_id=1), random.Random(5)
    processes = multiprocessing.get_context("forkserver")  # it has imported everything once
    processes.set_forkserver_preload([__name__])
    interrupted, longest = 0, 0.8
    for number in itertools.count(1):
        started = processes.Event()
        child = processes.Process(target=plug_for_ever, args=(state, netns, started))
        child.start()
        while not await asyncio.to_thread(started.wait, 1.0):
            assert child.is_alive(), "the daemon has ended by itself"
        await asyncio.sleep(chance.uniform(0, longest))
        child.kill()
        await asyncio.to_thread(child.join)
        binding = daemon()
        interrupted += len(binding.attachments())
        if binding._nested.exists(vlan, 0):
            assert list(binding.attachments()) == [attachment(netns)]
        for each in list(binding.attachments()):
            await binding.disconnect(each)
        assert not binding._nested.exists(vlan, 0)
        assert not list(state.glob("*"))
        if not interrupted:
            longest = min(1.5 * longest, 20.0)  # where all takes longer
            assert number < MOST, "no kill came in between"
        elif number >= KILLS:
            break


def plug_for_ever(state, netns, started):
    """What the test above kills."""
    asyncio.run(_plug_for_ever(state, netns, started))


async def _plug_for_ever(state, netns, started):
    binding = make(state, Links())
    started.set()
    while True:
        await binding.connect(attachment(netns), vlan_vif(1))
        await binding.disconnect(attachment(netns))
