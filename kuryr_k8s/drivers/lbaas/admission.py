"""Admission of changes: no more is PENDING at a time than Octavia's provider works off.

A provider's queue is first in, first out: what is handed over too early holds up what matters more
by the time its turn comes. So what is wanted waits here, and whoever needs it most goes first: a
load balancer with members before an empty one, and the deletion of what never served last. What is
not wanted any more by then is never sent.

The limit is found by how long changes take. It doubles while they take as long as they ever do,
and falls when they queue up. It rises only while it is made use of: calm times tell nothing of how
much the provider can do at a time.
"""

import bisect
import contextlib
import enum
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kuryr_k8s import errors
from kuryr_k8s.engine.clock import Clock
from kuryr_k8s.model.owner import Owner

FIRST, LEAST, MOST = 8.0, 2.0, 64.0  # changes at a time
SLOW, SHORT = 3.0, 2.0  # times the shortest change, and seconds, from which on changes queue up
WINDOW = 300.0  # seconds: the shortest change is that of this window, and of the one before
LESS = 0.7
AGAIN = 5.0  # seconds until an owner that waits looks by itself
LOST = 3 * AGAIN  # seconds after which one that did not look does not count any more
# seconds, or times the shortest change, after which a change is stuck, and not in the queue
STUCK, STUCK_TIMES = 30.0, 20.0
AGE = 30.0  # seconds of waiting that are worth as much as the next higher urgency


class Urgency(enum.IntEnum):
    """How much a change is needed: the lower, the sooner."""

    SERVING = 0  # somebody waits for an answer
    USUAL = 1  # a load balancer without members is made, or one that served goes
    NEVER_SERVED = 2  # one that never served goes


@dataclass(slots=True, eq=False)
class _Waiting:
    """One that waits.

    :param looked: when it tried last.
    """

    owner: Owner
    urgency: Urgency
    since: float
    looked: float

    @property
    def place(self) -> float:
        """Its place in the order, the lower the sooner. It stays the same as time goes by."""
        return self.urgency * AGE + self.since


class _Line:
    """Those that wait, in the order of their turns."""

    def __init__(self) -> None:
        self._waiting: dict[Owner, _Waiting] = {}
        self._order: list[_Waiting] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, owner: Owner, urgency: Urgency, now: float) -> _Waiting:
        """Let an owner wait, or wait on with another urgency."""
        known = self._waiting.get(owner)
        if known is not None and known.urgency == urgency:
            known.looked = now
            return known
        self.leave(owner)
        waiting = _Waiting(owner, urgency, now if known is None else known.since, now)
        self._waiting[owner] = waiting
        bisect.insort(self._order, waiting, key=lambda each: each.place)
        return waiting

    def leave(self, owner: Owner) -> None:
        """Let an owner wait no more."""
        if (waiting := self._waiting.pop(owner, None)) is not None:
            index = bisect.bisect_left(self._order, waiting.place, key=lambda each: each.place)
            del self._order[self._order.index(waiting, index)]

    def first(self, count: int, now: float) -> list[_Waiting]:
        """Return the first so many that wait; those that come no more are dropped."""
        first: list[_Waiting] = []
        while len(first) < min(count, len(self._order)):
            waiting = self._order[len(first)]
            if now - waiting.looked > LOST:
                self.leave(waiting.owner)
            else:
                first.append(waiting)
        return first


class Admission:
    """Decides who may send a change.

    :param pending: returns how many load balancers are PENDING, and have been for no longer than
        so many seconds.
    :param wake: called for an owner that may try again.
    """

    def __init__(
        self, clock: Clock, pending: Callable[[float], int], wake: Callable[[Owner], None]
    ) -> None:
        self._clock = clock
        self._pending = pending
        self._wake = wake
        self._limit = FIRST
        self._grows = True  # nothing has queued up yet
        self._window = clock.now()  # its begin
        self._shortest = [math.inf, math.inf]  # in the window before, and in this one
        self._ended = 0  # changes since the limit fell
        self._sending: set[Owner] = set()
        self._line = _Line()

    @property
    def limit(self) -> int:
        """The most load balancers that may be PENDING."""
        return int(self._limit)

    @property
    def waiting(self) -> int:
        """How many owners wait for their turn."""
        return len(self._line)

    def check(self, owner: Owner, urgency: Urgency) -> None:
        """Make sure that it is the owner's turn, before a change is prepared by calls.

        :raises errors.Wait: enough is PENDING, or others need it more.
        """
        now = self._clock.now()
        mine = self._line.join(owner, urgency, now)
        if mine not in self._line.first(self._free(), now):
            raise errors.Wait("Octavia has enough to do", delay=AGAIN)

    @contextlib.contextmanager
    def sending(self, owner: Owner, urgency: Urgency) -> Iterator[None]:
        """Send a change in this block; what becomes PENDING by it is watched at its end.

        :raises errors.Wait: enough is PENDING, or others need it more.
        """
        self.check(owner, urgency)
        self._line.leave(owner)
        self._sending.add(owner)
        try:
            yield
        finally:
            self._sending.discard(owner)

    def forget(self, owner: Owner) -> None:
        """Let the owner wait no more."""
        self._line.leave(owner)

    def ended(self, durations: list[float]) -> None:
        """Adapt the limit to changes that have ended, and wake those whose turn it is.

        :param durations: seconds that each has taken.
        """
        at_work = self._pending(math.inf) + len(self._sending) + len(durations)
        for seconds in durations:
            self._adapt(seconds, at_work)
        for waiting in self._line.first(self._free(), self._clock.now()):
            self._wake(waiting.owner)

    def _free(self) -> int:
        shortest = min(self._shortest)
        stuck_after = max(STUCK, STUCK_TIMES * shortest if shortest < math.inf else 0.0)
        return self.limit - self._pending(stuck_after) - len(self._sending)

    def _adapt(self, seconds: float, at_work: int) -> None:
        """Adapt the limit to a change.

        :param at_work: how many load balancers were PENDING at its end.
        """
        now = self._clock.now()
        if now - self._window > WINDOW:
            self._window, self._shortest = now, [self._shortest[1], math.inf]
        self._shortest[1] = min(self._shortest[1], seconds)
        self._ended += 1
        if seconds > max(SLOW * min(self._shortest), SHORT):
            self._grows = False
            if self._ended >= self._limit:  # those sent before it fell say nothing new
                self._limit = max(LEAST, self._limit * LESS)
                self._ended = 0
        elif at_work * 2 > self._limit:
            self._limit = min(MOST, self._limit + (1.0 if self._grows else 1.0 / self._limit))
