"""Every question that the controller asks in a Pod's life fails once, from its start on.

To Keystone, to Neutron, to the API server: the looks at the start, the lists before the watches,
the live reads. The life must end as undisturbed, and no write may be made because of it.
"""

from tests.lives.pods import deleted
from tests.tables.report import judge
from tests.tables.runs import HANGS, SHORT_FAULTS, strike_all, undisturbed


def _questions(record):
    return [place for place in record.reads if place.verb != "watch"]


async def test_failing_question_changes_nothing_in_the_end(lanes, request):
    record = await undisturbed(lanes, deleted)
    cells = await strike_all(lanes, deleted, record, _questions(record), SHORT_FAULTS)
    judge(request.config, cells)


async def test_question_that_is_never_answered_changes_nothing_in_the_end(
    lanes, request, short_calls
):
    record = await undisturbed(lanes, deleted)
    silence = {"time-out": HANGS["time-out"]}
    cells = await strike_all(lanes, deleted, record, _questions(record), silence, **short_calls)
    judge(request.config, cells)
