"""Every external write of a life is struck by faults; the lives must end alike.

The writes are those of a recorded, undisturbed life. A fault may cost the repetition of the write
that it struck, and no other; what stands in cluster and cloud must be as undisturbed at each
moment that the life names.
"""

import pytest

from tests.lives import crowded, nested, neutron_ports, nodes, pods, pools, routers, services
from tests.tables.faults import HANGS, whole_product
from tests.tables.report import judge
from tests.tables.runs import strike_all, undisturbed

LIVES = (
    *pods.LIVES,
    *nested.LIVES,
    *pools.LIVES,
    *crowded.LIVES,
    *services.LIVES,
    *nodes.LIVES,
    *neutron_ports.LIVES,
    *routers.LIVES,
)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("life", LIVES, ids=str)
async def test_faults_at_every_write_end_as_an_undisturbed_life(life, lanes_for, choice, request):
    lanes = lanes_for(life)
    record = await undisturbed(lanes, life)
    declared = {write.partition(" ")[0] for write in life.writes}  # the sides
    assert tuple(str(place) for place in record.writes if place.side in declared) == life.writes
    targets = life.targets(record)
    assert targets
    chosen = [(place, choice.at_write(life, record, place)) for place in targets]
    cells = await strike_all(lanes, life, record, chosen)
    judge(request.config, cells, of=whole_product(life, record))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("life", [life for life in LIVES if life.plain], ids=str)
async def test_write_that_is_never_answered_ends_as_an_undisturbed_life(
    life, lanes_for, request, short_calls
):
    lanes = lanes_for(life)
    record = await undisturbed(lanes, life)
    chosen = [(place, HANGS) for place in life.targets(record) if place.side in life.answers]
    cells = await strike_all(lanes, life, record, chosen, **short_calls)
    judge(request.config, cells)
