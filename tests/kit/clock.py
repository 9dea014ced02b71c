"""A clock that stands still until a test turns it."""

import asyncio
import dataclasses


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
