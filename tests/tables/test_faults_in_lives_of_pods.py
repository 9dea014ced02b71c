"""Every external write of a Pod's life is struck by every fault; the lives must end alike.

The writes are not listed here: they are those of a recorded, undisturbed life. A fault may cost
the repetition of the write that it struck, and no other; what stands in cluster and cloud must
be as undisturbed, both while the Pod runs and when it is gone.
"""

import pytest

from tests.kit.confs import NODE
from tests.kit.fakes.faults import Hang
from tests.lives.pods import LIVES
from tests.tables.report import judge
from tests.tables.runs import CRASHES, HANGS, WRITE_FAULTS, strike_all, undisturbed

EXPECTED = {
    "deleted": [
        "kube create kuryrports",
        "kube patch kuryrports/status",
        "kube delete kuryrports",
        "kube patch kuryrports",
        "neutron POST /ports",
        "neutron DELETE /ports/{id}",
    ],
}
PLAIN = "deleted"  # the life that gets every fault; the others vary it, and get the crashes


def faults_for(name, config):
    everything = name == PLAIN or config.getoption("--all-faults")
    return WRITE_FAULTS if everything else CRASHES


@pytest.mark.parametrize("name", LIVES)
async def test_every_fault_at_every_write_ends_as_an_undisturbed_life(lanes, name, request):
    record = await undisturbed(lanes, LIVES[name])
    if name in EXPECTED:
        assert list(map(str, record.writes)) == EXPECTED[name]
    faults = faults_for(name, request.config)
    cells = await strike_all(lanes, LIVES[name], record, record.writes, faults)
    assert len(cells) == len(record.writes) * len(faults)
    judge(request.config, cells)


@pytest.mark.parametrize("name", [PLAIN, "other_groups"])
async def test_write_that_is_never_answered_ends_as_an_undisturbed_life(
    lanes, name, request, short_calls
):
    record = await undisturbed(lanes, LIVES[name])
    cells = await strike_all(lanes, LIVES[name], record, record.writes, HANGS, **short_calls)
    judge(request.config, cells)


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
