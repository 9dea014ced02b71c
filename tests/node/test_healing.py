"""A running Pod gets back what it has lost, with real namespaces and a real ovsdb-server.

By cause and by kind of Pod. Nothing here waits for a periodic look.
"""

import asyncio
import contextlib
import json
import subprocess
import sys

import pytest

from kuryr_k8s.cni.netlink.parked_pairs import lower
from kuryr_k8s.cni.ovs.switch import OURS
from tests.kit.node.fakes import kuryrport, ovs_vif
from tests.node.parked_ports import VIF, end, kind, parked, parked_rows
from tests.node.workbench import Database, a_node, eventually, ip, path, shell

ADDRESSES = {"10.77.0.11/16", "fd77::10/64"}
KINDS = ["ordinary", "pooled"]


@pytest.fixture
def sandbox(namespaces):
    return namespaces()


@contextlib.asynccontextmanager
async def running_pod(node, sandbox, of):
    """A Pod with its network; of the pool, or not."""
    node.acknowledgements._look_again = 600.0
    if of == "pooled":
        await parked(node, VIF)
    node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
    assert (await node.cni("ADD", netns=path(sandbox)))[0] == 0
    assert kind(end("eth0", netns=sandbox)) == ("macvlan" if of == "pooled" else "veth")
    yield


async def has_its_network(node, sandbox):
    await eventually(lambda: _is_whole(node, sandbox))
    assert (await node.cni("CHECK", netns=path(sandbox)))[0] == 0


