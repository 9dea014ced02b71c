"""The report of `bench ancestor` about Pods: tables, targets and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.pods.case import Case
from bench.pods.floor import Floor
from bench.pods.load import Churn
from bench.pods.pool import Pool
from bench.report import Report, Table, Target, percentile

SHARE = 0.1  # of the seconds that the ancestor adds, with a warm pool
COLD, COLD_PODS, COLD_LATENCY = 1.5, 100, 0.3  # seconds until all have VIFs
DELETIONS = 2.0  # ratio to the API server's floor
UNTIL_ACTIVE = 0.2  # calls of Neutron a Pod, with a warm pool
AT_REST = 1.0  # calls of Neutron a minute
STEPS = {"plugged": "VIFs", "active": "ACTIVE", "gone": "GONE"}


@dataclass
class Measurements:
    """The measurements of one implementation; `idle` are calls of Neutron by kind."""

    cases: list[Case] = field(default_factory=list)
    churns: dict[str, Churn] = field(default_factory=dict)
    idle: dict[str, int] = field(default_factory=dict)


def ancestor_report(
    measured: Mapping[str, Measurements],
    pools: Sequence[Pool],
    floors: Mapping[int, Floor],
    idle: float,
) -> Report:
    """Return the report of two implementations.

    :param measured: the measurements by name: the ancestor's, then this project's.
    :param idle: the seconds without Pods; 0: not measured.
    """
    names = list(measured)
    theirs, ours = measured.values()
    pairs = list(zip(theirs.cases, ours.cases, strict=True))
    with_pool = any(pool.mode != "noop" for pool in pools) and idle > 0
    tables = [
        Table("Settings, the same for both", ("POOL",), [(str(pool),) for pool in pools]),
        *(_of_step(step, pairs, floors, names) for step in STEPS),
        _of_costs(pairs, names),
    ]
    if theirs.churns:
        tables.append(_of_churn(theirs.churns, ours.churns, names))
    if with_pool:
        tables.append(_of_idle(measured, idle))
    figures = {
        name: {
            "cases": [case.figures(floors[case.number]) for case in measurements.cases],
            "churn_seconds": {
                mode: {"lives": churn.seconds, "total": churn.total}
                for mode, churn in measurements.churns.items()
            },
            "neutron_calls_at_idle": measurements.idle,
        }
        for name, measurements in measured.items()
    }
    targets = _targets(pairs, floors)
    if with_pool:
        calls = sum(ours.idle.values()) * 60 / idle
        targets.append(Target("at rest: Neutron calls", calls, AT_REST, "a minute"))
    return Report("ancestor", tables, targets, figures | {"idle_seconds": idle})


def _targets(pairs: Sequence[tuple[Case, Case]], floors: Mapping[int, Floor]) -> list[Target]:
    targets = []
    for theirs, ours in pairs:
        name = _name(ours)
        if ours.pool == "warm":
            for step in ("plugged", "active"):
                share = ours.above(step)[0] / theirs.above(step)[0]
                promise = f"{name}: {STEPS[step]}, p50 above the configured delays"
                targets.append(Target(promise, share, SHARE, "x ancestor's"))
        if ours.pool == "warm" and ours.number > 1:  # refilling after one Pod is one call
            targets.append(
                Target(
                    f"{name}: Neutron calls until ACTIVE", ours.until_active, UNTIL_ACTIVE, "a Pod"
                )
            )
        if (ours.pool, ours.number, ours.latency) == ("cold", COLD_PODS, COLD_LATENCY):
            targets.append(Target(f"{name}: VIFs of all", ours.total("plugged"), COLD, "s"))
        ratio = ours.above("gone")[1] / floors[ours.number].deletion
        targets.append(Target(f"{name}: GONE of all above them", ratio, DELETIONS, "x floor"))
    return targets


def _of_step(
    step: str,
    pairs: Sequence[tuple[Case, Case]],
    floors: Mapping[int, Floor],
    names: Sequence[str],
) -> Table:
    columns = ["CASE", "CONFIGURED", "FLOOR"]
    for name in names:
        columns += [f"{name}: p50", "p99", "last", "ALL"]
    columns += ["ABOVE, p50: ancestor's", "ours", "x", "ABOVE, ALL: ancestor's", "ours", "x"]
    rows = []
    for pair in pairs:
        case = pair[0]
        floor = floors[case.number]
        row: list[Any] = [_name(case), case.configured[step]]
        row.append(floor.deletion if step == "gone" else floor.creation)
        for measured in pair:
            row += [*measured.spread(step), measured.slowest(step), measured.total(step)]
        for theirs, ours in zip(*(measured.above(step) for measured in pair), strict=True):
            row += [theirs, ours, theirs / ours if ours > 0 else math.inf]
        rows.append(row)
    begin = "deletion" if step == "gone" else "creation"
    title = (
        f"{STEPS[step]}: seconds from the Pod's {begin}; ABOVE is without the configured delays"
    )
    return Table(title, columns, rows)


def _of_costs(pairs: Sequence[tuple[Case, Case]], names: Sequence[str]) -> Table:
    kinds = ("NEUTRON", "until ACTIVE", "KUBERNETES", "CPU ms", "RSS peak", "cores busy")
    columns = ["CASE"]
    for kind in kinds:
        columns += [f"{kind}: ancestor's", "ours"]
    rows = []
    for pair in pairs:
        costs = [
            (
                case.neutron,
                case.until_active,
                case.writes + case.reads,
                1000 * case.cost.cpu_seconds / case.pods,
                case.cost.rss_peak,
                case.cost.busy,
            )
            for case in pair
        ]
        cells = [value for both in zip(*costs, strict=True) for value in both]
        rows.append([_name(pair[0]), *cells])
    title = (
        "Calls and CPU for each Pod's whole life, memory in MiB, share of the machine's cores at "
        f"work; {names[0]} and {names[1]}"
    )
    return Table(title, columns, rows)


def _of_churn(
    theirs: Mapping[str, Churn], ours: Mapping[str, Churn], names: Sequence[str]
) -> Table:
    columns = ["POOL"]
    for name in names:
        columns += [f"{name}: p50", "p99", "Pods/s"]
    rows = []
    for mode in theirs:
        row: list[Any] = [mode]
        for churn in (theirs[mode], ours[mode]):
            row += [percentile(churn.seconds, 0.5), percentile(churn.seconds, 0.99)]
            row.append(len(churn.seconds) / churn.total)
        rows.append(row)
    title = "Churn with the last delays: seconds of a Pod's whole life, deleted once it is ACTIVE"
    return Table(title, columns, rows)


def _of_idle(measured: Mapping[str, Measurements], seconds: float) -> Table:
    counts = [measurements.idle for measurements in measured.values()]
    rows = [
        [kind, *(count.get(kind, 0) * 60 / seconds for count in counts)]
        for kind in sorted({kind for count in counts for kind in count})
    ]
    title = f"Calls of Neutron a minute, without Pods ({seconds:g} s, pool of the default size)"
    return Table(title, ("KIND", *measured), rows)


def _name(case: Case) -> str:
    return f"{case.number} {case.pool}, Neutron {case.latency:g} s, ACTIVE {case.after:g} s"
