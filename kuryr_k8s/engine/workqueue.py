"""A queue of keys, not of events.

The queue guarantees three things, on which handlers rely:

1. A key is in the queue at most once, however often it is added.

2. At most one worker has a key at a time. A key that is added meanwhile is queued again when the
worker calls :meth:`WorkQueue.done`.

3. A failing key is delayed exponentially, and does not slow down other keys.

Keys that somebody waits for (``urgent``, the default) go before the others.
"""

import asyncio
import random
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from kuryr_k8s.engine.clock import CLOCK, Clock, TimerHandle

K = TypeVar("K", bound=Hashable)


class _Delayed(NamedTuple):
    handle: TimerHandle
    due: float


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
        self._active: set[K] = set()
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
        """Request a reconcile in ``delay`` seconds, unless one is due earlier."""
        if key in self._urgent or key in self._calm or key in self._again:
            return
        due = self._clock.now() + delay
        delayed = self._delayed.get(key)
        if delayed is not None and delayed.due <= due:
            return
        self._cancel_timer(key)
        self._delayed[key] = _Delayed(self._clock.call_later(delay, lambda: self.add(key)), due)

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

    def forget(self, key: K) -> None:
        """Reset the back-off of a key that succeeded."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Take the next key; the caller must call :meth:`done`."""
        while not len(self):
            self._wakeup.clear()
            await self._wakeup.wait()
        return self.take()

    def take(self) -> K:
        """Take the next key of a queue that is not empty."""
        ready = self._urgent or self._calm
        key = next(iter(ready))
        del ready[key]
        self._active.add(key)
        return key

    def done(self, key: K) -> None:
        """Release a key that was taken with :meth:`get`."""
        self._active.remove(key)
        if key in self._again:
            self.add(key, urgent=self._again.pop(key))

    def _cancel_timer(self, key: K) -> None:
        if delayed := self._delayed.pop(key, None):
            delayed.handle.cancel()
