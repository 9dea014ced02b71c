"""Processes that are frozen, killed and ended: the other one works on, and the word of the one
that was deposed counts no more. How long it took is printed (`pytest -s`).
"""

import asyncio
import signal
import time
from collections import Counter

import pytest

from tests.kit.confs import NODE
from tests.kit.fakes.faults import Hang, delay
from tests.kit.processes import two
from tests.lives.pods import deleted
from tests.tables.report import judge
from tests.tables.runs import LATE, undisturbed
from tests.tables.signals import Frozen, signalled

LEASE = 20.0  # seconds; for half of it the processors may be busy with others
LONG = 6000.0  # seconds: nobody waits for the end of such a Lease
PODS = 20  # in flight
MANY = 60  # more than there are connections
ENDS = {
    "SIGKILL, the other one on another host": (signal.SIGKILL, False, LEASE),
    "SIGKILL, the other one on the same host": (signal.SIGKILL, True, LEASE),
    "SIGTERM": (signal.SIGTERM, False, LONG),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("what", ENDS)
async def test_standby_takes_over_with_pods_in_flight(stage, what):
    number, same_host, lease = ENDS[what]
    stage.cloud.latency["POST"] = 0.3
    async with two(stage, same_host=same_host, lease=lease) as (first, second):
        for pod in range(PODS):
            await stage.cluster.add_pod(f"web-{pod}", node=NODE)
        await stage.cloud.wait_for(lambda: stage.cloud.calls.count("POST", "/v2.0/ports"))
        first.send(number)
        started = time.monotonic()
        await stage.until(second.leads, within=120)
        leads = time.monotonic() - started
        for pod in range(PODS):
            await stage.until_plugged_in(f"web-{pod}")
        done = time.monotonic() - started
        print(f"\n{what}: leads after {leads:.2f} s, {PODS} Pods have ports after {done:.2f} s")
        await first.ended()
        assert leads < 2 * LEASE  # one Lease, whatever the processors do meanwhile
        assert len(stage.cloud.ports) == PODS


@pytest.mark.sampled(3, group="frozen leader")
async def test_frozen_leader_sends_no_write_when_it_wakes(stage):
    """Most of its requests wait for a connection or a thread when it is stopped, and both of those
    that may be under way are with Neutron: one that is just being sent nobody could stop."""
    slow = stage.proxy.faults.add(
        method="POST", path="/kuryrports$", times=None, action=delay(0.5)
    )
    stage.cloud.latency["POST"] = 5.0
    async with two(stage, lease=LEASE, neutron={"max_calls": "2"}) as (first, second):
        for pod in range(MANY):
            await stage.cluster.add_pod(f"web-{pod}", node=NODE)
        await stage.cloud.wait_for(lambda: stage.cloud.calls.count("POST", "/v2.0/ports") >= 2)
        first.send(signal.SIGSTOP)
        stage.cloud.latency["POST"] = 0.3
        slow.remove()
        await stage.until(second.leads, within=120)
        for pod in range(MANY):
            await stage.until_plugged_in(f"web-{pod}")
        before = _writes(stage)
        first.send(signal.SIGCONT)
        assert await first.ended() == 1
        assert "could not be renewed" in first.log()
        assert _writes(stage) - before == Counter()
        assert len(stage.cloud.ports) == MANY


@pytest.mark.sampled(3, group="frozen leader")
async def test_late_word_of_a_frozen_leader_is_refused_before_the_new_one_has_decided(stage):
    """The PATCH of status.vifs: with it the Pod would have a port that the new leader may have
    given to another one."""
    late, undecided = Hang(), Hang()
    async with two(stage, lease=LEASE) as (first, second):
        stage.proxy.faults.add(method="PATCH", path="/kuryrports/web/status$", action=late)
        await stage.cluster.add_pod("web", node=NODE)
        await late.reached.wait()
        first.send(signal.SIGSTOP)
        # the new one looks for the port that was made
        stage.cloud.faults.add(method="GET", path="/ports$", action=undecided, times=None)
        await stage.until(second.leads, within=120)
        await undecided.reached.wait()
        late.release()
        first.send(signal.SIGCONT)
        assert await first.ended() == 1
        await asyncio.sleep(LATE)  # nothing may come: that takes time to see
        assert "status" not in await stage.kuryrport("web")
        undecided.release()
        await stage.until_plugged_in("web")
    assert len(stage.cloud.ports) == 1


async def test_frozen_in_the_midst_of_any_write_it_does_no_harm(lanes, choice, request):
    record = await undisturbed(lanes, deleted)
    places = choice.frozen(deleted, record)
    cells = await signalled(lanes, deleted, record, places, Frozen, lease=LEASE, at_once=3)
    judge(request.config, cells, of=len(record.writes))


def _writes(stage):
    return Counter([*stage.proxy.faults.writes, *stage.cloud.faults.writes])
