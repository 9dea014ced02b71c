"""The report of `bench storm`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from bench.report import Report, Table, Target, percentile
from bench.storm.figures import Phase

LEASE = 20.0  # seconds; it lasts 45 and is renewed every 15
FIRST_FREE = 2.0  # seconds in which a free port is a Pod's
COLUMNS = ("PHASE", "PODS", "P50", "P95", "MAX", "SECONDS", "CALLS", "POST", "ROWS", "LEASE")


def storm_report(nodes: int, pods: int, phases: Mapping[str, Phase]) -> Report:
    """Return the report of all phases, by the names of their figures."""
    rows = [_row(phase) for phase in phases.values()]
    freed, back, exhausted = (phases[name] for name in ("freed", "recovery", "exhausted"))
    targets = [
        Target("free port to a waiting Pod, P95", _share(freed, 0.95), FIRST_FREE, "s"),
        Target("Neutron serves again to the first Pod", _share(back, 0.0), FIRST_FREE, "s"),
        Target("creations a second while the quota is used up",
               exhausted.creations / exhausted.seconds, 2.0),
        Target("rows a second while the quota is used up", exhausted.rows / exhausted.seconds, 0),
        Target("one Pod beside the deletions", _share(phases["deletions"], 1.0), FIRST_FREE, "s"),
        Target("age of the Lease", max(phase.lease.oldest for phase in phases.values()), LEASE,
               "s"),
    ]  # fmt: skip
    figures = {name: asdict(phase) for name, phase in phases.items()}
    title = f"{pods} Pods on {nodes} nodes; waits in seconds, calls and rows of Neutron"
    return Report("storm", [Table(title, COLUMNS, rows)], targets, figures)


def _row(phase: Phase) -> list[object]:
    waits = [_share(phase, share) if phase.waits else "" for share in (0.5, 0.95, 1.0)]
    return [
        phase.what,
        len(phase.waits),
        *waits,
        phase.seconds,
        phase.calls,
        phase.creations,
        phase.rows,
        phase.lease.oldest,
    ]


def _share(phase: Phase, share: float) -> float:
    """Return what this share of the Pods waited at most; 0 where none waited."""
    return percentile(phase.waits, share) if phase.waits else 0.0
