"""The tables, targets and figures of `bench pods`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.lives import Cost, Lives
from bench.processes import Memory
from bench.report import Report, Table, Target, percentile

MANY = 400
OVERHEAD, FLOORS, MEMORY = 0.05, 2.0, 120.0  # seconds, times the floor, MiB
ALONE, TOGETHER = 2.0, 1.2  # calls of Neutron in a Pod's life
WRITES, READS = 6.0, 0.0  # of Kubernetes in a Pod's life
# What kuryr-kubernetes published of itself, on comparable fakes: seconds until all Pods had
# their VIFs, and until all were ACTIVE; calls in a Pod's life; MiB before and at the peak.
ANCESTOR_SECONDS = {1: (1.29, 1.93), 100: (2.9, 3.9), 400: (8.1, 10.7)}
ANCESTOR_NEUTRON, ANCESTOR_KUBERNETES, ANCESTOR_MEMORY = 4.0, 17.0, (97.0, 147.0)
ANCESTOR = "ancestor, on comparable fakes"


@dataclass(frozen=True)
class Case:
    """`number` Pods at once, once or several times, with Neutron taking so many seconds a call
    and `per_port` more for each port that it makes."""

    latency: float
    per_port: float
    number: int
    lives: list[Lives]
    cost: Cost

    @property
    def pods(self) -> int:
        """How many Pods lived in all."""
        return self.number * len(self.lives)

    @property
    def neutron(self) -> float:
        """Calls of Neutron in a Pod's life."""
        return sum(self.cost.neutron.values()) / self.pods

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

    def total(self, what: str) -> float:
        """Seconds for all Pods together; the median of several plays."""
        return float(median(getattr(lives, f"{what}_all") for lives in self.lives))

    def figures(self, floor: float) -> dict[str, Any]:
        """Every number."""
        names = ("plugged", "active", "gone")
        spreads = {
            f"{name}_{share}": value
            for name in names
            for share, value in zip(("p50", "p99"), self.spread(name), strict=True)
        }
        totals = {f"{name}_total": self.total(name) for name in ("created", *names)}
        times = {name: self.total(name) / floor for name in ("plugged", "active")}
        return {
            "latency": self.latency,
            "latency_per_port": self.per_port,
            "pods": self.number,
            "plays": len(self.lives),
            **{f"{name}_seconds": value for name, value in (spreads | totals).items()},
            "floor_seconds": floor,
            **{f"{name}_to_floor": value for name, value in times.items()},
            "neutron_calls_per_pod": self.neutron,
            "kubernetes_writes_per_pod": self.writes,
            "kubernetes_reads_per_pod": self.reads,
            **asdict(self.cost),
        }


def pods_report(cases: list[Case], floors: dict[int, float], idle: Memory) -> Report:
    """All that is printed."""
    figures = {
        "cases": [case.figures(floors[case.number]) for case in cases],
        "floor_seconds": {str(number): seconds for number, seconds in floors.items()},
        "rss_idle": idle.resident,
        "ancestor": {
            "seconds_to_vifs_and_active": {str(n): s for n, s in ANCESTOR_SECONDS.items()},
            "neutron_calls_per_pod": ANCESTOR_NEUTRON,
            "kubernetes_calls_per_pod": ANCESTOR_KUBERNETES,
            "rss_before_and_peak": ANCESTOR_MEMORY,
        },
    }
    tables = [
        _of_times(cases, floors),
        _beside_ancestor(cases),
        _of_costs(cases),
        _of_kinds(cases),
    ]
    return Report("pods", tables, list(_targets(cases, floors)), figures)


