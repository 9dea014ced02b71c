"""Two controllers: whatever the one was doing when it died, the other one brings to its end.

And where the one did not die, but was paused, its write arrives when the other one leads.
"""

import pytest

from tests.kit.pair import Kill, Late, Pair
from tests.lives import nested, neutron_ports, nodes, pods, pools, routers, services
from tests.tables.report import judge
from tests.tables.runs import strike_all, undisturbed

KILLED = {
    "killed before": lambda: Kill(applied=False),
    "killed after": lambda: Kill(applied=True),
}
LATE = {  # what comes late may take minutes to be undone
    "late at once": lambda: Late(at_once=True),
    "late": lambda: Late(at_once=False),
}
LIVES = (
    *pods.LIVES,
    *nested.PAIRED,
    *pools.PAIRED,
    *services.LIVES,
    *nodes.LIVES,
    *neutron_ports.LIVES,
    *routers.LIVES,
)
SWEEPS = {"neutron_defaults": {"sweep_interval": "1"}}  # what comes late may be a case for them


@pytest.mark.sampled(25)
@pytest.mark.parametrize("life", LIVES, ids=str)
async def test_standby_finishes_what_the_leader_was_doing_when_it_was_killed_or_paused(
    life, lanes_for, choice, request
):
    lanes = lanes_for(life)
    record = await undisturbed(lanes, life, **SWEEPS)
    places = life.made(record)
    chosen = choice.in_a_pair(life, places, KILLED, slow=LATE)
    cells = await strike_all(lanes, life, record, chosen, keeping=Pair, **SWEEPS)
    judge(request.config, cells, of=len(places) * len(KILLED | LATE))
