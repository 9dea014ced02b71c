"""NeutronPorts at once, and Pods that get one that is there beside Pods with ports of their own.

The controller, the API server, etcd and the cloud are processes of their own; this process makes
NeutronPorts and Pods, and stands in for the daemon of the Pods' node.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.neutron_ports.objects import AT_ONCE, Made, alone, filled, make, watched
from bench.options import add_latency, add_profile, add_values
from bench.pods.load import Cost, PodLoad, PodTimes
from bench.report import Report, Table, Target
from bench.testbed.concurrency import for_each
from bench.testbed.implementations import ThisProject
from bench.testbed.node_daemon import NodeDaemon
from bench.testbed.testbed import CONTROLLER, Controller, Testbed, running_testbed

HANDLERS = "vif,kuryrport,neutron_port"
NODE = "node0"
FLOORS = 3.0  # of the API server alone: NeutronPorts until Available, without latency
STARVED = 1.0  # seconds that Pods wait longer in a flood of NeutronPorts
PODS = 20  # that come in a flood
CALLS = 0.3  # of Neutron, for each NeutronPort: ports are made in bulk
KINDS = {  # of ports that Pods get: options, and whether they name a network
    "a port of its own": ({"kubernetes": {"multi_vif_drivers": "named_network"}}, True),
    "a NeutronPort": (
        {
            "kubernetes": {
                "multi_vif_drivers": "named_network",
                "enabled_handlers": HANDLERS,
                "neutron_ports": "bind",
            }
        },
        True,
    ),
    "a port of a pool": (
        {
            "kubernetes": {"vif_pool_driver": "neutron"},
            "vif_pool": {"ports_pool_min": "150", "ports_pool_max": "0"},
        },
        False,
    ),
}


@dataclass(frozen=True)
class Bound:
    """Pods that got one kind of port."""

    kind: str
    latency: float
    number: int
    runs: list[PodTimes] = field(repr=False)
    cost: Cost = field(repr=False)

    def plugged(self) -> list[float]:
        """Return the seconds from each Pod's creation until its VIFs are there."""
        return [each for run in self.runs for each in run.plugged]

    def all(self) -> float:
        """Return the seconds until all Pods of a run had their VIFs; the median of the runs."""
        return median(run.plugged_all for run in self.runs)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_latency(parser)
    parser.add_argument("--objects", type=int, default=1000, help="NeutronPorts at once (1000)")
    parser.add_argument(
        "--flood",
        type=int,
        default=3000,
        help="NeutronPorts that are applied while Pods come (3000)",
    )
    add_values(parser, "--pods", int, (1, 100), "Pods at once")
    parser.add_argument("--repeats", type=int, default=10, help="runs with a single Pod (10)")
    parser.add_argument("--plays", type=int, default=3, help="runs with several Pods (3)")
    add_profile(parser)


def measure(options: argparse.Namespace) -> Report:
    """Run all cases and return their report."""
    return asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> Report:
    async with running_testbed(nodes=1, profile=options.profile) as testbed:
        await testbed.cluster.add_namespace()
        await testbed.cluster.add_namespace("floor")
        floor = await alone(testbed, options.objects)
        project = ThisProject()
        async with project.controller(testbed, KINDS["a NeutronPort"][0]) as controller:
            await make(testbed, controller, 0.0, 1, floor)  # finds out how Neutron treats tags
            made = [
                await make(testbed, controller, latency, options.objects, floor)
                for latency in options.latency
            ]
            floods = [
                await _flood(testbed, controller, latency, options) for latency in options.latency
            ]
        bound: list[Bound] = []
        for kind in KINDS:
            async with project.controller(testbed, KINDS[kind][0]) as controller:
                bound += await _bind(testbed, controller, kind, options)
            await testbed.cloud.set_delays(0.0)
            await testbed.cloud.remove_ports()
    return _report(made, floods, bound)


@dataclass(frozen=True)
class Flood:
    """Pods with ports of their own, alone and while many NeutronPorts are being made."""

    latency: float
    objects: int
    alone: PodTimes = field(repr=False)
    beside: PodTimes = field(repr=False)

    def median(self, times: PodTimes) -> float:
        """Return the median of the seconds until the Pods' VIFs."""
        return median(times.plugged)


