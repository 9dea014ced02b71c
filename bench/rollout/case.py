"""The cases of `bench rollout`: their conditions and what was measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bench.rollout.course import Course
from bench.services.case import Delays


@dataclass(frozen=True)
class RolloutCase:
    """A Deployment of `number` Pods that was replaced behind Services of a kind.

    A Pod was replaced every `every` seconds and served for `drain` seconds more. `floor` is the
    course that Octavia's delays allow at best; `kubernetes_writes` are the controller's.
    """

    kind: str
    delays: Delays
    number: int
    every: float
    drain: float
    course: Course
    floor: Course
    kubernetes_writes: int

    def __str__(self) -> str:
        return f"{self.delays.provider}, {self.kind}, preStop {self.drain:g} s"

    def each(self, count: int) -> float:
        """Return a count for each Pod that was replaced."""
        return count / self.number

    def figures(self) -> dict[str, Any]:
        """Return every number of the case."""
        return {
            "kind": self.kind,
            **asdict(self.delays),
            "pods": self.number,
            "every_seconds": self.every,
            "drain_seconds": self.drain,
            **_figures_of(self.course, ""),
            **_figures_of(self.floor, "floor_"),
            "kubernetes_writes": self.kubernetes_writes,
        }


def _figures_of(course: Course, prefix: str) -> dict[str, Any]:
    return {
        f"{prefix}{name}": getattr(course, name)
        for name in ("asked", "lost", "dead", "writes", "calls", "settled")
    }
