"""How far the API server's clock is ahead of ours, by the header ``Date`` of its answers.

All clocks of a virtual machine stand still while it is paused, and nothing in it can tell. The
first answer of the API server after that can: its clock is further ahead than it was.
"""

import math
from email.utils import parsedate_to_datetime

from kuryr_k8s.engine.clock import Clock


class ServerClock:
    """The greatest difference between both clocks in the last two periods.

    The greatest one, because an answer that took long makes it too small, and because several API
    servers may differ. Not for ever, because clocks are corrected.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before = self._now = -math.inf  # in the period before this one, and in this one

    @property
    def ahead(self) -> float:
        """Seconds by which the server's clock is ahead of ours, or -inf if it never told."""
        return max(self._before, self._now)

    def hear(self, date: str) -> None:
        """Note the ``Date`` of an answer that has just come; one that is none says nothing."""
        try:
            seconds = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return
        self._now = max(self._now, seconds - self._clock.now())

    def begin_period(self) -> None:
        """Forget the period before this one."""
        if self._now != -math.inf:
            self._before, self._now = self._now, -math.inf
