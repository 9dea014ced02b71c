"""Limits of calls: in flight, and a second; watches' and Pods' first, projects in turn.

A limit of calls in flight falls and rises as TCP's congestion window does. It is halved when the
API answers that it is overloaded, or does not answer. It rises by one after as many answers as it
allows calls.
"""

import asyncio
import contextlib
import enum
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar

from kuryr_k8s.engine.budget import Budget
from kuryr_k8s.engine.fair_queue import FairQueue

# 0: no answer in time, or no connection; 429: too many requests; 503: not able to serve now;
# 504: a proxy in front of the API got no answer in time.
OVERLOAD = frozenset({0, 429, 503, 504})


class Priority(enum.IntEnum):
    """Purpose of a call: the lower the value, the sooner the call gets a slot.

    A Controller reconciles urgent keys as POD and others as CLEANUP, unless the work sets another
    priority.
    """

    WATCH = 0  # it tells many others that they can go on
    POD = 1  # a Pod waits for it
    REFILL = 2
    CLEANUP = 3


CLEANUP = Priority.CLEANUP
OTHERS = 8  # calls that begin between two of clean-up, where seconds limit them
_PRIORITY: ContextVar[Priority] = ContextVar("priority", default=Priority.POD)


@contextlib.contextmanager
def prioritized(priority: Priority) -> Iterator[None]:
    """Set the priority of all calls made in this block, also by tasks started in it."""
    token = _PRIORITY.set(priority)
    try:
        yield
    finally:
        _PRIORITY.reset(token)


def current_priority() -> Priority:
    """Return the priority of the calls that are made here."""
    return _PRIORITY.get()


_PROJECT: ContextVar[str] = ContextVar("project", default="")


@contextlib.contextmanager
def on_behalf_of(project_id: str) -> Iterator[None]:
    """Let all calls made in this block take turns with those of other projects."""
    token = _PROJECT.set(project_id)
    try:
        yield
    finally:
        _PROJECT.reset(token)


class AdaptiveLimit:
    """Slots for calls, given out by priority; within a priority, projects take turns.

    Only watches' and Pods' calls may take every slot. The others leave a quarter of the slots
    free (at least one, if there are two or more), so that those need not wait until one of theirs
    has ended. While a call of higher priority waits, none of lower begins, but for one: of three
    slots or more, one is for clean-up, which frees what others may wait for.

    :param maximum: Number of slots at the beginning; there are never more.
    :param minimum: Number of slots that are left however overloaded the API is.
    :param budget: Of the calls that may begin in a second; None: as many as there are slots.
    """

    def __init__(self, maximum: int, *, minimum: int = 1, budget: Budget | None = None) -> None:
        if not 1 <= minimum <= maximum:
            raise ValueError(f"a limit of {minimum} to {maximum} calls makes no sense")
        self._maximum, self._minimum = maximum, minimum
        self._value = maximum
        self._window = 0  # rises whenever the limit falls
        self._answered = 0  # calls of this window since the limit was last changed
        self._in_flight = dict.fromkeys(Priority, 0)
        self._waiting: dict[Priority, FairQueue[asyncio.Future[None]]] = {
            priority: FairQueue() for priority in Priority
        }
        self._budget = budget
        self._timer: asyncio.TimerHandle | None = None
        self._since_cleanup = 0  # calls of other priorities that have begun

    @property
    def value(self) -> int:
        """The number of slots at present; right after a fall, more calls may be in flight."""
        return self._value

    @property
    def taken(self) -> int:
        """The number of calls in flight."""
        return sum(self._in_flight.values())

    def in_flight(self, priority: Priority) -> int:
        """Return the number of slots that calls of this priority have."""
        return self._in_flight[priority]

    @property
    def projects_waiting(self) -> int:
        """The number of projects whose calls wait, in all priorities."""
        return sum(queue.owners for queue in self._waiting.values())

    def waiting(self, priority: Priority) -> int:
        """Return the number of callers of this priority that wait for a slot."""
        return len(self._waiting[priority])

    @contextlib.asynccontextmanager
    async def slot(self, priority: Priority) -> AsyncIterator["Slot"]:
        """Wait for a slot and hold it for the length of one call."""
        await self._enter(priority)
        try:
            yield Slot(self, self._window)
        finally:
            self._leave(priority)

    async def _enter(self, priority: Priority) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        project = _PROJECT.get()
        self._waiting[priority].append(project, turn)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it got the slot at the same moment
                self._leave(priority)
            else:
                self._waiting[priority].discard(project, turn)
            raise

    def _leave(self, priority: Priority) -> None:
        self._in_flight[priority] -= 1
        self._admit()

    def _admit(self) -> None:
        """Give free slots to the callers that may have them."""
        if self._value - self._kept() > 1 and self._is_turn_of_cleanup():
            self._begin(Priority.CLEANUP, 1)
        for priority, queue in self._waiting.items():
            self._begin(priority, len(queue))
            if queue:
                return  # nor has it room for later callers

    def _is_turn_of_cleanup(self) -> bool:
        """Return whether a call of clean-up goes before others.

        Where it is seconds that limit calls, it would get all of them: so others go in between.
        """
        if self._in_flight[Priority.CLEANUP]:
            return False
        others = (queue for priority, queue in self._waiting.items() if priority < CLEANUP)
        return self._budget is None or self._since_cleanup >= OTHERS or not any(others)

    def _begin(self, priority: Priority, most: int) -> None:
        """Give slots to the first ``most`` callers of this priority, as far as there are any."""
        queue, end = self._waiting[priority], self._in_flight[priority] + most
        while queue and self._in_flight[priority] < end and self._has_room(priority):
            turn = queue.peek()
            if turn.done():  # its caller gave up
                queue.popleft()
                continue
            if not self._may_begin():
                return
            queue.popleft()
            self._in_flight[priority] += 1
            self._since_cleanup = 0 if priority is CLEANUP else self._since_cleanup + 1
            turn.set_result(None)

    def _may_begin(self) -> bool:
        """Return whether the budget of this second allows a call; else look again in time."""
        if self._budget is None or self._budget.take(1):
            return True
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._budget.delay(1), self._look_again)
        return False

    def _look_again(self) -> None:
        self._timer = None
        self._admit()

    def _has_room(self, priority: Priority) -> bool:
        if self.taken >= self._value:
            return False
        others = self._in_flight[Priority.REFILL] + self._in_flight[Priority.CLEANUP]
        return priority <= Priority.POD or others < self._value - self._kept()

    def _kept(self) -> int:
        """Return the number of slots for watches and Pods alone; 0 of a single slot."""
        return min(max(1, self._value // 4), self._value - 1)

    def answered(self, status: int, window: int) -> None:
        """Adapt the limit to the outcome of a call of this window; see :class:`Slot`."""
        if window != self._window:
            return  # it says nothing about the API since the limit fell
        if status in OVERLOAD:
            self._value = max(self._minimum, self._value // 2)
            self._window += 1
            self._answered = 0
            return
        self._answered += 1
        if self._answered >= self._value < self._maximum:
            self._value += 1
            self._answered = 0


class Slot:
    """The right to make one call.

    All calls that are in flight when the limit falls count once: their other failures, and their
    successes, are signs of the same overload.
    """

    def __init__(self, limit: AdaptiveLimit, window: int) -> None:
        self._limit, self._window = limit, window

    def answered(self, status: int) -> None:
        """Report the HTTP status before the slot is left; 0: there was no answer."""
        self._limit.answered(status, self._window)
