"""One case of `bench pods` or `bench ancestor`: what was dialled, and what was measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.pods.floor import Floor
from bench.pods.load import Cost, Lives
from bench.report import percentile


@dataclass(frozen=True)
class Case:
    """`number` Pods at once, once or several times, with a `pool` of ports or without (noop).

    Neutron takes `latency` seconds a call and `per_port` more for each port that it makes; a port
    is ACTIVE `after` so many seconds on the node.
    """

    pool: str
    latency: float
    per_port: float
    after: float
    number: int
    lives: list[Lives]
    cost: Cost

    @property
    def dialled(self) -> dict[str, float]:
        """Seconds that the cloud takes at the least: one call, where no pool has the port or
        takes it back, and its way to ACTIVE."""
        call = self.latency + self.per_port
        made = 0.0 if self.pool == "warm" else call
        freed = self.latency if self.pool == "noop" else 0.0
        return {"plugged": made, "active": made + self.after, "gone": freed}

    def above(self, what: str) -> tuple[float, float]:
        """Seconds beyond what was dialled: of the median Pod, and of all together."""
        dialled = self.dialled[what]
        return self.spread(what)[0] - dialled, self.total(what) - dialled

    @property
    def pods(self) -> int:
        """How many Pods lived in all."""
        return self.number * len(self.lives)

    @property
    def neutron(self) -> float:
        """Calls of Neutron in a Pod's life."""
        return sum(self.cost.neutron.values()) / self.pods

    @property
    def on_way(self) -> float:
        """Calls of Neutron for each Pod until all were ACTIVE, whoever waited for them."""
        return sum(lives.calls_on_way for lives in self.lives) / self.pods

    @property
    def writes(self) -> float:
        """Writes to Kubernetes in a Pod's life, the controller's and the daemon's."""
        return (self.cost.writes + self.cost.node_writes) / self.pods

    @property
    def reads(self) -> float:
        """Single objects that the controller read in a Pod's life."""
        return self.cost.reads / self.pods

    def spread(self, what: str) -> tuple[float, float]:
        """p50 and p99 of all Pods, of `plugged`, `active` or `gone`; seconds."""
        values = [value for lives in self.lives for value in getattr(lives, what)]
        return percentile(values, 0.5), percentile(values, 0.99)

    def slowest(self, what: str) -> float:
        """Seconds of the Pod that waited longest."""
        return float(max(max(getattr(lives, what)) for lives in self.lives))

    def total(self, what: str) -> float:
        """Seconds for all Pods together; the median of several plays."""
        return float(median(getattr(lives, f"{what}_all") for lives in self.lives))

    def figures(self, floor: Floor) -> dict[str, Any]:
        """Every number."""
        names = ("plugged", "active", "gone")
        spreads = {
            f"{name}_{share}": value
            for name in names
            for share, value in zip(("p50", "p99"), self.spread(name), strict=True)
        }
        totals = {f"{name}_total": self.total(name) for name in ("created", *names)}
        times = {name: self.total(name) / floor.coming for name in ("plugged", "active")}
        times["gone"] = self.total("gone") / floor.going
        above = {name: self.above(name) for name in names}
        return {
            "pool": self.pool,
            "active_after": self.after,
            "latency": self.latency,
            "latency_per_port": self.per_port,
            "pods": self.number,
            "plays": len(self.lives),
            **{f"{name}_seconds": value for name, value in (spreads | totals).items()},
            **{f"{name}_p50_above_seconds": values[0] for name, values in above.items()},
            **{f"{name}_total_above_seconds": values[1] for name, values in above.items()},
            "floor_seconds": floor.coming,
            "floor_of_deletion_seconds": floor.going,
            **{f"{name}_to_floor": value for name, value in times.items()},
            "neutron_calls_per_pod": self.neutron,
            "neutron_calls_on_the_way_per_pod": self.on_way,
            "kubernetes_writes_per_pod": self.writes,
            "kubernetes_reads_per_pod": self.reads,
            **asdict(self.cost),
        }
