"""Services at once on a real API server and a fake Octavia: times and calls, beside the floor.

The controller, the API server, etcd and the cloud are processes of their own; this one creates
the Services and does what kube-controller-manager would. All share the cores of this machine.
"""

from __future__ import annotations

import argparse
import asyncio

from bench.pods.benchmark import numbers
from bench.report import Report
from bench.services.load import Churn, Market
from bench.services.report import services_report
from bench.services.runner import Restart, ServiceCase, ServiceProgram, Weather, weathers
from bench.testbed.implementations import Product
from bench.testbed.testbed import set_up


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument(
        "--octavia",
        type=numbers(str),
        default=["0:0", "0.3:1"],
        help="seconds that each call of the cloud takes, and that a change of a load balancer is "
        "PENDING after its answer, comma-separated (0:0,0.3:1)",
    )
    parser.add_argument(
        "--services",
        type=numbers(int),
        default=[1, 20, 500],
        help="how many Services at once, comma-separated (1,20,500)",
    )
    parser.add_argument(
        "--endpoints",
        type=numbers(int),
        default=[2, 50],
        help="how many endpoints each has, comma-separated (2,50)",
    )
    parser.add_argument(
        "--repeats", type=int, default=20, help="how often one Service alone is measured (20)"
    )
    parser.add_argument(
        "--plays", type=int, default=3, help="how often several Services are measured (3)"
    )
    parser.add_argument(
        "--restart", type=int, default=500, help="Services beside a restart; 0: none (500)"
    )
    parser.add_argument(
        "--no-churn", action="store_true", help="without a Service that changes all the time"
    )
    parser.add_argument("--profile", default="", help="write a cProfile of the controller here")


def measure(options: argparse.Namespace) -> Report:
    """Run all cases."""
    return asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> Report:
    conditions = weathers(options.octavia)
    cases: list[ServiceCase] = []
    churns: list[tuple[Weather, Churn]] = []
    restarts: list[Restart] = []
    async with set_up(profile=options.profile) as stage:
        await stage.cluster.add_namespace()
        program = ServiceProgram(stage, Product())
        if options.services or not options.no_churn:
            async with program.curtain() as market:
                for weather in conditions:
                    cases += await _cases(program, market, weather, options)
                    if not options.no_churn:
                        churns.append((weather, await program.churn(market, weather)))
        if options.restart:
            for weather in conditions:
                endpoints = options.endpoints[0]
                restarts.append(await program.restart(weather, options.restart, endpoints))
    return services_report(cases, churns, restarts)


async def _cases(
    program: ServiceProgram, market: Market, weather: Weather, options: argparse.Namespace
) -> list[ServiceCase]:
    return [
        await program.case(market, weather, number, endpoints, _times(number, options))
        for number in options.services
        for endpoints in options.endpoints
    ]


def _times(number: int, options: argparse.Namespace) -> int:
    """Hundreds of Services are steady by themselves."""
    if number == 1:
        return int(options.repeats)
    return int(options.plays) if number < 100 else 1
