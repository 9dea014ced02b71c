"""kill -9 in the middle of parking, of handing over, and of taking back: nothing is lost."""

import asyncio
import contextlib
import sys

import pytest

from kuryr_k8s.cni.netlink.parked_pairs import lower
from tests.kit.node.fakes import kuryrport
from tests.node.dying_daemon import VIF
from tests.node.parked_ports import end, kind, parked_rows, pool
from tests.node.workbench import PATIENCE, Controller, a_node, cni, eventually, ip, path, shell

PARKING = ["before:park", "after:park", "after:add_ports"]
HANDING_OVER = [
    "before:mark",
    "after:mark",
    "before:prepare",
    "after:prepare",
    "after:activate",
    "after:hand_over",
]
TAKING_BACK = ["before:take_back", "after:take_back", "before:erase", "after:erase"]


@contextlib.asynccontextmanager
async def dying(tmp_path, remote, point):
    """A daemon that kills itself at this point; in the end it has."""
    async with asyncio.TaskGroup() as group:
        controller = group.create_task(Controller(remote).run())
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.node.dying_daemon", tmp_path, remote, point)
        )
        try:
            yield process
            async with asyncio.timeout(PATIENCE):
                assert await process.wait() == -9
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            controller.cancel()


async def add(tmp_path, sandbox):
    await eventually((tmp_path / "settled").exists)
    return await cni(tmp_path / "cni.sock", tmp_path / "spool", "ADD", netns=path(sandbox))


@contextlib.asynccontextmanager
async def restarted(tmp_path, remote):
    async with a_node(tmp_path, remote) as node:
        for row in node.switch.interfaces():
            if not row.installed:
                node.controller.seen.put_nowait(row.row)
        node.pool.name({VIF: "keep"})
        yield node


async def is_parked(node):
    """As if nothing had been: one row, nothing passes, nobody has it."""
    await eventually(lambda: pool(node).parked == {VIF.id} and len(parked_rows(node)) == 1)
    assert len(node.switch.interfaces()) == 1
    await eventually(lambda: "UP" not in end(lower(VIF.vif_name))["flags"])
    pairs = [link["ifname"] for link in ip("link", "show", "type", "veth")]
    assert sorted(pairs) == sorted([VIF.vif_name, lower(VIF.vif_name)])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("point", PARKING)
async def test_port_is_parked_after_all(tmp_path, remote, point):
    async with dying(tmp_path, remote, point):
        pass
    async with restarted(tmp_path, remote) as node:
        await is_parked(node)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("point", HANDING_OVER)
async def test_pod_that_went_with_the_daemon_leaves_the_port_parked(
    tmp_path, remote, namespaces, point
):
    """The sandbox goes without a DEL, the Pod with its KuryrPort as well."""
    sandbox = namespaces()
    async with dying(tmp_path, remote, point):
        assert (await add(tmp_path, sandbox))[0] == 1
    shell(f"ip netns del {sandbox}")
    async with restarted(tmp_path, remote) as node:
        await is_parked(node)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("point", HANDING_OVER)
async def test_pods_next_sandbox_gets_the_port(tmp_path, remote, namespaces, point):
    """The first one is still there when the second one comes: kubelet cleans up later."""
    first, second = namespaces(), namespaces()
    async with dying(tmp_path, remote, point):
        assert (await add(tmp_path, first))[0] == 1
    async with restarted(tmp_path, remote) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        assert (await node.cni("ADD", "c2", netns=path(second)))[0] == 0
        assert (await node.cni("CHECK", "c2", netns=path(second)))[0] == 0
        assert ip("link", "show", netns=first)[1:] == []
        assert await node.cni("DEL", "c1", netns=path(first)) == (0, None)
        assert "UP" in end("eth0", netns=second)["flags"]
        assert await node.cni("DEL", "c2", netns=path(second)) == (0, None)
        await is_parked(node)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("point", TAKING_BACK)
async def test_del_that_is_repeated_parks_the_port(tmp_path, remote, namespaces, point):
    sandbox = namespaces()
    async with dying(tmp_path, remote, point):
        code, result = await add(tmp_path, sandbox)
        assert (code, kind(end("eth0", netns=sandbox))) == (0, "macvlan"), result
        await cni(tmp_path / "cni.sock", tmp_path / "spool", "DEL", netns=path(sandbox))
    async with restarted(tmp_path, remote) as node:
        node.cache.put(kuryrport("web", "u1", {"eth0": VIF}))
        assert await node.cni("DEL", netns=path(sandbox)) == (0, None)
        await is_parked(node)
        assert ip("link", "show", netns=sandbox)[1:] == []
