"""The clock of the program, handed to whatever waits, so that tests can turn it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Protocol


class TimerHandle(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Call nothing; a call that was made already stays made."""


class Clock(Protocol):
    """Seconds that only ever grow, and ways to wait for them."""

    def now(self) -> float:
        """Return the seconds since some fixed moment."""

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Call back after so many seconds."""


class LoopClock:
    """The machine's clock that nobody sets, and the timers of the running event loop.

    It goes on while the machine is suspended, as the event loop's own clock does not: the Lease
    runs out meanwhile. Timers come late by that time.
    """

    def now(self) -> float:
        """Return the seconds since the machine was booted; threads ask for it, too."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run for so many seconds."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Have the event loop call back after so many seconds."""
        return asyncio.get_running_loop().call_later(seconds, callback)


CLOCK = LoopClock()


@asynccontextmanager
async def timeout(clock: Clock, seconds: float) -> AsyncGenerator[Callable[[float], None]]:
    """End the body with a TimeoutError after so many seconds of the clock.

    :returns: what to call with another number of seconds, which count from that moment.
    """
    loop = asyncio.get_running_loop()
    timer: TimerHandle | None = None
    async with asyncio.timeout(None) as scope:

        def give(seconds: float) -> None:
            nonlocal timer
            if timer is not None:
                timer.cancel()
            timer = clock.call_later(seconds, lambda: scope.reschedule(loop.time()))

        give(seconds)
        try:
            yield give
        finally:
            if timer is not None:
                timer.cancel()
