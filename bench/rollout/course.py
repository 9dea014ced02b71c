"""The course of a rollout: to which Pods was forwarded, and which requests would be lost."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.testbed.forwarding import State

INTERVAL = 0.05  # seconds between two requests to each VIP and port


@dataclass(frozen=True)
class Course:
    """The course of a rollout.

    :param states: to which Pods was forwarded; the first state is from before the rollout.
    :param ended: when each Pod ended.
    :param last: when the last Pod was replaced.
    :param writes: to Octavia.
    :param calls: of Octavia, writes included.
    """

    states: Sequence[State]
    ended: Mapping[str, float]
    begin: float
    last: float
    end: float
    writes: int
    calls: int

    @property
    def asked(self) -> int:
        """The number of requests of clients that never pause."""
        return len(self.states[0].fronts) * len(self._moments())

    @property
    def lost(self) -> int:
        """The number of them that would be sent to a Pod that has ended, or to none.

        The requests of a client go to the Pods in turn.
        """
        since = [state.since for state in self.states]
        lost = 0
        for number, moment in enumerate(self._moments()):
            state = self.states[max(0, bisect.bisect_right(since, moment) - 1)]
            for front in self.states[0].fronts:
                pods = state.serving(front)
                served = bool(pods) and self._lives(pods[number % len(pods)], moment)
                lost += not served
        return lost

    @property
    def dead(self) -> int:
        """The most Pods of one VIP and port that had ended and were forwarded to."""
        return max(
            sum(not self._lives(pod, moment) for pod in state.serving(front))
            for state, then in itertools.zip_longest(self.states, self.states[1:])
            for moment in (state.since, *self.ended.values())
            if state.since <= moment < (then.since if then else self.end)
            for front in state.fronts
        )

    @property
    def settled(self) -> float:
        """Seconds from the last Pod's replacement until it was as it is at the end."""
        final = self.states[-1]
        since = final.since
        for state in reversed(self.states):
            if any(state.serving(front) != final.serving(front) for front in final.fronts):
                break
            since = state.since
        return max(0.0, since - self.last)

    def _moments(self) -> list[float]:
        count = int((self.end - self.begin) / INTERVAL)
        return [self.begin + number * INTERVAL for number in range(count)]

    def _lives(self, pod: str, moment: float) -> bool:
        return moment < self.ended.get(pod, float("inf"))
