"""Pods at once on a real API server and a fake Neutron: times, calls, memory, beside the floor.

The controller, the API server, etcd and the cloud are processes of their own; this process creates
the Pods and stands in for the daemon of their node. All share the cores of this machine.
"""

from __future__ import annotations

import argparse
import asyncio

from bench.options import (
    add_latency,
    add_pods,
    add_profile,
    add_repetitions,
    add_values,
    repetitions,
)
from bench.pods.case import Delays
from bench.pods.floor import Floors
from bench.pods.pool import MODES, Pool
from bench.pods.report import pods_report
from bench.pods.runner import NODES, PodRunner
from bench.report import Report
from bench.testbed.fake_cloud import FURTHER
from bench.testbed.implementations import ThisProject
from bench.testbed.testbed import running_testbed


def _interfaces(text: str) -> int:
    """Read a number of interfaces; the testbed has so many networks."""
    number = int(text)
    if not 1 <= number <= FURTHER + 1:
        raise argparse.ArgumentTypeError(f"{number} is no number from 1 to {FURTHER + 1}")
    return number


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_latency(parser)
    parser.add_argument(
        "--per-port",
        type=float,
        default=0.0,
        help="seconds that a creation takes in addition for each of its ports (0)",
    )
    add_pods(parser)
    add_repetitions(parser, "Pod", single=20, several=3)
    parser.add_argument(
        "--pool",
        choices=MODES,
        default="noop",
        help="without a pool of ports, with an empty one (cold) or with a full one (warm) (noop)",
    )
    add_values(parser, "--interfaces", _interfaces, (1,), "interfaces of each Pod")
    add_profile(parser)


def measure(options: argparse.Namespace) -> Report:
    """Run all cases and return their report."""
    return asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> Report:
    pool = Pool.sized_for(options.pool, options.pods)
    async with running_testbed(nodes=NODES, profile=options.profile) as testbed:
        await testbed.cluster.add_namespace()
        await testbed.cluster.add_namespace("floor")
        floors = Floors(testbed, options.pods)
        await floors.measure()
        delays = [Delays(latency, options.per_port) for latency in options.latency]
        runs = {number: repetitions(options, number) for number in options.pods}
        cases = []
        for interfaces in options.interfaces:
            several = {"kubernetes": {"multi_vif_drivers": "additional_subnets"}}
            asked = several if interfaces > 1 else None
            runner = PodRunner(testbed, ThisProject(), pool, asked, interfaces)
            cases += await runner.run(delays, runs)
        await floors.measure()
    return pods_report(cases, pool, floors.medians(), runner.idle)
