"""The cases of `bench pods` and `bench ancestor`: their conditions and what was measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.pods.floor import Floor
from bench.pods.load import Cost, PodTimes
from bench.report import percentile


@dataclass(frozen=True)
class Delays:
    """The configured delays of the cloud, in seconds.

    Neutron takes `latency` for each call and `per_port` more for each port that it creates. A port
    becomes ACTIVE `after` so long on its node; None if the nodes report nothing to the cloud.
    """

    latency: float
    per_port: float = 0.0
    after: float | None = None


@dataclass(frozen=True)
class Case:
    """A number of Pods created at once, in one or several runs, with a mode of the pool.

    :param interfaces: of each Pod.
    """

    pool: str
    delays: Delays
    number: int
    runs: list[PodTimes]
    cost: Cost
    interfaces: int = 1

    @property
    def latency(self) -> float:
        """Seconds that each call of Neutron takes."""
        return self.delays.latency

    @property
    def after(self) -> float:
        """Seconds from plugging until a port is ACTIVE."""
        return self.delays.after or 0.0

    @property
    def configured(self) -> dict[str, float]:
        """The least seconds that the configured delays allow until each step.

        One call, unless a pool has the port or takes it back, and the time until it is ACTIVE.
        """
        call = self.latency + self.delays.per_port
        creation = 0.0 if self.pool == "warm" else call
        deletion = self.latency if self.pool == "noop" else 0.0
        return {"plugged": creation, "active": creation + self.after, "gone": deletion}

    def above(self, step: str) -> tuple[float, float]:
        """Return the seconds beyond the configured ones: of the median Pod, and of all Pods."""
        configured = self.configured[step]
        return self.spread(step)[0] - configured, self.total(step) - configured

    @property
    def pods(self) -> int:
        """The number of Pods in all runs."""
        return self.number * len(self.runs)

    @property
    def neutron(self) -> float:
        """Neutron's calls for each Pod's whole life."""
        return sum(self.cost.neutron.values()) / self.pods

    @property
    def until_active(self) -> float:
        """Neutron's calls for each Pod until all were ACTIVE, those for a pool included."""
        return sum(times.calls_until_active for times in self.runs) / self.pods

    @property
    def cpu(self) -> float:
        """Seconds of the controller's processor for each Pod's whole life."""
        return self.cost.cpu_seconds / self.pods

    @property
    def writes(self) -> float:
        """Writes to Kubernetes for each Pod's whole life, by the controller and the daemon."""
        return (self.cost.writes + self.cost.node_writes) / self.pods

    @property
    def reads(self) -> float:
        """Single objects that the controller read for each Pod's whole life."""
        return self.cost.reads / self.pods

    def spread(self, step: str) -> tuple[float, float]:
        """Return the percentiles 50 and 99 of all Pods' seconds until a step.

        :param step: `plugged`, `active` or `gone`.
        """
        seconds = [value for times in self.runs for value in getattr(times, step)]
        return percentile(seconds, 0.5), percentile(seconds, 0.99)

    def slowest(self, step: str) -> float:
        """Return the seconds of the slowest Pod."""
        return float(max(max(getattr(times, step)) for times in self.runs))

    def total(self, step: str) -> float:
        """Return the seconds for all Pods together; the median of the runs."""
        return float(median(getattr(times, f"{step}_all") for times in self.runs))

    def figures(self, floor: Floor) -> dict[str, Any]:
        """Return every number of the case, beside the floor for as many Pods."""
        steps = ("plugged", "active", "gone")
        spreads = {
            f"{step}_{share}": value
            for step in steps
            for share, value in zip(("p50", "p99"), self.spread(step), strict=True)
        }
        totals = {f"{step}_total": self.total(step) for step in ("created", *steps)}
        ratios = {step: self.total(step) / floor.creation for step in ("plugged", "active")}
        ratios["gone"] = self.total("gone") / floor.deletion
        above = {step: self.above(step) for step in steps}
        return {
            "pool": self.pool,
            "active_after": self.after,
            "latency": self.latency,
            "latency_per_port": self.delays.per_port,
            "pods": self.number,
            "interfaces": self.interfaces,
            "plays": len(self.runs),
            **{f"{name}_seconds": value for name, value in (spreads | totals).items()},
            **{f"{step}_p50_above_seconds": values[0] for step, values in above.items()},
            **{f"{step}_total_above_seconds": values[1] for step, values in above.items()},
            "floor_seconds": floor.creation,
            "floor_of_deletion_seconds": floor.deletion,
            **{f"{step}_to_floor": value for step, value in ratios.items()},
            "neutron_calls_per_pod": self.neutron,
            "neutron_calls_on_the_way_per_pod": self.until_active,
            "kubernetes_writes_per_pod": self.writes,
            "kubernetes_reads_per_pod": self.reads,
            **asdict(self.cost),
        }
