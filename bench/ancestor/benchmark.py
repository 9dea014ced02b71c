"""kuryr-kubernetes and this project in turn: the same API server, cloud, Pods and Services.

The benchmark shows what each adds to the configured delays of Neutron, with and without pools of
ports, and to those of Octavia.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict

from bench.ancestor import services
from bench.ancestor.kuryr_kubernetes import USER, KuryrKubernetes
from bench.ancestor.pods_report import Measurements, ancestor_report
from bench.options import (
    add_latency,
    add_octavia,
    add_pods,
    add_repetitions,
    add_services,
    add_values,
    repetitions,
)
from bench.pods.case import Delays
from bench.pods.floor import Floors
from bench.pods.pool import MODES, Pool
from bench.pods.runner import NODES, PodRunner
from bench.report import Report
from bench.testbed.cloud_control import count_by_kind
from bench.testbed.implementations import Implementation, ThisProject
from bench.testbed.testbed import Testbed, running_testbed

PARTS = ("pods", "services")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_values(parser, "--parts", str, PARTS, "the parts to run")
    add_latency(parser)
    add_values(parser, "--after", float, (0.0, 1.0), "seconds from plugging to ACTIVE")
    add_pods(parser)
    pools = "without a pool (noop), with an empty one (cold) or with a full one (warm)"
    add_values(parser, "--pool", str, MODES, pools)
    add_repetitions(parser, "Pod or Service", single=3, several=1)
    parser.add_argument(
        "--churn", type=int, default=60, help="Pods that come and go, 20 at a time; 0: none (60)"
    )
    parser.add_argument(
        "--idle", type=float, default=60.0, help="seconds without Pods, with a pool; 0: none (60)"
    )
    add_services(parser, (1, 20))
    add_octavia(parser)


def measure(options: argparse.Namespace) -> Report:
    """Measure both, one after the other for each kind of pool; return the report."""
    return asyncio.run(_measure(options, [KuryrKubernetes(), ThisProject()]))


async def _measure(options: argparse.Namespace, implementations: list[Implementation]) -> Report:
    report = Report("ancestor")
    async with running_testbed(nodes=NODES, users=[USER]) as testbed:
        await testbed.cluster.add_namespace()
        if "pods" in options.parts:
            report = await _measure_pods(testbed, implementations, options)
        if "services" in options.parts:
            cases = {}
            for implementation in implementations:
                await implementation.install(testbed)
                cases[implementation.name] = await services.run(testbed, implementation, options)
            report.tables += services.tables(cases)
            report.figures["services"] = {
                name: services.figures(cases_of_name) for name, cases_of_name in cases.items()
            }
    return report


async def _measure_pods(
    testbed: Testbed, implementations: list[Implementation], options: argparse.Namespace
) -> Report:
    measured: dict[str, Measurements] = defaultdict(Measurements)
    pools = [Pool.sized_for(mode, options.pods) for mode in options.pool]
    await testbed.cluster.add_namespace("floor")
    floors = Floors(testbed, options.pods)
    await floors.measure()
    for pool in pools:
        for implementation in implementations:
            await implementation.install(testbed)
            await _run(testbed, implementation, pool, options, measured[implementation.name])
    if options.idle and any(pool.mode != "noop" for pool in pools):
        for implementation in implementations:
            await implementation.install(testbed)
            await _idle(testbed, implementation, options.idle, measured[implementation.name])
    await floors.measure()
    return ancestor_report(measured, pools, floors.medians(), options.idle)


async def _run(
    testbed: Testbed,
    implementation: Implementation,
    pool: Pool,
    options: argparse.Namespace,
    measured: Measurements,
) -> None:
    runner = PodRunner(testbed, implementation, pool, _one_family(testbed))
    delays = [
        Delays(latency, after=after) for latency in options.latency for after in options.after
    ]
    runs = {number: repetitions(options, number) for number in options.pods}
    measured.cases += await runner.run(delays, runs, options.churn)
    if runner.churn is not None:
        measured.churns[pool.mode] = runner.churn


async def _idle(
    testbed: Testbed, implementation: Implementation, seconds: float, measured: Measurements
) -> None:
    """Count the calls of Neutron while nothing happens, with a pool of the default size."""
    runner = PodRunner(testbed, implementation, Pool("warm"), _one_family(testbed))
    async with runner.session(Delays(0.0, after=0.0)):
        await testbed.cloud.clear_calls()
        await asyncio.sleep(seconds)
        measured.idle = dict(count_by_kind(await testbed.cloud.calls()))


def _one_family(testbed: Testbed) -> dict[str, dict[str, str]]:
    """Return options for one address a Pod: kuryr-kubernetes supports no second."""
    return {"neutron_defaults": {"pod_subnet": testbed.facts["subnets"][0]}}
