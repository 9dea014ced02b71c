"""Two controllers: whatever the one was doing when it died, the other one brings to its end."""

import pytest

from tests.kit.pair import Kill, Pair
from tests.lives.pods import LIVES, deleted, other_groups
from tests.tables.report import judge
from tests.tables.runs import strike_all, undisturbed

KILLS = {
    "killed before": lambda: Kill(applied=False),
    "killed after": lambda: Kill(applied=True),
}
SAMPLE = (deleted, other_groups)


def pytest_generate_tests(metafunc):
    lives = LIVES if metafunc.config.getoption("--all-faults") else SAMPLE
    metafunc.parametrize("life", lives, ids=str)


@pytest.mark.sampled(2)
async def test_standby_finishes_what_the_leader_was_doing_when_it_was_killed(
    life, lanes_for, choice, request
):
    lanes = lanes_for(life)
    record = await undisturbed(lanes, life)
    chosen = [(place, choice.crashes_at(life, record, place, KILLS)) for place in record.writes]
    cells = await strike_all(lanes, life, record, chosen, keeping=Pair)
    judge(request.config, cells, of=len(record.writes) * len(KILLS))
