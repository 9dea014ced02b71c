import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kuryr_k8s import errors
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.workqueue import WorkQueue
from tests.kit.clock import ManualClock

KEYS = st.sampled_from("abcd")


class WorkQueueMachine(RuleBasedStateMachine):
    """Random adds, failures and time against a model: no key lost, none run twice at once."""

    def __init__(self):
        super().__init__()
        self.clock = ManualClock()
        self.queue = WorkQueue(self.clock, base=1.0, cap=60.0)
        self.running = set()
        self.wanted = {}  # key -> latest time by which it must be ready

    def want(self, key, at):
        self.wanted[key] = min(at, self.wanted.get(key, at))

    @rule(key=KEYS, urgent=st.booleans())
    def add(self, key, urgent):
        self.queue.add(key, urgent=urgent)
        self.want(key, self.clock.now())

    @rule(key=KEYS, delay=st.floats(0.1, 100))
    def add_after(self, key, delay):
        self.queue.add_after(key, delay)
        self.want(key, self.clock.now() + delay)

    @precondition(lambda self: len(self.queue))
    @rule()
    def start(self):
        key = self.queue.take()
        assert key not in self.running
        self.running.add(key)
        self.wanted.pop(key, None)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), fails=st.booleans())
    def finish(self, data, fails):
        key = data.draw(st.sampled_from(sorted(self.running)))
        if fails:
            delay = self.queue.retry(key)
            assert delay <= 60.0
            self.want(key, self.clock.now() + delay)
        else:
            self.queue.forget(key)
        self.running.remove(key)
        self.queue.done(key)

    @rule(seconds=st.floats(0.1, 100))
    def wait(self, seconds):
        self.clock.advance(seconds)

    @invariant()
    def one_timer_per_key_at_most(self):
        assert len(self.clock.pending) <= 4

    @invariant()
    def whatever_is_due_is_ready(self):
        ready = {*self.queue._urgent, *self.queue._calm, *self.queue._again}
        due = {key for key, at in self.wanted.items() if at < self.clock.now() - 1e-6}
        assert due <= ready


TestWorkQueue = WorkQueueMachine.TestCase
TestWorkQueue.settings = settings(
    max_examples=2 * settings().max_examples, stateful_step_count=40, deadline=None
)


def test_urgent_key_goes_before_the_calm_ones():
    queue = WorkQueue(ManualClock())
    queue.add("resync-1", urgent=False)
    queue.add("resync-2", urgent=False)
    queue.add("pod")
    queue.add("resync-2")  # somebody waits for it now
    assert [queue.take() for _ in range(3)] == ["pod", "resync-2", "resync-1"]


def test_later_request_does_not_put_off_an_earlier_one():
    clock = ManualClock()
    queue = WorkQueue(clock)
    queue.add_after("pod", 1.0)
    queue.add_after("pod", 600.0)
    clock.advance(1.0)
    assert len(queue) == 1


async def test_events_arriving_during_a_reconcile_cause_exactly_one_more():
    gate, begun, over, calls = asyncio.Event(), asyncio.Event(), asyncio.Event(), []

    async def reconcile(key):
        calls.append(key)
        begun.set()
        await gate.wait()

    async def report(key, error, failures):
        if len(calls) == 2:
            over.set()

    controller = Controller("pods", reconcile, workers=4, report=report)
    controller.queue.add("ns/pod")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(controller.run())
        await begun.wait()
        for _ in range(5):
            controller.queue.add("ns/pod")
        gate.set()
        await over.wait()
        task.cancel()
    assert calls == ["ns/pod", "ns/pod"]
    assert not len(controller.queue)


async def test_as_many_keys_are_worked_on_at_once_as_there_are_workers_and_no_more():
    gate, full, all_done, worked_on = asyncio.Event(), asyncio.Event(), asyncio.Event(), []

    async def reconcile(key):
        worked_on.append(key)
        if len(worked_on) == 3:
            full.set()
        await gate.wait()

    async def report(key, error, failures):
        if len(worked_on) == 10:
            all_done.set()

    controller = Controller("pods", reconcile, workers=3, report=report)
    for number in range(10):
        controller.queue.add(f"ns/pod-{number}")
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(controller.run())
        await full.wait()
        for _ in range(20):
            await asyncio.sleep(0)  # whoever may begin has begun
        assert (controller.queue.active, len(controller.queue)) == (3, 7)
        gate.set()
        await all_done.wait()
        task.cancel()
    assert worked_on == [f"ns/pod-{number}" for number in range(10)]


async def test_outcomes_decide_when_a_key_is_looked_at_again():
    clock, outcomes, told = ManualClock(), {}, {}

    async def reconcile(key):
        outcome = outcomes[key]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def report(key, error, failures):
        told[key] = (type(error).__name__, failures)

    controller = Controller("pods", reconcile, queue=WorkQueue(clock, base=1.0), report=report)
    outcomes |= {"ok": None, "later": 60.0, "wait": errors.Wait("port DOWN", 5.0)}
    outcomes |= {"refused": errors.Refused("no subnet"), "bug": KeyError("oops")}
    outcomes |= {"busy": errors.CloudError("busy", status=503, retry_after=7.0)}
    for key in outcomes:
        await controller.step(key)
    due = {key: delayed.due for key, delayed in controller.queue._delayed.items()}
    assert due["wait"] == 5.0
    assert due["later"] == 60.0
    assert due["refused"] == 5.0
    assert 0.9 <= due["bug"] <= 1.0
    assert due["busy"] == 7.0
    assert "ok" not in due
    assert told == {
        "ok": ("NoneType", 0),
        "later": ("NoneType", 0),
        "refused": ("Refused", 1),
        "bug": ("KeyError", 1),
        "busy": ("CloudError", 1),
    }


