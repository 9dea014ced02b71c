"""Calls in flight: never more than the limit, Pods' first, fewer while the API is overloaded."""

import asyncio
import math
from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kuryr_k8s.engine.budget import Budget
from kuryr_k8s.engine.limit import OVERLOAD, AdaptiveLimit, Priority, on_behalf_of

WATCH, POD, REFILL, CLEANUP = Priority
PRIORITIES = st.sampled_from(Priority)


class Calls:
    """Callers of a limit, each in a slot until its answer is given."""

    def __init__(self, limit, create_task):
        self.limit = limit
        self._create_task = create_task
        self.begun = []  # names in the order in which they got their slots
        self._tasks = {}
        self._answers = {}

    async def ask(self, name, priority):
        self._answers[name] = asyncio.get_running_loop().create_future()
        self._tasks[name] = self._create_task(self._call(name, priority))
        await settle()

    async def answer(self, name, status=200):
        self._answers[name].set_result(status)
        await settle()

    async def give_up(self, name):
        self._tasks[name].cancel()
        await settle()

    async def end(self):
        for task in self._tasks.values():
            task.cancel()
        await settle()

    async def _call(self, name, priority):
        async with self.limit.slot(priority) as slot:
            self.begun.append(name)
            slot.answered(await self._answers[name])


