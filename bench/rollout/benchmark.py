"""A rollout behind Services on a fake Octavia: lost requests, dead members, calls, time.

The test bed is that of `bench services`, with the times that the providers were measured to take.
"""

from __future__ import annotations

import argparse
import asyncio

from bench.options import add_profile, add_values
from bench.report import Report
from bench.rollout.case import RolloutCase
from bench.rollout.kinds import KINDS
from bench.rollout.report import rollout_report
from bench.rollout.runner import RolloutRunner
from bench.services.case import Delays
from bench.services.options import service_options
from bench.testbed.implementations import ThisProject
from bench.testbed.providers import PROVIDERS
from bench.testbed.testbed import running_testbed


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_values(parser, "--provider", str, tuple(PROVIDERS), "providers of the load balancers")
    add_values(parser, "--kind", str, tuple(KINDS), "kinds of Services")
    parser.add_argument("--pods", type=int, default=10, help="Pods of the Deployment (10)")
    parser.add_argument(
        "--every", type=float, default=0.8, help="seconds between two Pods' replacements (0.8)"
    )
    drain = "seconds for which a Pod that is replaced serves, as its preStop hook has it"
    add_values(parser, "--drain", float, (8.0, 0.0), drain)
    parser.add_argument(
        "--latency", type=float, default=0.3, help="seconds that each call of Octavia takes (0.3)"
    )
    add_profile(parser)


def measure(options: argparse.Namespace) -> Report:
    """Run all cases and return their report."""
    return asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> Report:
    cases: list[RolloutCase] = []
    implementation = ThisProject()
    async with running_testbed(profile=options.profile) as testbed:
        await testbed.cluster.add_namespace()
        for name in options.provider:
            provider = PROVIDERS[name]
            delays = Delays(options.latency, provider.change, name, provider.one_by_one)
            controlled = implementation.controller(
                testbed, service_options(testbed, implementation, name)
            )
            async with controlled as controller:
                runner = RolloutRunner(testbed, controller, delays)
                cases += [
                    await runner.case(KINDS[kind], options.pods, options.every, drain)
                    for kind in options.kind
                    for drain in options.drain
                ]
    return rollout_report(cases)
