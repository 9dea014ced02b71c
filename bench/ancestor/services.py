"""Services with kuryr-kubernetes and with this project, in the same test bed."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from bench.options import repetitions
from bench.report import Table
from bench.services.case import ServiceCase, read_delays
from bench.services.objects import addresses
from bench.services.report import figures_of
from bench.services.runner import ServiceRunner
from bench.testbed.implementations import Implementation
from bench.testbed.testbed import Testbed
from tests.kit.kube import make_pod
from tests.kit.kube.objects import path_of

ENDPOINTS = 2  # of each Service


async def run(
    testbed: Testbed, implementation: Implementation, options: argparse.Namespace
) -> list[ServiceCase]:
    """Run a case for each number of Services with each of the delays.

    The implementation is installed already.
    """
    await _ensure_pods(testbed)
    runner = ServiceRunner(testbed, implementation)
    async with runner.session() as load:
        return [
            await runner.case(
                load,
                delays,
                number,
                ENDPOINTS,
                repetitions(options, number),
            )
            for delays in read_delays(options.octavia)
            for number in options.services
        ]


async def _ensure_pods(testbed: Testbed) -> None:
    """Create the members' Pods, which kuryr-kubernetes looks up.

    They have no node, so that no controller makes ports for them.
    """
    namespace = testbed.cluster.namespace
    for address in addresses(ENDPOINTS):
        name = f"pod-{address.replace('.', '-')}"
        if await testbed.admin.find(path_of(make_pod(name, namespace))) is None:
            pod = await testbed.cluster.add_pod(name)
            await testbed.cluster.set_phase(
                pod, "Running", podIP=address, podIPs=[{"ip": address}]
            )


def tables(cases: Mapping[str, Sequence[ServiceCase]]) -> list[Table]:
    """Return the tables of two implementations.

    :param cases: the cases by name: the ancestor's, then this project's.
    """
    pairs = list(zip(*cases.values(), strict=True))
    return [_of_times(pairs, list(cases)), _of_costs(pairs, list(cases))]


def figures(cases: Sequence[ServiceCase]) -> list[dict[str, Any]]:
    """Return every number of one implementation."""
    return [figures_of(case) for case in cases]


def _of_times(pairs: Sequence[Sequence[ServiceCase]], names: Sequence[str]) -> Table:
    columns = ["SERVICES, OCTAVIA", "ALONE"]
    for name in names:
        columns += [f"{name}: p50", "p99", "ALL", "p50 above"]
    rows = []
    for pair in pairs:
        floor = min(case.floor.seen for case in pair)
        row: list[Any] = [str(pair[0]), floor]
        for case in pair:
            row += [case.share(0.5), case.share(0.99), case.total, case.share(0.5) - floor]
        theirs, ours = pair
        rows.append([*row, theirs.share(0.5) / ours.share(0.5), theirs.total / ours.total])
    title = (
        "Seconds from a Service's POST until its load balancer is published with its members. "
        "OCTAVIA: seconds a call takes + seconds PENDING; ALONE: Octavia by itself; x: the "
        "ancestor's time by ours"
    )
    return Table(title, [*columns, "x, p50", "x, ALL"], rows)


def _of_costs(pairs: Sequence[Sequence[ServiceCase]], names: Sequence[str]) -> Table:
    kinds = {
        "OCTAVIA WRITES": "octavia_writes",
        "READS": "octavia_reads",
        "KUBERNETES WRITES": "writes",
        "KUBERNETES READS": "reads",
    }
    columns = ["SERVICES, OCTAVIA"]
    for kind in [*kinds, "CPU ms", "cores busy"]:
        columns += [f"{kind}: ancestor's", "ours"]
    rows = []
    for pair in pairs:
        costs = [
            (*map(case.each, kinds.values()), 1000 * case.each("cpu_seconds"), case.busy)
            for case in pair
        ]
        cells = [value for both in zip(*costs, strict=True) for value in both]
        rows.append([str(pair[0]), *cells])
    return Table(f"What each Service costs until then; {' and '.join(names)}", columns, rows)