async def test_refusal_is_asked_about_again_soon_and_then_seldom():
    clock, outcomes = ManualClock(), iter(["down", "no", "no", "down", "no"])
    errors_of = {"down": errors.CloudError("down"), "no": errors.Refused("no")}
    seen = []

    async def reconcile(key):
        raise errors_of[next(outcomes)]

    controller = Controller("pods", reconcile, queue=WorkQueue(clock, base=0.001))
    for _ in range(5):
        await controller.step("pod")
        seen.append(controller.queue._delayed.pop("pod").due)
    assert [round(due) for due in seen] == [0, 5, 30, 0, 5]


async def test_reconcile_that_hangs_ends_at_its_deadline_and_is_tried_again():
    clock = ManualClock()

    async def reconcile(key):
        await asyncio.Event().wait()

    controller = Controller("pods", reconcile, queue=WorkQueue(clock), deadline=0.01)
    await controller.step("pod")
    assert "pod" in controller.queue._delayed


@pytest.mark.parametrize("failures", [1, 2, 5, 40])
def test_backoff_doubles_up_to_its_cap(failures):
    queue = WorkQueue(ManualClock(), base=0.5, cap=300.0)
    for _ in range(failures):
        delay = queue.retry("pod")
    expected = min(300.0, 0.5 * 2 ** (failures - 1))
    assert 0.9 * expected <= delay <= expected


def test_calm_key_stays_calm_while_it_fails_and_waits():
    clock = ManualClock()
    queue = WorkQueue(clock, base=1.0)
    for key, again in [("failed", queue.retry), ("early", lambda key: queue.add_after(key, 2.0))]:
        queue.add(key, urgent=False)
        assert queue.take() == key
        again(key)
        queue.done(key)
    clock.advance(10.0)
    queue.add("pod")
    assert [queue.take() for _ in range(3)] == ["pod", "failed", "early"]


@pytest.mark.parametrize("again", [WorkQueue.wake, WorkQueue.revisit])
@pytest.mark.parametrize("urgent", [False, True])
@pytest.mark.parametrize("when", ["queued", "active", "waiting"])
def test_key_that_is_woken_or_visited_again_stays_as_urgent_as_it_is(when, urgent, again):
    """After a start hundreds wait for the same thing, and nobody for most of them."""
    queue = WorkQueue(ManualClock())
    queue.add("service", urgent=urgent)
    if when != "queued":
        queue.take()
    if when == "waiting":
        queue.add_after("service", 60.0)
        queue.done("service")
    again(queue, "service")
    if when == "active":
        queue.done("service")
    queue.take()
    assert queue.is_urgent("service") == urgent


def test_visit_is_calm_where_nobody_waits():
    queue = WorkQueue(ManualClock())
    queue.revisit("service")
    queue.wake("pod")
    assert [queue.take() for _ in range(2)] == ["pod", "service"]
    assert queue.is_urgent("pod")
    assert not queue.is_urgent("service")


def test_urgent_key_stays_urgent_while_it_fails():
    clock = ManualClock()
    queue = WorkQueue(clock, base=1.0)
    queue.add("pod")
    queue.retry(queue.take())
    queue.done("pod")
    queue.add("resync", urgent=False)
    clock.advance(1.0)
    assert queue.take() == "pod"


async def test_urgent_key_finds_a_worker_however_many_calm_ones_are_stuck():
    gate, served = asyncio.Event(), asyncio.Event()

    async def reconcile(key):
        if key == "pod":
            served.set()
        await gate.wait()

    controller = Controller("pods", reconcile, workers=4)
    for number in range(10):
        controller.queue.add(f"release-{number}", urgent=False)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(controller.run())
        for _ in range(20):
            await asyncio.sleep(0)  # whoever may begin has begun
        assert controller.queue.active == 3
        controller.queue.add("pod")
        await served.wait()
        gate.set()
        task.cancel()


async def test_calm_key_finds_a_worker_however_many_urgent_ones_wait():
    """What is released may be what they wait for."""
    released = asyncio.Event()

    async def reconcile(key):
        if key == "release":
            released.set()
        await released.wait()

    controller = Controller("pods", reconcile, workers=4)
    for number in range(10):
        controller.queue.add(f"pod-{number}")
    controller.queue.add("release", urgent=False)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(controller.run())
        await released.wait()
        task.cancel()


def _outage(api="neutron"):
    error = errors.CloudError("busy", status=503)
    error.api = api
    return error


async def test_keys_that_an_outage_delayed_come_back_with_the_answers_of_the_api():
    clock, down = ManualClock(), True

    async def reconcile(key):
        if down:
            raise _outage("octavia" if key == "service" else "neutron")

    controller = Controller("pods", reconcile, queue=WorkQueue(clock, base=300.0))
    keys = [f"pod-{number}" for number in range(5)]
    for key in (*keys, "service"):
        controller.queue.add(key)
        await controller.step(controller.queue.take())
        controller.queue.done(key)
    down = False
    returned = []
    for _ in range(3):
        controller.resume("neutron")
        returned.append([controller.queue.take() for _ in range(len(controller.queue))])
    assert returned == [keys[:2], keys[2:4], keys[4:]]


async def test_refused_key_does_not_come_back_with_the_answers_of_the_api():
    async def reconcile(_key):
        raise errors.BadRequest("no such subnet", status=400)

    controller = Controller("pods", reconcile, queue=WorkQueue(ManualClock()))
    controller.queue.add("pod")
    await controller.step(controller.queue.take())
    controller.queue.done("pod")
    controller.resume("neutron")
    assert not len(controller.queue)
