"""As in test_crash_at_every_write, with pools: each write of such a life is struck by each fault.

Afterwards the ports of Neutron are those of Pods and pools, exactly.
"""

import pytest

from tests.lives import pools as pool_lives
from tests.tables.report import judge
from tests.tables.runs import CRASHES, HANGS, WRITE_FAULTS, strike_all, undisturbed

EXPECTED = [
    "kube create kuryrports",
    "kube patch kuryrports/status",
    "kube delete kuryrports",
    "kube patch kuryrports",
    "neutron POST /ports",
    "neutron POST /ports #2",
]


async def test_every_fault_at_every_write_leaves_ports_of_pods_and_pools_alone(lanes, request):
    record = await undisturbed(lanes, pool_lives.pooled)
    assert list(map(str, record.writes)) == EXPECTED
    cells = await strike_all(lanes, pool_lives.pooled, record, record.writes, WRITE_FAULTS)
    judge(request.config, cells)


async def test_creation_that_is_never_answered_leaves_no_port_behind(lanes, request, short_calls):
    record = await undisturbed(lanes, pool_lives.pooled)
    targets = [place for place in record.writes if place.side == "neutron"]
    cells = await strike_all(lanes, pool_lives.pooled, record, targets, HANGS, **short_calls)
    judge(request.config, cells)


@pytest.mark.parametrize("life", [pool_lives.named, pool_lives.surplus, pool_lives.regrouped])
async def test_faults_at_what_happens_to_a_port_afterwards(lanes, life, request):
    record = await undisturbed(lanes, life)
    targets = [p for p in record.writes if p.verb in ("PUT", "DELETE") and p.side == "neutron"]
    targets = targets[: life.changes]
    assert len(targets) == life.changes
    cells = await strike_all(lanes, life, record, targets, FAULTS_AFTERWARDS)
    judge(request.config, cells)


async def test_crashes_at_what_is_said_to_the_node(lanes, request):
    record = await undisturbed(lanes, pool_lives.parked)
    targets = [p for p in record.writes if p.what == "kuryrportpools"]
    targets += [p for p in record.writes if p.verb in ("PUT", "DELETE") and p.side == "neutron"]
    cells = await strike_all(lanes, pool_lives.parked, record, targets, CRASHES)
    judge(request.config, cells)


FAULTS_AFTERWARDS = CRASHES | {name: WRITE_FAULTS[name] for name in ("503", "409")}
