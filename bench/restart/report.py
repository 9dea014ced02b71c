"""The report of `bench restart`: tables, targets and figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from bench.report import Report, Table, Target

SYNCED = 10.0  # seconds
PERIODIC = 4  # the Pods' network and its two subnets, once a minute, and the ports of Nodes
PER_POD = 4.4  # KB (1000 bytes) for each Pod above the empty controller at rest


@dataclass(frozen=True)
class Start:
    """One start of the controller: seconds since exec, calls, and memory in MiB.

    `checks` are the calls of Neutron before the caches were synced (for the configured subnets,
    network and groups); `others` are all later calls but the list of ports, which has `pages`.
    """

    ready: float
    swept: float
    cpu_ready: float
    cpu_seconds: float
    lists: int
    pages: int
    checks: int
    others: int
    writes: int
    reads: int
    watches: int
    kinds: dict[str, int]
    resident: float
    peak: float


def restart_report(
    pods: int, empty: Start, full: Start, *, creation: float, pod_bytes: int
) -> Report:
    """Return the report of a start without Pods and of one beside all of them.

    :param creation: the seconds in which the Pods were created.
    :param pod_bytes: the size of one of them.
    """
    kb = {
        name: per_pod(value, empty.resident, pods)
        for name, value in (("resident", full.resident), ("peak", full.peak))
    }
    figures = {
        "pods": pods,
        "pod_bytes": pod_bytes,
        "creation_seconds": creation,
        "empty": asdict(empty),
        "full": asdict(full),
        "kb_per_pod_resident": kb["resident"],
        "kb_per_pod_peak": kb["peak"],
    }
    more_checks = full.checks - empty.checks
    targets = [
        Target("start to caches synced", full.ready, SYNCED, "s"),
        Target("lists of Pods' ports in Neutron", full.lists, 1),
        Target("other Neutron calls, after the caches", full.others, PERIODIC),
        Target("other Neutron calls before, more than without Pods", more_checks, 0),
        Target("Kubernetes writes", full.writes, 0),
        Target("memory at rest, above that without Pods", kb["resident"], PER_POD, "KB a Pod"),
        Target("memory at the peak, above the same", kb["peak"], PER_POD, "KB a Pod"),
    ]
    columns = ("", "without Pods", f"{pods} Pods", "ratio")
    names = {
        "ready": "exec to caches synced, s",
        "swept": "exec to first sweep done, s",
        "cpu_ready": "CPU until synced, s",
        "cpu_seconds": "CPU in all, s",
        "lists": "Neutron: lists of Pods' ports",
        "pages": "Neutron: pages of them",
        "checks": "Neutron: checks of the configuration",
        "others": "Neutron: other calls",
        "writes": "Kubernetes: writes",
        "reads": "Kubernetes: reads of one object",
        "watches": "Kubernetes: lists and watches",
        "resident": "RSS at rest, MiB",
        "peak": "RSS peak, MiB",
    }
    without, beside = asdict(empty), asdict(full)
    rows = [
        [
            title,
            _cell(without[name]),
            _cell(beside[name]),
            beside[name] / without[name] if without[name] else "-",
        ]
        for name, title in names.items()
    ]
    rows += [
        ["KB a Pod at rest", "", kb["resident"], kb["resident"] / PER_POD],
        ["KB a Pod at the peak", "", kb["peak"], kb["peak"] / PER_POD],
    ]
    title = f"A start beside {pods} Pods of {pod_bytes} bytes (put there in {creation:.0f} s)"
    tables = [Table(title, columns, rows), _of_kinds(empty, full)]
    return Report("restart", tables, targets, figures)


def _of_kinds(empty: Start, full: Start) -> Table:
    kinds = sorted(empty.kinds | full.kinds)
    rows = [[kind, empty.kinds.get(kind, 0), full.kinds.get(kind, 0)] for kind in kinds]
    return Table("Calls by kind", ("KIND", "without Pods", "with Pods"), rows)


def per_pod(mib: float, idle: float, pods: int) -> float:
    """Return the KB (1000 bytes) for each Pod by which the memory is above the idle one."""
    return (mib - idle) * 1024 * 1024 / 1000 / pods


def _cell(value: float) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