async def settle():
    """Let everybody go as far as they get."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def make():
    async with asyncio.TaskGroup() as group:
        made = []

        def calls(maximum, **options):
            made.append(Calls(AdaptiveLimit(maximum, **options), group.create_task))
            return made[-1]

        yield calls
        for each in made:
            await each.end()


async def ask_all(calls, **groups):
    """So many callers of each priority: pod-0, pod-1, … refill-0, …"""
    for name, count in groups.items():
        for number in range(count):
            await calls.ask(f"{name}-{number}", Priority[name.upper()])


async def test_whoever_waits_is_served_by_priority_and_then_in_order(make):
    calls = make(1)
    await calls.ask("first", POD)
    await ask_all(calls, cleanup=2, refill=2, pod=2, watch=1)
    for name in ("first", "watch-0", "pod-0", "pod-1", "refill-0", "refill-1", "cleanup-0"):
        await calls.answer(name)
    assert calls.begun == [
        *("first", "watch-0", "pod-0", "pod-1", "refill-0", "refill-1", "cleanup-0", "cleanup-1")
    ]


@pytest.mark.parametrize(
    ("maximum", "share"), [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6), (16, 12), (17, 13)]
)
async def test_a_quarter_of_the_slots_is_kept_for_pods(make, maximum, share):
    calls = make(maximum)
    await ask_all(calls, cleanup=maximum, refill=maximum, pod=maximum)
    others = [name for name in calls.begun if not name.startswith("pod")]
    assert others == [f"cleanup-{number}" for number in range(share)]
    assert len(calls.begun) == maximum


async def test_pods_may_take_every_slot(make):
    calls = make(16)
    await ask_all(calls, pod=20)
    assert calls.limit.in_flight(POD) == 16
    assert calls.limit.waiting(POD) == 4


async def test_nobody_else_begins_while_a_pod_waits(make):
    calls = make(4)
    await ask_all(calls, refill=4, pod=2)
    await calls.answer("refill-0")
    assert calls.begun[-1] == "pod-1"
    await calls.answer("pod-0")
    assert calls.begun[-1] == "refill-3"


async def test_cleanup_has_one_slot_however_many_calls_of_pods_wait(make):
    calls = make(4)
    await ask_all(calls, pod=8, refill=1, cleanup=2)
    await calls.answer("pod-0")
    assert calls.begun[-1] == "cleanup-0"
    await calls.answer("pod-1")
    assert calls.begun[-1] == "pod-4"
    await calls.answer("cleanup-0")
    assert calls.begun[-1] == "cleanup-1"


@pytest.mark.parametrize("status", sorted(OVERLOAD))
async def test_the_limit_is_halved_once_for_all_that_were_in_flight(make, status):
    calls = make(16)
    await ask_all(calls, pod=16)
    for number in range(16):
        await calls.answer(f"pod-{number}", status)
    assert calls.limit.value == 8
    await calls.ask("after", POD)
    await calls.answer("after", status)
    assert calls.limit.value == 4


@pytest.mark.parametrize("status", [200, 201, 204, 400, 403, 404, 409, 412, 500])
async def test_other_answers_are_no_reason_to_go_slower(make, status):
    calls = make(4)
    await ask_all(calls, pod=4)
    for number in range(4):
        await calls.answer(f"pod-{number}", status)
    assert calls.limit.value == 4


async def test_the_limit_does_not_fall_below_the_minimum(make):
    calls = make(16, minimum=3)
    for number in range(10):
        await calls.ask(str(number), POD)
        await calls.answer(str(number), 503)
    assert calls.limit.value == 3


async def test_after_a_fall_nobody_begins_until_there_are_fewer_than_the_limit(make):
    calls = make(8)
    await ask_all(calls, pod=9)
    await calls.answer("pod-0", 429)
    for number in range(1, 5):
        await calls.answer(f"pod-{number}", 429)
        assert ("pod-8" in calls.begun) == (8 - 1 - number < 4)


async def test_the_limit_rises_by_one_for_as_many_answers_as_it_allows(make):
    calls = make(8)
    await calls.ask("bad", POD)
    await calls.answer("bad", 503)
    values = []
    for number in range(4 + 5 + 6 + 7 + 20):
        await calls.ask(str(number), POD)
        await calls.answer(str(number))
        values.append(calls.limit.value)
    assert values == [*[4] * 3, *[5] * 5, *[6] * 6, *[7] * 7, *[8] * 21]


async def test_those_who_wait_profit_at_once_when_the_limit_rises(make):
    calls = make(2)
    await calls.ask("bad", POD)
    await calls.answer("bad", 503)
    await ask_all(calls, pod=3)
    await calls.answer("pod-0")
    assert calls.begun == ["bad", "pod-0", "pod-1", "pod-2"]


async def test_what_was_sent_before_the_fall_does_not_raise_the_limit(make):
    calls = make(4)
    await ask_all(calls, pod=4)
    await calls.answer("pod-0", 503)
    for number in (1, 2, 3):
        await calls.answer(f"pod-{number}")
    assert calls.limit.value == 2


async def test_whoever_gives_up_in_the_moment_of_getting_a_slot_gives_it_back(make):
    calls = make(1)
    await ask_all(calls, pod=3)
    calls._answers["pod-0"].set_result(200)
    await asyncio.sleep(0)  # pod-0 ends
    assert calls.limit.waiting(POD) == 1
    await calls.give_up("pod-1")  # has its slot, and has not run since
    assert calls.begun == ["pod-0", "pod-2"]
    assert calls.limit.in_flight(POD) == 1


async def test_a_call_that_is_given_up_says_nothing_about_the_api(make):
    calls = make(4)
    await ask_all(calls, pod=1)
    await calls.give_up("pod-0")
    assert calls.limit.value == 4
    assert calls.limit.in_flight(POD) == 0


@pytest.mark.parametrize(("maximum", "minimum"), [(0, 1), (4, 0), (4, 5)])
def test_a_limit_that_lets_nothing_through_is_refused(maximum, minimum):
    with pytest.raises(ValueError, match="makes no sense"):
        AdaptiveLimit(maximum, minimum=minimum)


class LimitMachine(RuleBasedStateMachine):
    """Calls come, are answered and given up, against a model of who should be in flight.

    The model knows the order in which callers came; the machine says who is in a slot.
    """

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.number = 0
        self.waiting = {priority: deque() for priority in Priority}
        self.in_flight = {}  # name -> (priority, window)
        self.window = 0
        self.good = 0

    @initialize(maximum=st.integers(1, 12), minimum=st.integers(1, 3))
    def begin(self, maximum, minimum):
        self.maximum, self.minimum = maximum, min(minimum, maximum)
        self.value = maximum
        self.limit = AdaptiveLimit(maximum, minimum=self.minimum)
        self.calls = Calls(self.limit, self.loop.create_task)

    def run(self, coroutine):
        self.loop.run_until_complete(coroutine)

    def model_admits(self):
        """Move who should begin from the waiting to those in flight."""
        cleaning = any(priority is CLEANUP for priority, _ in self.in_flight.values())
        if self.waiting[CLEANUP] and not cleaning and self.value > 2 and self.has_room(CLEANUP):
            self.in_flight[self.waiting[CLEANUP].popleft()] = (CLEANUP, self.window)
        for priority, queue in self.waiting.items():
            while queue:
                if not self.has_room(priority):
                    return
                self.in_flight[queue.popleft()] = (priority, self.window)

    def has_room(self, priority):
        others = sum(each in (REFILL, CLEANUP) for each, _ in self.in_flight.values())
        kept = 0 if self.value == 1 else max(1, self.value // 4)
        full = len(self.in_flight) >= self.value
        return not full and (priority in (WATCH, POD) or others < self.value - kept)

    @rule(priority=PRIORITIES)
    def ask(self, priority):
        name, self.number = str(self.number), self.number + 1
        self.waiting[priority].append(name)
        self.model_admits()
        self.run(self.calls.ask(name, priority))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), status=st.sampled_from([200, 200, 200, 404, *OVERLOAD]))
    def answer(self, data, status):
        name = data.draw(st.sampled_from(sorted(self.in_flight, key=int)))
        _, window = self.in_flight.pop(name)
        if window == self.window:
            if status in OVERLOAD:
                self.value = max(self.minimum, math.floor(self.value / 2))
                self.window, self.good = self.window + 1, 0
            else:
                self.good += 1
                if self.good >= self.value and self.value < self.maximum:
                    self.value, self.good = self.value + 1, 0
        self.model_admits()
        self.run(self.calls.answer(name, status))

    @precondition(lambda self: any(self.waiting.values()))
    @rule(data=st.data())
    def give_up_waiting(self, data):
        names = [(name, queue) for queue in self.waiting.values() for name in queue]
        name, queue = data.draw(st.sampled_from(names))
        queue.remove(name)
        self.run(self.calls.give_up(name))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def give_up_the_call(self, data):
        name = data.draw(st.sampled_from(sorted(self.in_flight, key=int)))
        del self.in_flight[name]
        self.model_admits()
        self.run(self.calls.give_up(name))

    @rule()
    def all_is_well_for_a_while(self):
        """However low the limit has fallen, it rises to its maximum; a Pod's call gets a slot."""
        for _ in range(self.maximum**2):
            if self.limit.value == self.maximum and not any(self.waiting.values()):
                break
            self.ask(POD)
            for name in sorted(self.in_flight, key=int)[:1]:
                _, window = self.in_flight.pop(name)
                if window == self.window:
                    self.good += 1
                    if self.good >= self.value and self.value < self.maximum:
                        self.value, self.good = self.value + 1, 0
                self.model_admits()
                self.run(self.calls.answer(name))
        assert self.limit.value == self.maximum

    @invariant()
    def who_is_in_flight_is_as_expected(self):
        if hasattr(self, "calls"):
            for priority in Priority:
                mine = [
                    name
                    for name, (call_priority, _) in self.in_flight.items()
                    if call_priority is priority
                ]
                assert self.limit.in_flight(priority) == len(mine)
                assert self.limit.waiting(priority) == len(self.waiting[priority])
                assert set(mine) <= set(self.calls.begun)
            waiting = {name for queue in self.waiting.values() for name in queue}
            assert not waiting & set(self.calls.begun)
            assert self.limit.value == self.value
            assert self.minimum <= self.value <= self.maximum

    @invariant()
    def a_pod_waits_only_where_every_slot_is_taken(self):
        if hasattr(self, "calls") and self.limit.waiting(POD):
            assert sum(map(self.limit.in_flight, Priority)) >= self.limit.value

    def teardown(self):
        if hasattr(self, "calls"):
            self.run(self.calls.end())
            assert sum(map(self.limit.in_flight, Priority)) == 0
        self.loop.close()


