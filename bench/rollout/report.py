"""The report of `bench rollout`: a table, targets and figures."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report import Report, Table, Target
from bench.rollout.case import RolloutCase
from bench.rollout.course import INTERVAL

LOST, DEAD = 0, 2  # requests; Pods that have ended and are forwarded to
WRITES = 2.0  # to Octavia, for each Pod that is replaced


def rollout_report(cases: Sequence[RolloutCase]) -> Report:
    """Return the report of all cases."""
    targets = []
    for case in cases:
        targets.append(
            Target(f"{case}: Octavia writes", case.each(case.course.writes), WRITES, "a Pod")
        )
        if case.drain:  # without it every program loses requests
            lost, dead = max(LOST, case.floor.lost), max(DEAD, case.floor.dead)
            targets.append(Target(f"{case}: lost requests", case.course.lost, lost))
            targets.append(Target(f"{case}: dead members", case.course.dead, dead))
    return Report("rollout", [_table(cases)], targets, {"cases": [c.figures() for c in cases]})


def _table(cases: Sequence[RolloutCase]) -> Table:
    first = cases[0]
    title = (
        f"A Deployment of {first.number} Pods, of which one is replaced every {first.every:g} s; "
        f"a request every {INTERVAL:g} s to each VIP and port. FLOOR: what Octavia's delays allow "
        "at best; SETTLED: seconds from the last Pod's replacement; each: for each Pod replaced"
    )
    columns = (
        "CASE",
        *("ASKED", "LOST", "FLOOR"),
        *("DEAD AT MOST", "FLOOR"),
        *("OCTAVIA WRITES each", "FLOOR", "CALLS each", "FLOOR", "KUBERNETES WRITES each"),
        *("SETTLED", "FLOOR", "/FLOOR"),
    )
    rows = []
    for case in cases:
        ours, floor = case.course, case.floor
        rows.append(
            (
                str(case),
                *(ours.asked, ours.lost, floor.lost),
                *(ours.dead, floor.dead),
                *(case.each(ours.writes), case.each(floor.writes)),
                *(case.each(ours.calls), case.each(floor.calls)),
                case.each(case.kubernetes_writes),
                *(ours.settled, floor.settled, ours.settled / floor.settled),
            )
        )
    return Table(title, columns, rows)