def _is_whole(node, sandbox):
    rows = [row for row in node.switch.interfaces() if row.external_ids.get(OURS) == "c1"]
    links = [link for link in ip("addr", "show", netns=sandbox) if link["ifname"] == "eth0"]
    if not links or not rows or not rows[0].installed or node.binding.restored():
        return False
    [link] = links
    found = {f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"] if a["scope"] == "global"}
    routes = {(r["dst"], r.get("gateway")) for r in ip("route", netns=sandbox)}
    routes |= {(r["dst"], r.get("gateway")) for r in ip("-6", "route", netns=sandbox)}
    wanted = {("default", "10.77.0.1"), ("10.99.0.0/16", "10.77.0.254"), ("default", "fd77::1")}
    return (
        link["address"] == VIF.address
        and link["mtu"] == 1442
        and "UP" in link["flags"]
        and found == ADDRESSES
        and wanted <= routes
        and "UP" in end(VIF.vif_name)["flags"]
    )


ALL_PORTS = (
    {"op": "update", "table": "Bridge", "where": [], "row": {"ports": ["set", []]}},
    {"op": "delete", "table": "Port", "where": []},
)


async def remove_rows(database, node):
    """As ``ovs-vsctl del-port`` does; the daemon has noticed."""
    await lose_rows(database, node, *ALL_PORTS)


async def lose_rows(database, node, *operations):
    """Make the daemon lose its rows; it has noticed, and may have made others already."""
    before = {row.row for row in node.switch.interfaces()}
    transact(database, *operations)
    await eventually(lambda: before.isdisjoint(row.row for row in node.switch.interfaces()))


async def search(node):
    """The periodic look at everything."""
    node.healing._searched_at = node.healing._looked_at = float("-inf")
    await node.healing._controller.step(node.healing._node)


def transact(database, *operations):
    text = json.dumps(["Open_vSwitch", *operations])
    command = ["ovsdb-client", "transact", f"unix:{database.socket}", text]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def renew(database):
    """Another, empty conf.db in the place of the old one."""
    database.stop()
    (database.directory / "conf.db").unlink()
    (database.directory / ".conf.db.~lock~").unlink(missing_ok=True)
    other = Database(database.directory)
    other.start()
    database.process = other.process


async def test_add_sets_up_what_was_made_again_from_an_add_that_ended_half_way(
    tmp_path, database, remote, sandbox
):
    """The daemon died between making the veth and setting it up: its row says nothing of that."""
    async with a_node(tmp_path, remote) as node, running_pod(node, sandbox, "ordinary"):
        node.controller.enabled = False
        shell(f"ip -n {sandbox} addr flush dev eth0")
        await remove_rows(database, node)
        await eventually(node.binding.attachments)
        async with asyncio.TaskGroup() as group:
            add = group.create_task(node.cni("ADD", netns=path(sandbox)))
            await eventually(lambda: node.attachments.adds.plugging("u1"))
            node.controller.enabled = True
            for row in node.switch.interfaces():
                node.controller.seen.put_nowait(row.row)
        assert (await add)[0] == 0
        await has_its_network(node, sandbox)


@pytest.mark.parametrize("of", KINDS)
async def test_deleted_row_is_made_again(tmp_path, database, remote, sandbox, of):
    async with a_node(tmp_path, remote) as node, running_pod(node, sandbox, of):
        index = end("eth0", netns=sandbox)["ifindex"]
        await remove_rows(database, node)
        await has_its_network(node, sandbox)
        assert end("eth0", netns=sandbox)["ifindex"] == index  # the very same interface
        assert [row.attached for row in node.switch.interfaces()] == [True]


@pytest.mark.parametrize("of", KINDS)
async def test_external_ids_that_somebody_cleared_are_written_again(
    tmp_path, database, remote, sandbox, of
):
    async with a_node(tmp_path, remote) as node, running_pod(node, sandbox, of):
        where = [["name", "==", VIF.vif_name]]
        empty = {"external_ids": ["map", []]}
        cleared = {"op": "update", "table": "Interface", "where": where, "row": empty}
        await lose_rows(database, node, cleared)
        await has_its_network(node, sandbox)


@pytest.mark.parametrize("of", KINDS)
async def test_rows_are_made_again_in_a_new_database_once_it_has_its_bridge(
    tmp_path, database, remote, sandbox, of
):
    async with a_node(tmp_path, remote) as node, running_pod(node, sandbox, of):
        old = node.switch.identity()
        renew(database)
        await eventually(lambda: node.switch.connected.is_set() and not node.switch.interfaces())
        database.fill()
        await has_its_network(node, sandbox)
        assert node.switch.identity() != old
        assert node.switch.identity() in end(VIF.vif_name)["ifalias"]
        assert await node.cni("DEL", netns=path(sandbox)) == (0, None)
        if of == "pooled":
            await eventually(lambda: parked_rows(node))
        else:
            assert not node.links.exists(VIF.vif_name)


@pytest.mark.parametrize("of", KINDS)
async def test_database_that_was_replaced_while_the_daemon_was_down_gets_its_rows(
    tmp_path, database, remote, sandbox, of
):
    async with a_node(tmp_path, remote) as node, running_pod(node, sandbox, of):
        pass
    renew(database)
    database.fill()
    async with a_node(tmp_path, remote) as restarted:
        restarted.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        await has_its_network(restarted, sandbox)


@pytest.mark.parametrize("of", KINDS)
async def test_row_that_was_deleted_while_the_daemon_was_down_is_made_again(
    tmp_path, database, remote, sandbox, of
):
    async with a_node(tmp_path, remote) as node, running_pod(node, sandbox, of):
        pass
    transact(database, *ALL_PORTS)
    async with a_node(tmp_path, remote, pods=[kuryrport("web", "u1", {"eth0": VIF})]) as restarted:
        await has_its_network(restarted, sandbox)


@pytest.mark.parametrize("of", KINDS)
async def test_deleted_link_is_made_again(tmp_path, remote, sandbox, of):
    async with a_node(tmp_path, remote) as node, running_pod(node, sandbox, of):
        shell(f"ip link del {VIF.vif_name}")
        await has_its_network(node, sandbox)


async def test_interface_that_was_deleted_in_a_pod_of_the_pool_is_made_again(
    tmp_path, remote, sandbox
):
    async with a_node(tmp_path, remote) as node, running_pod(node, sandbox, "pooled"):
        shell(f"ip -n {sandbox} link del eth0")
        await has_its_network(node, sandbox)
        assert kind(end("eth0", netns=sandbox)) == "macvlan"


@pytest.mark.parametrize("of", KINDS)
async def test_interface_that_a_pod_set_down_or_renamed_is_its_own_affair(
    tmp_path, remote, sandbox, of
):
    async with a_node(tmp_path, remote) as node, running_pod(node, sandbox, of):
        index = end("eth0", netns=sandbox)["ifindex"]
        shell(f"ip -n {sandbox} link set eth0 down")
        shell(f"ip -n {sandbox} link set eth0 name own0")
        shell(f"ip -n {sandbox} link set own0 up")
        await search(node)
        assert end("own0", netns=sandbox)["ifindex"] == index


@pytest.mark.parametrize("of", KINDS)
async def test_row_does_not_come_back_after_del(tmp_path, database, remote, sandbox, of):
    async with a_node(tmp_path, remote) as node, running_pod(node, sandbox, of):
        restore = node.binding.restore
        begun, go = asyncio.Event(), asyncio.Event()

        async def late(lost):
            begun.set()
            await go.wait()
            await restore(lost)

        node.binding.restore = late
        await remove_rows(database, node)
        await begun.wait()
        async with asyncio.TaskGroup() as group:
            deleted = group.create_task(node.cni("DEL", netns=path(sandbox)))
            await eventually(_is_asked)
            go.set()
        assert deleted.result() == (0, None)
        assert not node.attachments.all()
        await eventually(lambda: ip("link", "show", netns=sandbox)[1:] == [])
        await search(node)
        assert not node.attachments.all()


def _is_asked():
    return any(task.get_name() == "cni-request" for task in asyncio.all_tasks())


@pytest.mark.parametrize("of", KINDS)
async def test_del_of_a_pod_whose_row_is_lost_leaves_nothing(
    tmp_path, database, remote, sandbox, of
):
    async with a_node(tmp_path, remote) as node, running_pod(node, sandbox, of):

        async def never(_lost):
            pass

        node.binding.restore = never
        renew(database)
        await eventually(lambda: node.switch.connected.is_set() and not node.switch.interfaces())
        database.fill()
        assert await node.cni("DEL", netns=path(sandbox)) == (0, None)
        assert ip("link", "show", netns=sandbox)[1:] == []


async def test_new_sandbox_keeps_the_port_of_which_the_old_one_lost_the_row(
    tmp_path, database, remote, namespaces
):
    old, new = namespaces(), namespaces()
    async with a_node(tmp_path, remote) as node, running_pod(node, old, "ordinary"):
        await remove_rows(database, node)
        assert (await node.cni("ADD", "c2", netns=path(new)))[0] == 0
        await search(node)
        assert [row.external_ids[OURS] for row in node.switch.interfaces()] == ["c2"]
        assert (await node.cni("CHECK", "c2", netns=path(new)))[0] == 0


async def test_nothing_is_made_again_without_a_kuryrport_or_a_namespace(
    tmp_path, database, remote, namespaces
):
    one, other = namespaces(), namespaces()
    async with a_node(tmp_path, remote) as node:
        keys = [node.cache.put(kuryrport(f"p{n}", f"u{n}", {"eth0": ovs_vif(n)})) for n in (1, 2)]
        for n, name in ((1, one), (2, other)):
            about = {"pod": f"p{n}", "uid": f"u{n}"}
            assert (await node.cni("ADD", f"c{n}", netns=path(name), **about))[0] == 0
        shell(f"ip netns del {other}")
        await eventually(lambda: not node.links.exists(ovs_vif(2).vif_name))
        node.cache.change(keys[0], deleting=True)
        await remove_rows(database, node)
        await search(node)
        assert not node.switch.interfaces()


async def test_links_of_another_daemon_on_this_machine_are_left_alone(
    tmp_path, remote, namespaces
):
    held = namespaces()
    name = VIF.vif_name
    shell(f"ip link add {name} type veth peer name eth0 netns {held}")
    text = f"kuryr:another-database:c1 u9 eth0 eth0 {path(held)}"
    subprocess.run(["ip", "link", "set", name, "alias", text], check=True)  # noqa: ASYNC221
    async with a_node(tmp_path, remote) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        await search(node)
        assert not node.switch.interfaces()
        assert end(name)["ifalias"] == text


@pytest.mark.parametrize("of", KINDS)
async def test_alias_of_an_earlier_version_is_completed_at_the_start(
    tmp_path, database, remote, sandbox, of
):
    async with a_node(tmp_path, remote) as node, running_pod(node, sandbox, of):
        user = "parked" if of == "pooled" else "c1"
        shell(f"ip link set {VIF.vif_name} alias kuryr:{node.switch.identity()}:{user}")
    async with a_node(tmp_path, remote, pods=[kuryrport("web", "u1", {"eth0": VIF})]) as restarted:
        await eventually(lambda: "u1 eth0" in end(VIF.vif_name)["ifalias"])
        await remove_rows(database, restarted)
        await has_its_network(restarted, sandbox)


async def test_port_that_a_pod_has_is_not_parked(tmp_path, database, remote, sandbox):
    async with a_node(tmp_path, remote) as node, running_pod(node, sandbox, "pooled"):

        async def never(_lost):
            pass

        node.binding.restore = never
        index = end(lower(VIF.vif_name))["ifindex"]
        await remove_rows(database, node)
        await eventually(lambda: not node.switch.interfaces())
        for _ in range(3):
            await node.parking.step(node.healing._node)
        assert not node.switch.interfaces()
        assert end(lower(VIF.vif_name))["ifindex"] == index


def active_marks(node):
    return [
        patch["status"]["vifs"]["eth0"]["vif"]["versioned_object.data"]["active"]
        for plural, _, patch, _ in node.api.patches
        if plural == "kuryrports"
    ]


async def test_active_and_events_follow_ovn(tmp_path, database, remote, sandbox):
    async with a_node(tmp_path, remote) as node, running_pod(node, sandbox, "ordinary"):
        node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1, active=True)}))
        node.api.patches.clear()
        node.controller.enabled = False
        await remove_rows(database, node)
        await eventually(lambda: active_marks(node)[-1:] == [False])
        assert (await node.cni("CHECK", netns=path(sandbox)))[0] == 1
        await eventually(lambda: reasons(node) == ["KuryrInterfaceLost"])
        node.cache.put(kuryrport("web", "u1", {"eth0": ovs_vif(1, active=False)}))
        node.controller.enabled = True
        await node.controller.mark()
        await eventually(lambda: active_marks(node)[-1:] == [True])
        await eventually(lambda: reasons(node) == ["KuryrInterfaceLost", "KuryrInterfaceRestored"])
        lost, back = node.api.events
        assert (lost["regarding"]["kind"], lost["regarding"]["uid"]) == ("Pod", "u1")
        assert (lost["type"], back["type"]) == ("Warning", "Normal")