def _targets(cases: list[Case], floors: dict[int, float]) -> list[Target]:
    found = []
    for case in cases:
        given = f"Neutron {case.latency:g} s"
        if case.number == 1:
            dialled = case.latency + case.per_port
            above = case.spread("plugged")[0] - dialled
            found.append(Target(f"1 Pod, {given}: VIFs, p50 above it", above, OVERHEAD, "s"))
            found.append(Target(f"1 Pod, {given}: Neutron calls", case.neutron, ALONE, "a Pod"))
        if case.number == MANY:
            many = f"{MANY} Pods, {given}"
            if case.latency == case.per_port == 0:
                times = case.total("plugged") / floors[MANY]
                found.append(Target(f"{many}: VIFs of all", times, FLOORS, "x floor"))
            found.append(Target(f"{many}: Neutron calls", case.neutron, TOGETHER, "a Pod"))
            found.append(Target(f"{many}: memory, peak", case.cost.rss_peak, MEMORY, "MiB"))
        found.append(Target(f"{_name(case)}: Kubernetes writes", case.writes, WRITES, "a Pod"))
        found.append(Target(f"{_name(case)}: Kubernetes reads", case.reads, READS, "a Pod"))
    return found


def _of_times(cases: list[Case], floors: dict[int, float]) -> Table:
    columns = ("CASE", "VIFs p50", "p99", "ALL", "ACTIVE p50", "p99", "ALL", "GONE p50", "p99",
               "ALL", "Pods made", "FLOOR", "VIFs/FLOOR", "ACTIVE/FLOOR")  # fmt: skip
    rows = []
    for case in cases:
        floor = floors[case.number]
        row: list[Any] = [_name(case)]
        for what in ("plugged", "active", "gone"):
            row += [*case.spread(what), case.total(what)]
        ratios = [case.total("plugged") / floor, case.total("active") / floor]
        rows.append([*row, case.total("created"), floor, *ratios])
    return Table("Seconds from the Pod's creation (GONE: from its deletion)", columns, rows)


def _beside_ancestor(cases: list[Case]) -> Table:
    columns = ("CASE", "VIFs", "ANCESTOR", "x", "ACTIVE", "ANCESTOR", "x")
    rows = []
    for case in cases:
        if case.number in ANCESTOR_SECONDS:
            row: list[Any] = [_name(case)]
            pairs = zip(("plugged", "active"), ANCESTOR_SECONDS[case.number], strict=True)
            for what, theirs in pairs:
                ours = case.total(what)
                row += [ours, theirs, ours / theirs]
            rows.append(row)
    return Table(f"Seconds for all Pods of a case, beside its figures ({ANCESTOR})", columns, rows)


def _of_costs(cases: list[Case]) -> Table:
    columns = ("CASE", "NEUTRON", "WRITES", "of node", "READS", "all Kubernetes", "LISTS, all",
               "CPU ms", "RSS before", "peak", "after")  # fmt: skip
    rows: list[list[Any]] = []
    for case in cases:
        cost = case.cost
        row = [_name(case), case.neutron, case.writes, cost.node_writes / case.pods, case.reads]
        memory = [f"{value:.1f}" for value in (cost.rss_before, cost.rss_peak, cost.rss_after)]
        cpu = 1000 * cost.cpu_seconds / case.pods
        rows.append([*row, case.writes + case.reads, cost.lists, cpu, *memory])
    before, peak = (f"{value:.1f}" for value in ANCESTOR_MEMORY)
    theirs = [
        ANCESTOR,
        ANCESTOR_NEUTRON,
        "",
        "",
        "",
        ANCESTOR_KUBERNETES,
        "",
        "",
        before,
        peak,
        "",
    ]
    title = "Calls and the controller's CPU for each Pod's whole life; its memory in MiB"
    return Table(title, columns, [*rows, theirs])


def _of_kinds(cases: list[Case]) -> Table:
    """Each kind of call, in the columns of all cases."""
    counted = [
        {f"Neutron {kind}": n for kind, n in case.cost.neutron.items()} | case.cost.kinds
        for case in cases
    ]
    kinds = sorted({kind for found in counted for kind in found})
    rows = [
        [kind, *(n.get(kind, 0) / case.pods for n, case in zip(counted, cases, strict=True))]
        for kind in kinds
    ]
    return Table("Calls for each Pod by kind", ("KIND", *map(_name, cases)), rows)


def _name(case: Case) -> str:
    return f"{case.number} at {case.latency:g} s"
