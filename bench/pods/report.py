"""The report of `bench pods`: tables, targets and figures."""

from __future__ import annotations

from typing import Any

from bench.pods.case import Case
from bench.pods.floor import Floor
from bench.pods.pool import Pool
from bench.report import Report, Table, Target
from bench.testbed.processes import Memory

MANY = 400
OVERHEAD, FLOORS, MEMORY = 0.05, 2.0, 120.0  # seconds, ratio to the floor, MiB
SINGLE, TOGETHER = 2.0, 1.2  # calls of Neutron for a Pod's whole life
SHARE = 1 / 3  # of a Pod's cost for a further interface
WRITES, READS = 6.0, 0.0  # of Kubernetes for a Pod's whole life
# Figures that were published for kuryr-kubernetes on comparable fakes: seconds until all Pods had
# their VIFs, and until all were ACTIVE; calls for a Pod's whole life; MiB before and at the peak.
ANCESTOR_SECONDS = {1: (1.29, 1.93), 100: (2.9, 3.9), 400: (8.1, 10.7)}
ANCESTOR_NEUTRON, ANCESTOR_KUBERNETES, ANCESTOR_MEMORY = 4.0, 17.0, (97.0, 147.0)
ANCESTOR = "ancestor, on comparable fakes"


def pods_report(cases: list[Case], pool: Pool, floors: dict[int, Floor], idle: Memory) -> Report:
    """Return the report of these cases, beside the floors by the number of Pods."""
    figures = {
        "cases": [case.figures(floors[case.number]) for case in cases],
        "floor_seconds": {str(number): floor.creation for number, floor in floors.items()},
        "floor_of_deletion_seconds": {
            str(number): floor.deletion for number, floor in floors.items()
        },
        "rss_idle": idle.resident,
        "ancestor": {
            "seconds_to_vifs_and_active": {
                str(number): seconds for number, seconds in ANCESTOR_SECONDS.items()
            },
            "neutron_calls_per_pod": ANCESTOR_NEUTRON,
            "kubernetes_calls_per_pod": ANCESTOR_KUBERNETES,
            "rss_before_and_peak": ANCESTOR_MEMORY,
        },
    }
    tables = [
        Table("Ports", ("POOL",), [(str(pool),)]),
        _of_times(cases, floors),
        _beside_ancestor(cases),
        _of_costs(cases),
        *_of_interfaces(cases),
        _of_kinds(cases),
    ]
    return Report("pods", tables, list(_targets(cases, floors)), figures)


def _targets(cases: list[Case], floors: dict[int, Floor]) -> list[Target]:
    targets = []
    for case in cases:
        given = f"Neutron {case.latency:g} s"
        if case.number == 1 and case.interfaces == 1:
            above = case.above("plugged")[0]
            targets.append(Target(f"1 Pod, {given}: VIFs, p50 above it", above, OVERHEAD, "s"))
            targets.append(Target(f"1 Pod, {given}: Neutron calls", case.neutron, SINGLE, "a Pod"))
        if case.number == MANY and case.interfaces == 1:
            many = f"{MANY} Pods, {given}"
            if case.latency == case.delays.per_port == 0:
                ratio = case.total("plugged") / floors[MANY].creation
                targets.append(Target(f"{many}: VIFs of all", ratio, FLOORS, "x floor"))
            targets.append(Target(f"{many}: Neutron calls", case.neutron, TOGETHER, "a Pod"))
            targets.append(Target(f"{many}: memory, peak", case.cost.rss_peak, MEMORY, "MiB"))
        for what, share in _shares(case, cases).items():
            further = f"{_name(case)}: a further interface, {what}"
            targets.append(Target(further, share, SHARE, "x"))
        targets.append(Target(f"{_name(case)}: Kubernetes writes", case.writes, WRITES, "a Pod"))
        targets.append(Target(f"{_name(case)}: Kubernetes reads", case.reads, READS, "a Pod"))
    return targets


def _of_times(cases: list[Case], floors: dict[int, Floor]) -> Table:
    columns = ("CASE", "VIFs p50", "p99", "ALL", "ACTIVE p50", "p99", "ALL", "GONE p50", "p99",
               "ALL", "Pods made", "FLOOR", "VIFs/FLOOR", "ACTIVE/FLOOR", "FLOOR, gone",
               "GONE/FLOOR")  # fmt: skip
    rows = []
    for case in cases:
        floor = floors[case.number]
        row: list[Any] = [_name(case)]
        for step in ("plugged", "active", "gone"):
            row += [*case.spread(step), case.total(step)]
        ratios = [case.total(step) / floor.creation for step in ("plugged", "active")]
        row += [case.total("created"), floor.creation, *ratios, floor.deletion]
        rows.append([*row, case.total("gone") / floor.deletion])
    return Table("Seconds from the Pod's creation (GONE: from its deletion)", columns, rows)


def _beside_ancestor(cases: list[Case]) -> Table:
    columns = ("CASE", "VIFs", "ANCESTOR", "x", "ACTIVE", "ANCESTOR", "x")
    rows = []
    for case in cases:
        if case.number in ANCESTOR_SECONDS:
            row: list[Any] = [_name(case)]
            pairs = zip(("plugged", "active"), ANCESTOR_SECONDS[case.number], strict=True)
            for step, theirs in pairs:
                ours = case.total(step)
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


def _of_interfaces(cases: list[Case]) -> list[Table]:
    """Return a table with the cost of a further interface, if Pods with several were measured."""
    shares = {_name(case): _shares(case, cases) for case in cases}
    rows = [(name, *found.values()) for name, found in shares.items() if found]
    columns = ("CASE", "VIFs of all", "CPU", "NEUTRON", "WRITES")
    title = "Cost of a further interface, as a share of a Pod with one"
    return [Table(title, columns, rows)] if rows else []


def _shares(case: Case, cases: list[Case]) -> dict[str, float]:
    """Return what a further interface costs, as shares of a Pod with one."""
    alike = (case.number, case.delays, 1)
    found = (each for each in cases if (each.number, each.delays, each.interfaces) == alike)
    plain = next(found, None)
    if plain is None or case.interfaces == 1:
        return {}
    costs = {
        "time of all": (case.total("plugged"), plain.total("plugged")),
        "CPU": (case.cpu, plain.cpu),
        "Neutron calls": (case.neutron, plain.neutron),
        "writes": (case.writes, plain.writes),
    }
    further = case.interfaces - 1
    return {what: (ours / one - 1) / further for what, (ours, one) in costs.items()}


def _of_kinds(cases: list[Case]) -> Table:
    """Return a table with a row for each kind of call and a column for each case."""
    counted = [
        {f"Neutron {kind}": count for kind, count in case.cost.neutron.items()} | case.cost.kinds
        for case in cases
    ]
    kinds = sorted({kind for counts in counted for kind in counts})
    rows = [
        [
            kind,
            *(
                counts.get(kind, 0) / case.pods
                for counts, case in zip(counted, cases, strict=True)
            ),
        ]
        for kind in kinds
    ]
    return Table("Calls for each Pod by kind", ("KIND", *map(_name, cases)), rows)


def _name(case: Case) -> str:
    each = f", {case.interfaces} interfaces each" if case.interfaces > 1 else ""
    return f"{case.number} at {case.latency:g} s{each}"
