"""Clocks that tests turn."""

import asyncio
import dataclasses

from kuryr_k8s.engine.clock import LoopClock


@dataclasses.dataclass(eq=False)
class Timer:
    """A call that is due later."""

    clock: "ManualClock"
    due: float
    callback: object

    def cancel(self):
        if self in self.clock.pending:
            self.clock.pending.remove(self)


@dataclasses.dataclass
class ManualClock:
    """A :class:`kuryr_k8s.engine.clock.Clock` whose hands tests move."""

    seconds: float = 0.0
    pending: list = dataclasses.field(default_factory=list)

    def now(self):
        return self.seconds

    async def sleep(self, seconds):
        woken = asyncio.Event()
        self.call_later(seconds, woken.set)
        await woken.wait()

    def call_later(self, seconds, callback):
        timer = Timer(self, self.seconds + seconds, callback)
        self.pending.append(timer)
        return timer

    def advance(self, seconds):
        """Move on, and make the calls that are due by then, in their order."""
        self.seconds += seconds
        for timer in sorted(self.pending, key=lambda timer: timer.due):
            if timer.due <= self.seconds and timer in self.pending:
                self.pending.remove(timer)
                timer.callback()


class SkippingClock(LoopClock):
    """The machine's clock, for one program; a test can have it skip seconds."""

    def __init__(self):
        self._skipped = 0.0
        self._timers = set()

    def now(self):
        return super().now() + self._skipped

    async def sleep(self, seconds):
        woken = asyncio.Event()
        timer = self.call_later(seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    def call_later(self, seconds, callback):
        timer = SkippedTimer(self._timers, self.now() + seconds, callback)
        timer.start(seconds)
        return timer

    def skip(self, seconds):
        """Be so much later from now on: what is due by then is called soon."""
        self._skipped += seconds
        for timer in tuple(self._timers):
            timer.start(timer.due - self.now())


@dataclasses.dataclass(eq=False)
class SkippedTimer:
    """A call that is due later, by a :class:`SkippingClock`."""

    timers: set
    due: float
    callback: object
    handle: object = None

    def start(self, seconds):
        if self.handle is not None:
            self.handle.cancel()
        self.timers.add(self)
        self.handle = asyncio.get_running_loop().call_later(max(0.0, seconds), self._fire)

    def cancel(self):
        self.handle.cancel()
        self.timers.discard(self)

    def _fire(self):
        self.timers.discard(self)
        self.callback()
