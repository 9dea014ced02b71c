"""Budgets for work that can wait: so many calls per second, with short bursts."""

import math
import time
from collections.abc import Callable

# Part of a token: a rounding error must not turn away a caller that comes right after the delay.
_ROUNDING = 1e-6


class Budget:
    """A token bucket that is full at the beginning and never sleeps.

    A caller that gets nothing comes again.

    :param rate: Tokens per second.
    :param burst: Maximum number of tokens that gather while nobody takes any.
    :param clock: Seconds that never decrease.
    """

    def __init__(
        self, rate: float, burst: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError(f"a budget of {rate} per second, {burst} at once, is none")
        self._rate, self._burst, self._clock = rate, burst, clock
        self._tokens, self._counted = float(burst), clock()

    def take(self, count: int) -> int:
        """Take up to ``count`` tokens.

        :returns: The number of tokens that were taken.
        """
        self._gather()
        granted = min(count, math.floor(self._tokens + _ROUNDING))
        self._tokens -= granted
        return granted

    def delay(self, count: int) -> float:
        """Return the seconds until ``count`` tokens can be taken, or as many as ever gather."""
        self._gather()
        return max(0.0, (min(count, self._burst) - self._tokens) / self._rate)

    def _gather(self) -> None:
        now = self._clock()
        gathered = self._tokens + (now - self._counted) * self._rate
        self._tokens, self._counted = min(float(self._burst), gathered), now
