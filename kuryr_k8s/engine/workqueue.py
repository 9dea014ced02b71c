"""A queue of keys, not of events.

The queue guarantees three things, on which handlers rely:

1. A key is in the queue at most once, however often it is added.

2. At most one worker has a key at a time. A key that is added meanwhile is queued again when the
worker calls :meth:`WorkQueue.done`.

3. A failing key is delayed exponentially, and does not slow down other keys.

Keys that somebody waits for (``urgent``, the default) go before the others, which are calm. A key
stays what it is while it fails and is tried again.
"""

import asyncio
import math
import random
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from kuryr_k8s.engine.clock import CLOCK, Clock, TimerHandle

K = TypeVar("K", bound=Hashable)


class _Delayed(NamedTuple):
    handle: TimerHandle
    due: float
    urgent: bool


class WorkQueue(Generic[K]):
    """A queue of keys, see the module.

    :param base: Shortest back-off in seconds.
    :param cap: Longest back-off in seconds.
    """

    def __init__(self, clock: Clock = CLOCK, *, base: float = 0.5, cap: float = 300.0) -> None:
        self._clock = clock
        self._base = base
        self._cap = cap
        self._urgent: dict[K, None] = {}  # ordered sets
        self._calm: dict[K, None] = {}
        self._active: dict[K, bool] = {}  # key -> urgent
        self._again: dict[K, bool] = {}  # to queue at done(): key -> urgent
        self._delayed: dict[K, _Delayed] = {}
        self._failures: dict[K, int] = {}
        self._wakeup = asyncio.Event()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._calm)

    @property
    def active(self) -> int:
        """The number of keys that workers have."""
        return len(self._active)

    def add(self, key: K, *, urgent: bool = True) -> None:
        """Request a reconcile of ``key`` as soon as a worker is free."""
        self._cancel_timer(key)
        if key in self._active:
            self._again[key] = urgent or self._again.get(key, False)
        elif urgent:
            self._calm.pop(key, None)
            self._urgent[key] = None
        elif key not in self._urgent:
            self._calm[key] = None
        self._wakeup.set()

    def add_after(self, key: K, delay: float) -> None:
        """Request a reconcile in ``delay`` seconds, unless one is due earlier.

        A key that a worker has is as urgent then as it is now.
        """
        if key in self._urgent or key in self._calm or key in self._again:
            return
        due = self._clock.now() + delay
        urgent = self._active.get(key, True)
        delayed = self._delayed.get(key)
        if delayed is not None:
            if delayed.due <= due and delayed.urgent >= urgent:
                return
            due, urgent = min(due, delayed.due), urgent or delayed.urgent
        self._set_timer(key, due, urgent=urgent)

    def retry(self, key: K, *, at_least: float = 0.0) -> float:
        """Queue a failed key again, later each time.

        :returns: The delay in seconds.
        """
        failures = self._failures[key] = self.failures(key) + 1
        delay = min(self._cap, self._base * 2.0 ** min(failures - 1, 30))
        delay = max(at_least, delay * random.uniform(0.9, 1.0))
        self.add_after(key, delay)
        return delay

    def failures(self, key: K) -> int:
        """Return the number of failures of the key since its last success."""
        return self._failures.get(key, 0)

    def hasten(self, key: K) -> None:
        """Request the reconcile that is due later as soon as a worker is free."""
        if delayed := self._delayed.get(key):
            self.add(key, urgent=delayed.urgent)

    def wake(self, key: K) -> None:
        """Request a reconcile of a key that waited; it stays as urgent as it is."""
        self._add_as_it_is(key, otherwise=True)

    def revisit(self, key: K) -> None:
        """Request a reconcile that nobody waits for; a key that waits stays as urgent as it is."""
        self._add_as_it_is(key, otherwise=False)

    def _add_as_it_is(self, key: K, *, otherwise: bool) -> None:
        """Request a reconcile.

        :param otherwise: whether it is urgent if the queue does not know it.
        """
        urgent = self._active.get(key, key not in self._calm and otherwise)
        if (delayed := self._delayed.get(key)) is not None:
            urgent = delayed.urgent
        self.add(key, urgent=urgent)

    def forget(self, key: K) -> None:
        """Reset the back-off of a key that succeeded."""
        self._failures.pop(key, None)

    async def get(self, *, most: float = math.inf) -> K:
        """Take the next key; the caller must call :meth:`done`.

        :param most: the most keys of one kind that workers may have, so that an urgent one that
            comes finds a worker; and calm ones if there are always urgent ones, since what is
            released may be what the urgent ones wait for.
        """
        while (urgent := self._is_next_urgent(most)) is None:
            self._wakeup.clear()
            await self._wakeup.wait()
        return self.take(urgent=urgent)

    def _is_next_urgent(self, most: float) -> bool | None:
        """Return of which kind the next key is; None if there is none for now."""
        taken = sum(self._active.values())
        if self._urgent and (taken < most or not self._calm):
            return True
        if self._calm and len(self._active) - taken < most:
            return False
        return None

    def take(self, *, urgent: bool | None = None) -> K:
        """Take the next key of a queue that is not empty.

        :param urgent: of which kind; None: an urgent one, if there is one.
        """
        if urgent is None:
            urgent = bool(self._urgent)
        ready = self._urgent if urgent else self._calm
        key = next(iter(ready))
        del ready[key]
        self._active[key] = urgent
        return key

    def is_urgent(self, key: K) -> bool:
        """Return whether somebody waits for a key that a worker has."""
        return self._active.get(key, True)

    def done(self, key: K) -> None:
        """Release a key that was taken with :meth:`get`."""
        del self._active[key]
        if key in self._again:
            self.add(key, urgent=self._again.pop(key))
        self._wakeup.set()

    def _set_timer(self, key: K, due: float, *, urgent: bool) -> None:
        self._cancel_timer(key)
        delay = max(0.0, due - self._clock.now())
        handle = self._clock.call_later(delay, lambda: self.add(key, urgent=urgent))
        self._delayed[key] = _Delayed(handle, due, urgent)

    def _cancel_timer(self, key: K) -> None:
        if delayed := self._delayed.pop(key, None):
            delayed.handle.cancel()
