"""The cases of `bench services`: their conditions and what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from bench.report import percentile
from bench.services.floor import Floor
from bench.services.load import Resize, ServiceTimes
from bench.testbed.processes import Memory
from kuryr_k8s.cloud.page_size import PAGE

AT_A_TIME = 12  # reads for which nobody waits: three quarters of [octavia_defaults] max_calls


@dataclass(frozen=True)
class Delays:
    """The configured delays of the cloud, in seconds.

    Each call takes `latency`; a change of a load balancer stays PENDING after its answer for
    `pending`, which begins after the changes before it with `one_by_one`.
    """

    latency: float
    pending: float
    provider: str = "ovn"
    one_by_one: bool = False

    def __str__(self) -> str:
        text = f"{self.latency:g} + {self.pending:g}"
        return f"{self.provider} {text}" if self.one_by_one or self.provider != "ovn" else text


@dataclass(frozen=True)
class ServiceCase:
    """A number of Services created at once, with so many `endpoints` each, in all their runs."""

    number: int
    endpoints: int
    delays: Delays
    floor: Floor
    runs: list[ServiceTimes]

    def __str__(self) -> str:
        return f"{self.number} x {self.endpoints}, {self.delays}"

    def share(self, share: float) -> float:
        """Return this percentile of all Services' seconds."""
        return percentile([seconds for run in self.runs for seconds in run.seconds], share)

    @property
    def total(self) -> float:
        """Seconds until all are ACTIVE; the median of the runs."""
        return float(median(run.total for run in self.runs))

    @property
    def created(self) -> float:
        """Seconds until all are created; the median of the runs."""
        return float(median(run.created for run in self.runs))

    def each(self, cost: str) -> float:
        """Return a cost for each Service, by its name in :class:`~bench.services.load.Cost`."""
        costs = [getattr(run.cost, cost) for run in self.runs]
        return float(sum(costs) / (self.number * len(self.runs)))

    @property
    def busy(self) -> float:
        """The share of the cores at work."""
        return fmean(run.cost.busy for run in self.runs)

    @property
    def memory(self) -> Memory:
        """The controller's memory in the last run."""
        return self.runs[-1].cost.memory


@dataclass(frozen=True)
class LargeService:
    """A Service with very many endpoints: its creation, one endpoint less, and one more."""

    endpoints: int
    delays: Delays
    created: ServiceTimes
    changes: Sequence[Resize]

    @property
    def alone(self) -> float:
        """Seconds that Octavia takes for one write, while PENDING, and for one look."""
        return 2 * self.delays.latency + self.delays.pending


@dataclass(frozen=True)
class Restart:
    """A start of the controller beside Services whose load balancers need no change.

    Each has a listener, and a pool with members. `ready` are the seconds from exec until the
    caches are synced, `done` until Octavia's last call.
    """

    number: int
    delays: Delays
    ready: float
    done: float
    octavia_writes: int
    octavia_reads: int
    octavia_kinds: dict[str, int]
    writes: int
    cpu_seconds: float
    memory: Memory

    @property
    def pages(self) -> int:
        """Pages of each kind of object, which only come one after another."""
        return max(1, math.ceil(self.number / PAGE))

    @property
    def reads_needed(self) -> int:
        """Reads that tell everything: what Octavia lists, and the members of each pool.

        It lists load balancers, listeners, pools, and both kinds of parts that may be in the load
        balancers of others.
        """
        return 3 * self.pages + 2 + self.number

    @property
    def alone(self) -> float:
        """Seconds that Octavia takes for these reads at the least.

        Listeners and pools are listed at the same time, after the load balancers.
        """
        return self.delays.latency * (2 * self.pages + math.ceil(self.number / AT_A_TIME))


def read_delays(texts: Iterable[str]) -> list[Delays]:
    """Read options like "0.3:1": the latency of a call, and the seconds PENDING."""
    pairs = [text.split(":") for text in texts]
    return [Delays(float(latency), float(pending)) for latency, pending in pairs]
