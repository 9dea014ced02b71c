"""Two controllers: whatever the one was doing when it died, the other one brings to its end."""

import pytest

from tests.component.cells import strike_all, undisturbed
from tests.component.lives import LIVES, deleted
from tests.component.pair import Kill, Pair
from tests.component.report import judge

KILLS = {
    "killed before": lambda: Kill(applied=False),
    "killed after": lambda: Kill(applied=True),
}


def lives(config):
    return LIVES.values() if config.getoption("--all-faults") else [deleted, LIVES["other_groups"]]


@pytest.mark.timeout(300)
async def test_standby_finishes_what_the_leader_was_doing_when_it_was_killed(lanes, request):
    cells = []
    for life in lives(request.config):
        record = await undisturbed(lanes, life)
        cells += await strike_all(lanes, life, record, record.writes, KILLS, keeping=Pair)
    judge(request.config, cells)
