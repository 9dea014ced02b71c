"""The controller dies before and after each of its writes, and an answer is lost at each of them.

What a Pod's life leaves in the cluster and in the cloud must be the same as undisturbed.
"""

import asyncio

import pytest

from tests.component.conftest import NODE
from tests.fakes.faults import Hang, answer, cut, drop, lose_reply


class Crash:
    """A fault that also says when it struck, so that the controller can be stopped there."""

    def __init__(self, *, applied):
        self.struck = asyncio.Event()
        self._applied = applied

    async def __call__(self, request, proceed):
        if self._applied:
            await proceed()
        self.struck.set()
        return drop(request)


class Life:
    """One Pod from creation to its end, in two halves, with the node's part in between."""

    def __init__(self, stage):
        self.stage = stage
        self.pod = None

    async def begin(self):
        self.pod = await self.stage.cluster.add_pod("web", node=NODE)

    async def running(self):
        return await self.stage.until_plugged_in("web", within=20)

    async def end(self):
        await self.stage.cluster.delete_pod(self.pod)

    async def let_go(self):
        await self.stage.until_deleting("web")
        await self.stage.let_go("web")

    async def gone(self):
        await self.stage.until_gone("web")
        assert not self.stage.cloud.ports


async def assert_running(stage, life):
    vif = await life.running()
    (port,) = stage.cloud.ports.values()
    assert port["id"] == vif["id"]
    recorded = await stage.kuryrport("web")
    assert recorded["spec"]["podUid"] == life.pod["metadata"]["uid"]
    assert recorded["metadata"]["finalizers"] == stage.both_finalizers()


def writes_of_a_life(stage):
    """Every write that the controller makes: (side, method, kind of path)."""
    kube = [("kube", write.method, kind(write.path)) for write in stage.proxy.faults.writes]
    cloud = [("cloud", write.method, kind(write.path)) for write in stage.cloud.faults.writes]
    return kube + cloud


def kind(path):
    parts = [part for part in path.split("/") if part]
    known = ("kuryrports", "ports", "events", "status")
    return "/".join(part for part in parts if part in known)


async def test_an_undisturbed_life_costs_four_writes_to_kubernetes_and_two_to_neutron(stage):
    life = Life(stage)
    async with stage.controller():
        await life.begin()
        await assert_running(stage, life)
        await life.end()
        await life.let_go()
        await life.gone()
    assert sorted(writes_of_a_life(stage)) == [
        ("cloud", "DELETE", "ports"),
        ("cloud", "POST", "ports"),
        ("kube", "DELETE", "kuryrports"),
        ("kube", "PATCH", "kuryrports"),
        ("kube", "PATCH", "kuryrports/status"),
        ("kube", "POST", "kuryrports"),
    ]
    # the sweep at the start; and once, whether this Neutron keeps the tags of a new port
    assert stage.cloud.calls.count("GET", "/v2.0/ports") == 2


MAKING = [("kube", 1), ("cloud", 1), ("kube", 2)]  # POST KuryrPort, POST port, PATCH status
ENDING = [("kube", 1), ("cloud", 1), ("kube", 2)]  # DELETE KuryrPort, DELETE port, finalizer


def strike(stage, side, number, action):
    faults = stage.proxy.faults if side == "kube" else stage.cloud.faults
    faults.at_write(number, action)


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("side", "number"), MAKING)
async def test_crash_while_the_port_is_made(stage, side, number, applied):
    life, crash = Life(stage), Crash(applied=applied)
    async with stage.controller():
        strike(stage, side, number, crash)
        await life.begin()
        await crash.struck.wait()
    async with stage.controller():
        await assert_running(stage, life)
        await life.end()
        await life.let_go()
        await life.gone()


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("side", "number"), ENDING)
async def test_crash_while_the_port_is_given_back(stage, side, number, applied):
    life, crash = Life(stage), Crash(applied=applied)
    async with stage.controller():
        await life.begin()
        await assert_running(stage, life)
        strike(stage, side, number, crash)
        await life.end()
        if (side, number) != ("kube", 1):
            await life.let_go()
        await crash.struck.wait()
    async with stage.controller():
        if (side, number) == ("kube", 1):
            await life.let_go()
        await life.gone()


FAULTS = {
    "connection cut": cut,
    "reply lost": lose_reply,
    "500": lambda: answer(500),
    "503": lambda: answer(503),
    "429": lambda: answer(429, retry_after=1),
    "409": lambda: answer(409),
    "500 but applied": lambda: answer(500, applied=True),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("side", "number"), MAKING)
async def test_fault_while_the_port_is_made(stage, side, number, fault):
    life = Life(stage)
    async with stage.controller():
        strike(stage, side, number, FAULTS[fault]())
        await life.begin()
        await assert_running(stage, life)
        await life.end()
        await life.let_go()
        await life.gone()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("side", "number"), ENDING)
async def test_fault_while_the_port_is_given_back(stage, side, number, fault):
    life = Life(stage)
    async with stage.controller():
        await life.begin()
        await assert_running(stage, life)
        strike(stage, side, number, FAULTS[fault]())
        await life.end()
        await life.let_go()
        await life.gone()


async def test_kuryrport_that_vanishes_while_its_port_is_made_leaves_no_port(stage):
    held = Hang(applied=True)
    async with stage.controller():
        stage.cloud.faults.add(method="POST", path=r"/ports$", action=held)
        pod = await stage.cluster.add_pod("web", node=NODE)
        await held.reached.wait()
        assert stage.ports_of(pod)
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("web")
        await stage.client.patch(stage.path("web"), {"metadata": {"finalizers": None}})
        held.release()
        await stage.cloud.wait_for(lambda: not stage.cloud.ports)
