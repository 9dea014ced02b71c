"""How much work that can wait is given to an API: so much per second, with short bursts."""

import math
import time
from collections.abc import Callable

# Part of a token: who comes right after the delay is not to be sent away by a rounding error.
_ROUNDING = 1e-6


class Budget:
    """A token bucket, full at the beginning. It never sleeps: who gets nothing comes again.

    :param rate: tokens per second.
    :param burst: tokens that gather at the most while nobody takes any.
    :param clock: seconds, never falling.
    """

    def __init__(
        self, rate: float, burst: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError(f"a budget of {rate} per second, {burst} at once, is none")
        self._rate, self._burst, self._clock = rate, burst, clock
        self._tokens, self._counted = float(burst), clock()

    def take(self, count: int) -> int:
        """Take up to ``count`` tokens; how many there were."""
        self._gather()
        granted = min(count, math.floor(self._tokens + _ROUNDING))
        self._tokens -= granted
        return granted

    def delay(self, count: int) -> float:
        """Seconds until ``count`` tokens (or as many as ever gather) can be taken."""
        self._gather()
        return max(0.0, (min(count, self._burst) - self._tokens) / self._rate)

    def _gather(self) -> None:
        now = self._clock()
        gathered = self._tokens + (now - self._counted) * self._rate
        self._tokens, self._counted = min(float(self._burst), gathered), now
