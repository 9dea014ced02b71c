"""Sweeps: what is found twice, and is not wanted by a live read, goes; and nothing else."""

import asyncio

import pytest

from kuryr_k8s import errors
from kuryr_k8s.engine.sweep import Sweep
from tests.kit.clock import ManualClock


class Leftovers(Sweep[str]):
    """A sweep of words. ``wanted`` are those that a live read finds named."""

    def __init__(self, clock, **options):
        super().__init__("leftovers", interval=600.0, clock=clock, **options)
        self.found, self.wanted, self.refused = [], set(), set()
        self.removed, self.while_searching = [], lambda: None

    async def search(self):
        self.while_searching()
        return list(self.found)

    def identity(self, item):
        return item

    async def confirm(self, items):
        return [item for item in items if item not in self.wanted]

    async def remove(self, item):
        if item in self.refused:
            raise errors.CloudError("not now")
        self.removed.append(item)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def sweep(clock):
    return Leftovers(clock)


async def look(sweep, clock, passed=0.0):
    clock.advance(passed)
    return await sweep.reconcile(sweep.KEY)


async def test_what_two_searches_found_goes(sweep, clock):
    sweep.found = ["a", "b"]
    assert await look(sweep, clock) == 600.0
    sweep.found = ["b", "c"]
    await look(sweep, clock, 600.0)
    assert sweep.removed == ["b"]


async def test_what_a_live_read_wants_stays(sweep, clock):
    sweep.found, sweep.wanted = ["a", "b"], {"a"}
    await look(sweep, clock)
    await look(sweep, clock, 600.0)
    assert sweep.removed == ["b"]


async def test_what_cannot_be_removed_saves_no_other_and_is_confirmed_again(sweep, clock):
    sweep.found, sweep.refused = ["a", "b"], {"a"}
    await look(sweep, clock)
    with pytest.raises(errors.CloudError):
        await look(sweep, clock, 600.0)
    assert sweep.removed == ["b"]
    sweep.refused, sweep.wanted = set(), {"a"}
    await look(sweep, clock, 1.0)
    assert sweep.removed == ["b"]


async def test_suspects_are_looked_at_sooner_where_that_is_asked_for(clock):
    sweep = Leftovers(clock, confirm_after=60.0)
    sweep.found = ["a"]
    assert await look(sweep, clock) == 60.0
    assert await look(sweep, clock, 60.0) == 600.0
    assert sweep.removed == ["a"]


async def test_search_that_is_asked_for_during_a_search_is_made(sweep, clock):
    """The search that is under way may have begun before what it is asked for."""
    searches = []
    sweep.while_searching = lambda: searches.append(clock.now())
    await look(sweep, clock)
    sweep.while_searching = lambda: (searches.append(clock.now()), sweep.search_after(2.0))
    await look(sweep, clock, 600.0)
    sweep.while_searching = lambda: searches.append(clock.now())
    await look(sweep, clock, 2.0)
    assert searches == [0.0, 600.0, 602.0]


async def test_search_that_failed_is_made_again_at_once(sweep, clock):
    def fail():
        raise errors.CloudError("no answer")

    sweep.while_searching = fail
    with pytest.raises(errors.CloudError):
        await look(sweep, clock)
    searches = []
    sweep.while_searching = lambda: searches.append(clock.now())
    await look(sweep, clock, 0.5)
    assert searches == [0.5]


async def test_search_may_take_long_while_its_calls_go_on(sweep, monkeypatch):
    """A search that is cut off would begin anew, and never end where there is much to list."""
    loop = asyncio.get_running_loop()
    searches, machine, passed = [], loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: machine() + passed[0])

    async def search():
        searches.append("begun")
        for _page in range(200):
            passed[0] += 5.0
            await asyncio.sleep(0)
        searches.append("ended")
        return []

    sweep.search = search
    await sweep.loop.step(sweep.KEY)
    assert searches == ["begun", "ended"]