LimitMachine.TestCase.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=40, deadline=None
)
TestLimitMachine = LimitMachine.TestCase


async def test_projects_take_turns(make):
    calls = make(1)
    await calls.ask("first", POD)
    for number in range(3):
        with on_behalf_of("greedy"):
            await calls.ask(f"greedy-{number}", POD)
    with on_behalf_of("modest"):
        await calls.ask("modest", POD)
    for name in ("first", "greedy-0", "modest", "greedy-1"):
        await calls.answer(name)
    assert calls.begun == ["first", "greedy-0", "modest", "greedy-1", "greedy-2"]
    assert calls.limit.projects_waiting == 0


async def test_no_more_calls_begin_in_a_second_than_are_allowed(make):
    """Their time is that of the budget, which the test turns on; the loop looks again at once."""
    now = 0.0
    budget = Budget(2.0, 2, clock=lambda: now)
    calls = make(8, budget=budget)
    for number in range(4):
        await calls.ask(f"refill-{number}", REFILL)
    await calls.ask("pod", POD)
    assert calls.begun == ["refill-0", "refill-1"]
    now = 0.5
    await calls.answer("refill-0")  # whoever ends looks for the next one
    assert calls.begun[2:] == ["pod"]
    now = 1.0
    await calls.answer("refill-1")
    assert calls.begun[3:] == ["refill-2"]


async def test_call_that_waits_for_its_second_begins_by_itself(make):
    calls = make(8, budget=Budget(100.0, 1))
    await calls.ask("first", POD)
    await calls.ask("second", POD)
    async with asyncio.timeout(10):
        while calls.begun != ["first", "second"]:
            await settle()


async def test_clean_up_does_not_take_the_calls_of_a_second_from_pods(make):
    now = 0.0
    calls = make(8, budget=Budget(1.0, 1, clock=lambda: now))
    await ask_all(calls, cleanup=30, pod=30)
    for _ in range(20):
        now += 1.0
        await calls.answer(calls.begun[-1])  # each call is shorter than a second
    begun = [name.partition("-")[0] for name in calls.begun[1:]]
    assert begun.count("pod") >= 8 * begun.count("cleanup") > 0
