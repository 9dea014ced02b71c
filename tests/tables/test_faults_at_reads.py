"""Every question that the controller asks in a Pod's life fails once, from its start on.

To Keystone, to Neutron, to the API server: the looks at the start, the lists before the watches,
the live reads. The life must end as undisturbed, and no write may be made because of it.
"""

from tests.lives.pods import deleted
from tests.tables.faults import AT_READS, HANGS
from tests.tables.report import judge
from tests.tables.runs import strike_all, undisturbed


def _questions(record):
    return [place for place in record.reads if place.verb != "watch"]


async def test_failing_question_changes_nothing_in_the_end(lanes_for, choice, request):
    lanes = lanes_for(deleted)
    record = await undisturbed(lanes, deleted)
    questions = _questions(record)
    chosen = [(place, choice.at_read(deleted, place)) for place in questions]
    cells = await strike_all(lanes, deleted, record, chosen)
    judge(request.config, cells, of=len(questions) * sum(map(len, AT_READS)))


async def test_question_that_is_never_answered_changes_nothing_in_the_end(
    lanes_for, request, short_calls
):
    lanes = lanes_for(deleted)
    record = await undisturbed(lanes, deleted)
    silence = {"time-out": HANGS["time-out"]}
    chosen = [(place, silence) for place in _questions(record)]
    judge(request.config, await strike_all(lanes, deleted, record, chosen, **short_calls))
