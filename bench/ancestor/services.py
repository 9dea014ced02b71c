"""Services with kuryr-kubernetes and with this project: the same ones on the same stage."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from bench.report import Table
from bench.services.objects import addresses
from bench.services.report import figures_of
from bench.services.runner import ServiceCase, ServiceProgram, weathers
from bench.testbed.implementations import Contestant
from bench.testbed.testbed import Stage
from tests.kit.kube import make_pod
from tests.kit.kube.objects import path_of

ENDPOINTS = 2  # of each Service


async def play(
    stage: Stage, contestant: Contestant, options: argparse.Namespace
) -> list[ServiceCase]:
    """Each number of Services in each weather; the contestant has entered the stage."""
    await _have_pods(stage)
    program = ServiceProgram(stage, contestant)
    async with program.curtain() as market:
        return [
            await program.case(
                market,
                weather,
                number,
                ENDPOINTS,
                options.repeats if number == 1 else options.plays,
            )
            for weather in weathers(options.octavia)
            for number in options.services
        ]


async def _have_pods(stage: Stage) -> None:
    """kuryr-kubernetes looks members' Pods up. Without a node, nobody makes ports for them."""
    namespace = stage.cluster.namespace
    for address in addresses(ENDPOINTS):
        name = f"pod-{address.replace('.', '-')}"
        if await stage.admin.find(path_of(make_pod(name, namespace))) is None:
            pod = await stage.cluster.add_pod(name)
            await stage.cluster.set_phase(pod, "Running", podIP=address, podIPs=[{"ip": address}])


def tables(found: Mapping[str, Sequence[ServiceCase]]) -> list[Table]:
    """`found` has two entries, by the names of the contestants: the ancestor, and us."""
    pairs = list(zip(*found.values(), strict=True))
    return [_of_times(pairs, list(found)), _of_costs(pairs, list(found))]


def figures(cases: Sequence[ServiceCase]) -> list[dict[str, Any]]:
    """Every number of one contestant."""
    return [figures_of(case) for case in cases]


def _of_times(pairs: Sequence[Sequence[ServiceCase]], names: Sequence[str]) -> Table:
    columns = ["SERVICES, OCTAVIA", "ALONE"]
    for name in names:
        columns += [f"{name}: p50", "p99", "ALL", "p50 above"]
    rows = []
    for pair in pairs:
        floor = min(case.floor.seen for case in pair)
        row: list[Any] = [_name(pair[0]), floor]
        for case in pair:
            row += [case.share(0.5), case.share(0.99), case.total, case.share(0.5) - floor]
        theirs, ours = pair
        rows.append([*row, theirs.share(0.5) / ours.share(0.5), theirs.total / ours.total])
    title = (
        "Service's POST → told that its load balancer has its members, seconds. OCTAVIA: seconds "
        "a call + PENDING; ALONE: what it takes by itself; x: the ancestor's time by ours"
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
        rows.append([_name(pair[0]), *cells])
    return Table(f"What each Service costs until then; {' and '.join(names)}", columns, rows)


def _name(case: ServiceCase) -> str:
    return f"{case.number} x {case.endpoints}, {case.weather}"
