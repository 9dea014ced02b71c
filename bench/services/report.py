"""The tables, targets and figures of `bench services`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from bench.report import Report, Table, Target
from bench.services.load import CHANGES, WITHIN, Churn
from bench.services.runner import Restart, ServiceCase, Weather

ABOVE = 0.2  # seconds beyond Octavia's own, of one Service
OCTAVIA_WRITES, KUBERNETES_WRITES = 2.0, 4.0  # a Service
MANY, TIMES = 500, 1.3  # what Octavia alone takes for as many
RATE = 1.0  # writes to Octavia a second, for a Service that changes all the time


def services_report(
    cases: Sequence[ServiceCase],
    churns: Sequence[tuple[Weather, Churn]],
    restarts: Sequence[Restart],
) -> Report:
    """All that is printed."""
    figures = {
        "cases": [figures_of(case) for case in cases],
        "churns": [asdict(weather) | asdict(churn) for weather, churn in churns],
        "restarts": [asdict(one) for one in restarts],
    }
    tables = []
    if cases:
        tables += [_of_times(cases), _of_costs(cases), _of_kinds(cases)]
    if churns:
        tables.append(_of_churns(churns))
    if restarts:
        tables.append(_of_restarts(restarts))
    return Report("services", tables, list(_targets(cases, churns, restarts)), figures)


def figures_of(case: ServiceCase) -> dict[str, Any]:
    """Every number of a case."""
    return {
        "services": case.number,
        "endpoints": case.endpoints,
        **asdict(case.weather),
        "floor_creations_seconds": case.floor.made,
        "floor_seconds": case.floor.seen,
        "plays": [asdict(play) for play in case.plays],
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


def _targets(
    cases: Iterable[ServiceCase],
    churns: Iterable[tuple[Weather, Churn]],
    restarts: Iterable[Restart],
) -> Iterable[Target]:
    for case in cases:
        name = f"{case.number} x {case.endpoints}, Octavia {case.weather} s"
        if case.number == 1:
            above = case.share(0.5) - case.floor.seen
            yield Target(f"{name}: ACTIVE, p50 above Octavia's own", above, ABOVE, "s")
        if case.number == MANY and case.weather.latency:
            yield Target(f"{name}: all ACTIVE", case.total / case.floor.seen, TIMES, "x Octavia")
        writes = case.each("octavia_writes")
        yield Target(f"{name}: Octavia writes", writes, OCTAVIA_WRITES, "a Service")
        yield Target(f"{name}: Kubernetes writes", case.each("writes"), KUBERNETES_WRITES, "each")
    for weather, churn in churns:
        name = f"churn, Octavia {weather} s: Octavia writes"
        yield Target(name, churn.rate, RATE, "a second")
    for one in restarts:
        name = f"restart beside {one.number}, Octavia {one.weather} s"
        yield Target(f"{name}: Octavia writes", one.octavia_writes, 0)
        yield Target(f"{name}: Kubernetes writes", one.writes, 0)


def _of_times(cases: Iterable[ServiceCase]) -> Table:
    title = (
        "Service's POST → told to be ACTIVE, seconds. OCTAVIA: seconds a call + PENDING; ALONE: "
        "what it takes by itself for the same creations and a look at each (MADE: without looks); "
        "CREATED: until this benchmark has made them"
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
            f"{case.number} x {case.endpoints}, {case.weather}",
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
    )
    rows = [
        (
            f"{case.number} x {case.endpoints}, {case.weather}",
            case.each("octavia_writes"),
            case.each("octavia_reads"),
            case.each("writes"),
            case.each("reads"),
            1000 * case.each("cpu_seconds"),
        )
        for case in cases
    ]
    return Table("What each Service costs until it is ACTIVE", columns, rows)


def _of_kinds(cases: Sequence[ServiceCase]) -> Table:
    case = cases[-1]
    kinds: dict[str, int] = {}
    for play in case.plays:
        for kind, number in (play.cost.octavia_kinds | play.cost.kinds).items():
            kinds[kind] = kinds.get(kind, 0) + number
    total = case.number * len(case.plays)
    rows = [(kind, number, number / total) for kind, number in sorted(kinds.items())]
    title = f"Calls by kind: {case.number} x {case.endpoints}, {case.weather}"
    return Table(title, ("KIND", "ALL", "A SERVICE"), rows)


def _of_churns(churns: Iterable[tuple[Weather, Churn]]) -> Table:
    rows = [
        (
            str(weather),
            churn.seconds,
            churn.octavia_writes,
            churn.rate,
            churn.writes,
        )
        for weather, churn in churns
    ]
    columns = ("OCTAVIA", "UNTIL LAST IS TOLD, s", "OCTAVIA WRITES", "A SECOND", "KUBERNETES")
    title = f"{CHANGES} changes of one Service's endpoints within {WITHIN:g} s"
    return Table(title, columns, rows)


def _of_restarts(restarts: Iterable[Restart]) -> Table:
    rows = [
        (
            f"{one.number}, {one.weather}",
            one.ready,
            one.done,
            one.octavia_reads,
            one.octavia_writes,
            one.writes,
            one.cpu_seconds,
            ", ".join(f"{n} {kind}" for kind, n in sorted(one.octavia_kinds.items())),
        )
        for one in restarts
    ]
    columns = (
        "SERVICES, OCTAVIA",
        *("SYNCED, s", "DONE, s", "READS", "WRITES", "KUBERNETES WRITES", "CPU s", "OCTAVIA"),
    )
    return Table("A restart beside Services that are as they are to be", columns, rows)