async def _flood(
    testbed: Testbed, controller: Controller, latency: float, options: argparse.Namespace
) -> Flood:
    """Measure Pods that come while many NeutronPorts have just been applied."""
    daemon = NodeDaemon(testbed.daemon, NODE)
    await daemon.wait_for_permission()
    names = [f"flood-{each}" for each in range(options.flood)]
    pods = [[f"pod-{play}-{each}" for each in range(PODS)] for play in range(2)]
    await testbed.cloud.set_delays(latency)
    async with watched(testbed, testbed.cluster.namespace) as population:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(daemon.run())
            load = PodLoad(testbed, controller, daemon, CONTROLLER, pooled=True)
            alone = await load.run(pods[0])
            applied = group.create_task(for_each(names, population.create, at_once=AT_ONCE))
            await population.until(lambda: len(population.there) >= options.flood // 4)
            beside = await load.run(pods[1])
            await applied
            task.cancel()
        await population.until(lambda: len(population.available) == options.flood)
        await for_each(names, population.delete, at_once=AT_ONCE)
        await population.until(lambda: not population.there)
    return Flood(latency, options.flood, alone, beside)


async def _bind(
    testbed: Testbed, controller: Controller, kind: str, options: argparse.Namespace
) -> list[Bound]:
    """Measure Pods that get ports of a kind."""
    names_network = KINDS[kind][1]
    annotations = {"openstack.org/network_id": testbed.facts["network"]} if names_network else None
    daemon = NodeDaemon(testbed.daemon, NODE)
    await daemon.wait_for_permission()
    found: list[Bound] = []

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(daemon.run())
            load = PodLoad(
                testbed, controller, daemon, CONTROLLER, pooled=True, annotations=annotations
            )
            await testbed.cloud.set_delays(0.0)
            await load.run(["warm-up"])
            await asyncio.sleep(5)  # a pool is full then
            for latency in options.latency:
                await testbed.cloud.set_delays(latency)
                for number in options.pods:
                    times = options.repeats if number == 1 else options.plays
                    runs, costs = [], []
                    for play in range(times):
                        names = [[f"pod-{play}-{each}" for each in range(number)]]
                        measured, cost = await load.run_counted(names)
                        runs += measured
                        costs.append(cost)
                        await asyncio.sleep(1)  # ports come back
                    found.append(Bound(kind, latency, number, runs, Cost.sum_of(costs)))
            task.cancel()

    if kind == "a NeutronPort":
        await filled(testbed, max(options.pods) + 20, run)
    else:
        await run()
    return found


def _report(made: Sequence[Made], floods: Sequence[Flood], bound: Sequence[Bound]) -> Report:
    tables = [_of_objects(made), _of_floods(floods), _of_pods(bound)]
    targets = [
        Target(
            f"{each.number} NeutronPorts, Neutron {each.latency:g} s: all Available",
            each.available_all / each.alone,
            FLOORS,
            "x floor",
        )
        for each in made
        if each.latency == 0
    ]
    targets += [
        Target(
            f"{each.number} NeutronPorts, Neutron {each.latency:g} s: Neutron calls",
            sum(each.neutron.values()) / each.number,
            CALLS,
            "each",
        )
        for each in made
    ]
    targets += [
        Target(
            f"{PODS} Pods beside {each.objects} NeutronPorts, Neutron {each.latency:g} s: P50",
            each.median(each.beside) - each.median(each.alone),
            STARVED,
            "s more",
        )
        for each in floods
    ]
    figures = {
        "floods": [
            {"latency": each.latency, "alone": each.alone.plugged, "beside": each.beside.plugged}
            for each in floods
        ],
        "made": [vars(each) for each in made],
        "bound": [
            {
                "kind": each.kind,
                "latency": each.latency,
                "pods": each.number,
                "plugged": each.plugged(),
                "plugged_all": each.all(),
            }
            for each in bound
        ],
    }
    return Report("neutronports", tables, targets, figures)


def _of_objects(made: Sequence[Made]) -> Table:
    title = (
        "Seconds from a NeutronPort's POST until it is Available; ALONE: the API server by itself "
        "for the same writes; CALLS, WRITES and CPU ms for each"
    )
    columns = ("NEUTRONPORTS, NEUTRON", "P50", "P99", "CREATED", "ALL", "ALONE", "ALL/ALONE",
               "GONE", "CALLS", "WRITES", "READS", "CPU", "PEAK MiB")  # fmt: skip
    rows = [
        (
            f"{each.number} at {each.latency:g} s",
            _quantile(each.available, 0.5),
            _quantile(each.available, 0.99),
            each.created_all,
            each.available_all,
            each.alone,
            each.available_all / each.alone,
            each.gone_all,
            sum(each.neutron.values()) / each.number,
            each.writes / each.number,
            each.reads / each.number,
            1000 * each.cpu_seconds / each.number,
            each.peak,
        )
        for each in made
    ]
    return Table(title, columns, rows)


def _of_floods(floods: Sequence[Flood]) -> Table:
    title = f"Seconds from a Pod's creation until its VIFs: {PODS} Pods, alone and in a flood"
    columns = ("NEUTRON", "NEUTRONPORTS", "ALONE P50", "P99", "BESIDE P50", "P99")
    rows = [
        (
            f"{each.latency:g} s",
            each.objects,
            *(
                _quantile(times.plugged, share)
                for times in (each.alone, each.beside)
                for share in (0.5, 0.99)
            ),
        )
        for each in floods
    ]
    return Table(title, columns, rows)


def _of_pods(bound: Sequence[Bound]) -> Table:
    own = {(each.latency, each.number): each for each in bound if each.kind == "a port of its own"}
    title = "Seconds from a Pod's creation until its VIFs, by the port that it gets"
    columns = ("PODS, NEUTRON", "PORT", "P50", "P99", "ALL", "x own, P50", "x own, ALL", "CALLS",
               "WRITES", "READS", "CPU ms")  # fmt: skip
    rows = []
    for each in sorted(bound, key=lambda each: (each.latency, each.number)):
        beside = own[each.latency, each.number]
        p50 = _quantile(each.plugged(), 0.5)
        pods = each.number * len(each.runs)
        rows.append(
            (
                f"{each.number} at {each.latency:g} s",
                each.kind,
                p50,
                _quantile(each.plugged(), 0.99),
                each.all(),
                p50 / _quantile(beside.plugged(), 0.5),
                each.all() / beside.all(),
                sum(each.cost.neutron.values()) / pods,
                each.cost.writes / pods,
                each.cost.reads / pods,
                1000 * each.cost.cpu_seconds / pods,
            )
        )
    return Table(title, columns, rows)


def _quantile(values: Sequence[float], share: float) -> float:
    found = sorted(values)
    return found[min(len(found) - 1, int(share * len(found)))]