def reasons(node):
    return [event["reason"] for event in node.api.events]


async def test_many_pods_at_once_are_few_transactions_and_no_storm_of_events(
    tmp_path, database, remote, namespaces
):
    count = 40
    sandboxes = [namespaces() for _ in range(count)]
    async with a_node(tmp_path, remote) as node:
        for n, name in enumerate(sandboxes, 1):
            node.cache.put(kuryrport(f"p{n}", f"u{n}", {"eth0": ovs_vif(n)}))
            about = {"pod": f"p{n}", "uid": f"u{n}"}
            assert (await node.cni("ADD", f"c{n}", netns=path(name), **about))[0] == 0
        renew(database)
        await eventually(lambda: node.switch.connected.is_set() and not node.switch.interfaces())
        database.fill()
        await eventually(
            lambda: (
                sum(row.installed for row in node.switch.interfaces()) == count
                and not node.binding.restored()
            )
        )
        await eventually(lambda: "KuryrInterfaceRestored" in reasons(node))
        assert len(node.api.events) <= 4
        assert {event["regarding"]["kind"] for event in node.api.events} == {"Node"}


async def test_links_of_the_node_are_heard_of_without_the_capability_for_those_of_pods():
    process = await asyncio.create_subprocess_exec(
        *("setpriv", "--bounding-set", "-net_broadcast", "--inh-caps", "-net_broadcast"),
        *(sys.executable, "-m", "tests.node.link_listener"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert await process.stdout.readline() == b"listening\n"
        shell("ip link add gone0 type veth peer name gone1")
        shell("ip link del gone0")
        assert (await process.stdout.readline()).strip() in (b"gone0", b"gone1")
    finally:
        process.kill()
        await process.wait()


async def test_daemon_that_dies_while_it_makes_a_link_again_is_made_up_for_by_the_next(
    tmp_path, database, remote, sandbox
):
    """It dies before the Pod's end has its addresses and is up."""
    died = asyncio.Event()
    async with a_node(tmp_path, remote) as node, running_pod(node, sandbox, "ordinary"):
        create = node.links.create

        async def create_and_die(*arguments):
            await create(*arguments)
            shell(f"ip -n {sandbox} link set eth0 down")
            shell(f"ip -n {sandbox} address flush dev eth0")
            died.set()
            await asyncio.Event().wait()

        node.links.create = create_and_die
        shell(f"ip link del {VIF.vif_name}")
        await died.wait()
    async with a_node(tmp_path, remote) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        async with asyncio.timeout(30):
            await has_its_network(node, sandbox)


async def test_namespace_with_a_long_path_is_found_by_its_name_when_the_database_is_new(
    tmp_path, database, remote, sandbox
):
    """The alias of a link holds no more than 255 bytes."""
    long = tmp_path / ("directory" * 20) / sandbox
    long.parent.mkdir()
    long.touch()
    shell(f"mount --bind {path(sandbox)} {long}")
    try:
        async with a_node(tmp_path, remote) as node:
            node.acknowledgements._look_again = 600.0
            node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
            assert (await node.cni("ADD", netns=str(long)))[0] == 0
            renew(database)
            await eventually(
                lambda: node.switch.connected.is_set() and not node.switch.interfaces()
            )
            database.fill()
            async with asyncio.timeout(30):
                await eventually(lambda: _is_whole(node, sandbox))
            assert [attachment.netns for attachment in node.binding.attachments()] == [str(long)]
    finally:
        shell(f"umount {long}")
