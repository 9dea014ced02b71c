"""What is said while Octavia is at work."""

import asyncio
from typing import Any, cast

from kuryr_k8s.drivers.lbaas.record import Record, View
from kuryr_k8s.drivers.lbaas.work import StillPending, Work
from kuryr_k8s.model.owner import Owner
from tests.kit.contexts import driver_context

NOTHING = cast(Any, None)


async def test_what_stays_pending_is_told_in_the_same_words_every_time():
    """Other words would be another Event, and another write of the status."""
    work = Work(driver_context(None, None), (), NOTHING, limit=1, longest=2.0)
    record = Record(Owner("a"))
    now = asyncio.get_running_loop().time()
    told = [work.at_work(View(record, "a", pending_since=now - seconds)) for seconds in (4, 34)]
    assert all(isinstance(error, StillPending) for error in told)
    assert len({str(error) for error in told}) == 1
