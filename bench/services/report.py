"""The report of `bench services`: tables, targets and figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from bench.report import Report, Table, Target
from bench.services.case import Delays, LargeService, Restart, ServiceCase
from bench.services.load import CHANGES, WITHIN, Churn

ABOVE = 0.2  # seconds beyond Octavia's own, for a single Service
OCTAVIA_WRITES, KUBERNETES_WRITES = 2.0, 4.0  # a Service
MANY, RATIO = 500, 1.3  # ratio to the time that Octavia alone takes for as many
RESTART = 10.0  # seconds until a controller that starts has asked Octavia for everything
LARGE_RATIO = 2.0  # the same for a change of one endpoint among thousands
RATE = 1.0  # writes to Octavia a second, for a Service that changes all the time


def services_report(
    cases: Sequence[ServiceCase],
    churns: Sequence[tuple[Delays, Churn]],
    restarts: Sequence[Restart],
    larges: Sequence[LargeService] = (),
) -> Report:
    """Return the report of cases, of changing Services, of restarts, and of large Services."""
    figures = {
        "cases": [figures_of(case) for case in cases],
        "churns": [asdict(delays) | asdict(churn) for delays, churn in churns],
        "larges": [asdict(large) | {"alone": large.alone} for large in larges],
        "restarts": [_figures_of_restart(restart) for restart in restarts],
    }
    tables = []
    if cases:
        tables += [_of_times(cases), _of_costs(cases), _of_kinds(cases)]
    if churns:
        tables.append(_of_churns(churns))
    if larges:
        tables.append(_of_larges(larges))
    if restarts:
        tables.append(_of_restarts(restarts))
    targets = [*_targets(cases, churns, restarts), *_targets_of_larges(larges)]
    return Report("services", tables, targets, figures)


def figures_of(case: ServiceCase) -> dict[str, Any]:
    """Return every number of a case."""
    return {
        "services": case.number,
        "endpoints": case.endpoints,
        **asdict(case.delays),
        "floor_creations_seconds": case.floor.made,
        "floor_seconds": case.floor.seen,
        "plays": [asdict(run) for run in case.runs],
        "created_seconds": case.created,
        "active_p50_seconds": case.share(0.5),
        "active_p99_seconds": case.share(0.99),
        "active_total_seconds": case.total,
        "total_to_floor": case.total / case.floor.seen,
        "octavia_writes_per_service": case.each("octavia_writes"),
        "octavia_reads_per_service": case.each("octavia_reads"),
        "kubernetes_writes_per_service": case.each("writes"),
        "kubernetes_reads_per_service": case.each("reads"),
        "cpu_seconds_per_service": case.each("cpu_seconds"),
        "cores_busy": case.busy,
    }


def _figures_of_restart(restart: Restart) -> dict[str, Any]:
    figures = asdict(restart)
    # names of figures stay, and earlier reports have this one
    alone = {"reads_needed": restart.reads_needed, "alone": restart.alone}
    return {"weather": figures.pop("delays"), **figures, **alone}


def _targets(
    cases: Iterable[ServiceCase],
    churns: Iterable[tuple[Delays, Churn]],
    restarts: Iterable[Restart],
) -> Iterable[Target]:
    for case in cases:
        name = f"{case.number} x {case.endpoints}, Octavia {case.delays} s"
        if case.number == 1:
            above = case.share(0.5) - case.floor.seen
            yield Target(f"{name}: ACTIVE, p50 above Octavia's own", above, ABOVE, "s")
        if case.number >= MANY and case.delays.latency:
            yield Target(f"{name}: all ACTIVE", case.total / case.floor.seen, RATIO, "x Octavia")
        writes = case.each("octavia_writes")
        yield Target(f"{name}: Octavia writes", writes, OCTAVIA_WRITES, "a Service")
        yield Target(f"{name}: Kubernetes writes", case.each("writes"), KUBERNETES_WRITES, "each")
    for delays, churn in churns:
        name = f"churn, Octavia {delays} s: Octavia writes"
        yield Target(name, churn.rate, RATE, "a second")
    for restart in restarts:
        name = f"restart beside {restart.number}, Octavia {restart.delays} s"
        yield Target(f"{name}: done", restart.done, RESTART, "s")
        yield Target(f"{name}: Octavia writes", restart.octavia_writes, 0)
        yield Target(f"{name}: Kubernetes writes", restart.writes, 0)


def _targets_of_larges(larges: Iterable[LargeService]) -> Iterable[Target]:
    for large in larges:
        for change in large.changes:
            name = f"large, changed to {change.endpoints} endpoints, Octavia {large.delays} s"
            if large.delays.latency:
                ratio = change.seconds / large.alone
                yield Target(f"{name}: published", ratio, LARGE_RATIO, "x Octavia")
            yield Target(f"{name}: Octavia writes", change.cost.octavia_writes, 1)


def _of_times(cases: Iterable[ServiceCase]) -> Table:
    title = (
        "Seconds from a Service's POST until it is published as ACTIVE. OCTAVIA: seconds a call "
        "takes + seconds PENDING; ALONE: Octavia by itself, for the same creations and a look at "
        "each (MADE: without looks); CREATED: until this benchmark has created all"
    )
    columns = (
        "SERVICES x ENDPOINTS, OCTAVIA",
        *(
            "MADE",
            "ALONE",
            "CREATED",
            "P50",
            "P99",
            "ALL",
            "P50-ALONE",
            "ALL/ALONE",
            "ALL/MADE",
            "BUSY",
        ),
    )
    rows = [
        (
            str(case),
            case.floor.made,
            case.floor.seen,
            case.created,
            case.share(0.5),
            case.share(0.99),
            case.total,
            case.share(0.5) - case.floor.seen if case.number == 1 else "",
            case.total / case.floor.seen,
            case.total / case.floor.made,
            f"{case.busy:.0%}",
        )
        for case in cases
    ]
    return Table(title, columns, rows)


def _of_costs(cases: Iterable[ServiceCase]) -> Table:
    columns = (
        "SERVICES x ENDPOINTS, OCTAVIA",
        *("OCTAVIA WRITES", "READS", "KUBERNETES WRITES", "READS", "CPU ms"),
        *("RSS, MiB", "PEAK"),
    )
    rows = [
        (
            str(case),
            case.each("octavia_writes"),
            case.each("octavia_reads"),
            case.each("writes"),
            case.each("reads"),
            1000 * case.each("cpu_seconds"),
            case.memory.resident,
            case.memory.peak,
        )
        for case in cases
    ]
    title = "What each Service costs until it is ACTIVE, and the controller's memory with all"
    return Table(title, columns, rows)


def _of_kinds(cases: Sequence[ServiceCase]) -> Table:
    case = cases[-1]
    kinds: dict[str, int] = {}
    for run in case.runs:
        for kind, number in (run.cost.octavia_kinds | run.cost.kinds).items():
            kinds[kind] = kinds.get(kind, 0) + number
    total = case.number * len(case.runs)
    rows = [(kind, number, number / total) for kind, number in sorted(kinds.items())]
    title = f"Calls by kind: {case}"
    return Table(title, ("KIND", "ALL", "A SERVICE"), rows)


def _of_churns(churns: Iterable[tuple[Delays, Churn]]) -> Table:
    rows = [
        (
            str(delays),
            churn.seconds,
            churn.octavia_writes,
            churn.rate,
            churn.writes,
        )
        for delays, churn in churns
    ]
    columns = ("OCTAVIA", "UNTIL LAST IS TOLD, s", "OCTAVIA WRITES", "A SECOND", "KUBERNETES")
    title = f"{CHANGES} changes of one Service's endpoints within {WITHIN:g} s"
    return Table(title, columns, rows)


def _of_larges(larges: Iterable[LargeService]) -> Table:
    rows = []
    for large in larges:
        steps = [
            ("created", large.created.total, large.created.cost),
            *((f"{each.endpoints} endpoints", each.seconds, each.cost) for each in large.changes),
        ]
        rows += [
            (
                f"{large.endpoints}, {large.delays}: {what}",
                *(seconds, large.alone, cost.octavia_writes, cost.octavia_reads),
                *(cost.writes, cost.cpu_seconds, cost.memory.resident, cost.memory.peak),
            )
            for what, seconds, cost in steps
        ]
    columns = (
        "ENDPOINTS, OCTAVIA",
        *("SECONDS", "ALONE", "OCTAVIA WRITES", "READS", "KUBERNETES WRITES"),
        *("CPU s", "RSS, MiB", "PEAK"),
    )
    title = "One Service with very many endpoints. ALONE: one write, PENDING, and one look"
    return Table(title, columns, rows)


def _of_restarts(restarts: Iterable[Restart]) -> Table:
    rows = [
        (
            f"{restart.number}, {restart.delays}",
            restart.ready,
            restart.alone,
            restart.done,
            restart.octavia_reads,
            restart.octavia_writes,
            restart.writes,
            restart.cpu_seconds,
            restart.memory.resident,
            restart.memory.peak,
            ", ".join(f"{count} {kind}" for kind, count in sorted(restart.octavia_kinds.items())),
        )
        for restart in restarts
    ]
    columns = (
        "SERVICES, OCTAVIA",
        *("SYNCED, s", "ALONE, s", "DONE, s", "READS", "WRITES", "KUBERNETES WRITES", "CPU s"),
        *("RSS, MiB", "PEAK", "OCTAVIA"),
    )
    return Table("A restart beside Services whose load balancers need no change", columns, rows)
