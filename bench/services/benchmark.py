"""Services at once on a real API server and a fake Octavia: times and calls, beside the floor.

The controller, the API server, etcd and the cloud are processes of their own; this process creates
the Services and what kube-controller-manager would. All share the cores of this machine.
"""

from __future__ import annotations

import argparse
import asyncio

from bench.options import (
    add_octavia,
    add_profile,
    add_repetitions,
    add_services,
    add_values,
    repetitions,
)
from bench.report import Report
from bench.services.case import Delays, LargeService, Restart, ServiceCase, read_delays
from bench.services.load import Churn, ServiceLoad
from bench.services.report import services_report
from bench.services.runner import ServiceRunner
from bench.testbed.implementations import ThisProject
from bench.testbed.testbed import running_testbed


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_octavia(parser)
    add_services(parser, (1, 20, 500, 1000))
    add_values(parser, "--endpoints", int, (2, 50), "how many endpoints each Service has")
    add_repetitions(parser, "Service", single=20, several=3)
    parser.add_argument(
        "--large", type=int, default=5000, help="endpoints of one more Service; 0: none (5000)"
    )
    parser.add_argument(
        "--restart", type=int, default=1000, help="Services beside a restart; 0: none (1000)"
    )
    parser.add_argument(
        "--no-churn", action="store_true", help="without a Service that changes all the time"
    )
    add_profile(parser)


def measure(options: argparse.Namespace) -> Report:
    """Run all cases and return their report."""
    return asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> Report:
    all_delays = read_delays(options.octavia)
    cases: list[ServiceCase] = []
    churns: list[tuple[Delays, Churn]] = []
    larges: list[LargeService] = []
    restarts: list[Restart] = []
    async with running_testbed(profile=options.profile) as testbed:
        await testbed.cluster.add_namespace()
        runner = ServiceRunner(testbed, ThisProject())
        if options.services or options.large or not options.no_churn:
            async with runner.session() as load:
                for delays in all_delays:
                    cases += await _cases(runner, load, delays, options)
                    if not options.no_churn:
                        churns.append((delays, await runner.churn(load, delays)))
                    if options.large:
                        larges.append(await runner.large(load, delays, options.large))
        if options.restart:
            for delays in all_delays:
                endpoints = options.endpoints[0]
                restarts.append(await runner.restart(delays, options.restart, endpoints))
    return services_report(cases, churns, restarts, larges)


async def _cases(
    runner: ServiceRunner, load: ServiceLoad, delays: Delays, options: argparse.Namespace
) -> list[ServiceCase]:
    return [
        await runner.case(load, delays, number, endpoints, _repetitions(number, options))
        for number in options.services
        for endpoints in options.endpoints
    ]


def _repetitions(number: int, options: argparse.Namespace) -> int:
    """Return how often a case is run; with hundreds of Services a single run is steady."""
    return repetitions(options, number) if number < 100 else 1
