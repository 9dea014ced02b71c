"""Two watches, of KuryrPorts and of the KuryrPortPool, tell of one port in any order."""

import asyncio

import pytest

from kuryr_k8s.cni.netlink.parked_pairs import lower
from kuryr_k8s.cni.ovs.switch import OURS
from tests.kit.node.fakes import kuryrport
from tests.node.parked_ports import VIF, end, kind, parked, parked_rows, pool
from tests.node.workbench import a_node, eventually, path


@pytest.fixture
def sandbox(namespaces):
    return namespaces()


async def test_pod_whose_port_is_not_known_as_parked_is_plugged_in_the_ordinary_way(
    tmp_path, remote, sandbox
):
    async with a_node(tmp_path, remote) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        assert (await node.cni("ADD", netns=path(sandbox)))[0] == 0
        [row] = node.switch.interfaces()
        node.pool.name({VIF: "keep"})  # the other watch comes late
        await eventually(lambda: pool(node).parked == {VIF.id})
        assert [interface.row for interface in node.switch.interfaces()] == [row.row]
        assert (await node.cni("CHECK", netns=path(sandbox)))[0] == 0
        assert await node.cni("DEL") == (0, None)
        await eventually(lambda: len(parked_rows(node)) == 1)


async def test_pod_whose_port_is_marked_to_remove_gets_it(tmp_path, remote, sandbox):
    async with a_node(tmp_path, remote) as node, asyncio.TaskGroup() as group:
        await parked(node, VIF)
        async with node.parked.held(VIF.vif_name):  # the daemon is about to unplug it
            node.pool.name({VIF: "remove"})
            node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
            adding = group.create_task(node.cni("ADD", netns=path(sandbox)))
            await eventually(lambda: node.attachments.adds.plugging("u1"))
        assert (await adding)[0] == 0
        assert (await node.cni("CHECK", netns=path(sandbox)))[0] == 0
        assert len(node.attachments.all()) == 1


@pytest.mark.parametrize("point", ["before the pair", "before the row", "before OVN"])
async def test_pod_whose_port_is_being_parked_gets_it(tmp_path, remote, sandbox, point):
    """The ADD comes in the middle: it takes over what is there then, or waits for it."""
    async with a_node(tmp_path, remote) as node, asyncio.TaskGroup() as group:
        reached, go_on = asyncio.Event(), asyncio.Event()

        def gated(function):
            async def call(*arguments):
                reached.set()
                await go_on.wait()
                return await function(*arguments)

            return call

        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        if point == "before the pair":
            node.links.park = gated(node.links.park)
        elif point == "before the row":
            node.switch.add_ports = gated(node.switch.add_ports)
        else:
            node.controller.enabled = False
        node.pool.name({VIF: "keep"})
        if point == "before OVN":
            await eventually(lambda: len(parked_rows(node)) == 1)
        else:
            await reached.wait()
        adding = group.create_task(node.cni("ADD", netns=path(sandbox)))
        await eventually(lambda: node.attachments.adds.plugging("u1"))
        go_on.set()
        if point == "before OVN":
            await eventually(lambda: node.attachments.all())
            assert "UP" not in end(lower(VIF.vif_name))["flags"]
            node.controller.enabled = True
            node.controller.seen.put_nowait(node.switch.find(VIF.vif_name).row)
        assert (await adding)[0] == 0
        assert (await node.cni("CHECK", netns=path(sandbox)))[0] == 0
        assert kind(end("eth0", netns=sandbox)) == "macvlan"
        [row] = node.switch.interfaces()
        assert row.external_ids[OURS] == "c1"
