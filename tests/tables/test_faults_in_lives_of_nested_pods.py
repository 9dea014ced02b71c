"""Every external write in the life of a Pod on a VM is struck by every fault, as on bare metal.

What stands in cluster and cloud is compared, so no VLAN id is used twice, and none is lost.
"""

import pytest

from tests.lives.pods import LIVES
from tests.tables.report import judge
from tests.tables.runs import CRASHES, HANGS, WRITE_FAULTS, strike_all, undisturbed

NESTED = {f"nested_{name}": LIVES[name] for name in ("deleted", "made_again")}
PLAIN = "nested_deleted"
EXPECTED = [
    "kube create kuryrports",
    "kube patch kuryrports/status",
    "kube delete kuryrports",
    "kube patch kuryrports",
    "neutron POST /ports",
    "neutron PUT /trunks/{id}/add_subports",
    "neutron PUT /trunks/{id}/remove_subports",
    "neutron DELETE /ports/{id}",
]


def named(cells, name):
    """In the table of faults they have a row of their own."""
    for cell in cells:
        cell.life = name
    return cells


@pytest.mark.parametrize("name", NESTED)
async def test_every_fault_at_every_write_ends_as_an_undisturbed_life(nested_lanes, name, request):
    record = await undisturbed(nested_lanes, NESTED[name])
    if name == PLAIN:
        assert list(map(str, record.writes)) == EXPECTED
    everything = name == PLAIN or request.config.getoption("--all-faults")
    faults = WRITE_FAULTS if everything else CRASHES
    cells = await strike_all(nested_lanes, NESTED[name], record, record.writes, faults)
    assert len(cells) == len(record.writes) * len(faults)
    judge(request.config, named(cells, name))


async def test_write_that_is_never_answered_ends_as_an_undisturbed_life(
    nested_lanes, request, short_calls
):
    life = NESTED[PLAIN]
    record = await undisturbed(nested_lanes, life)
    targets = [place for place in record.writes if "trunks" in place.what]
    cells = await strike_all(nested_lanes, life, record, targets, HANGS, **short_calls)
    judge(request.config, named(cells, PLAIN))
