"""kuryr-kubernetes and this project in turn: the same API server, cloud, Pods and Services.

What each adds to what Neutron was dialled to take, with and without pools of ports; and to what
Octavia was.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict

from bench.ancestor import services as ancestor_services
from bench.ancestor.pods_report import Found, ancestor_report
from bench.pods.benchmark import numbers
from bench.pods.floor import Floors
from bench.pods.pool import MODES, Pool
from bench.pods.runner import NODES, Program, Weather
from bench.report import Report
from bench.testbed.fake_cloud import by_kind
from bench.testbed.implementations import ANCESTOR, Ancestor, Contestant, Product
from bench.testbed.testbed import Stage, set_up

PARTS = ("pods", "services")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument(
        "--parts",
        type=numbers(str),
        default=list(PARTS),
        help="what is played, of pods,services (both)",
    )
    parser.add_argument(
        "--latency",
        type=numbers(float),
        default=[0.0, 0.1, 0.3],
        help="seconds that each call of Neutron takes, comma-separated (0,0.1,0.3)",
    )
    parser.add_argument(
        "--after",
        type=numbers(float),
        default=[0.0, 1.0],
        help="seconds from plugging to ACTIVE, comma-separated (0,1)",
    )
    parser.add_argument(
        "--pods",
        type=numbers(int),
        default=[1, 100, 400],
        help="how many Pods at once, comma-separated (1,100,400)",
    )
    parser.add_argument(
        "--pool",
        type=numbers(str),
        default=list(MODES),
        help="without a pool, with one that is empty or full: noop,cold,warm",
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="how often one Pod or Service is measured (3)"
    )
    parser.add_argument(
        "--plays", type=int, default=1, help="how often several of them are measured (1)"
    )
    parser.add_argument(
        "--churn", type=int, default=60, help="Pods that come and go, 20 at a time; 0: none (60)"
    )
    parser.add_argument(
        "--idle", type=float, default=60.0, help="seconds without Pods, with a pool; 0: none (60)"
    )
    parser.add_argument(
        "--services",
        type=numbers(int),
        default=[1, 20],
        help="how many Services at once, comma-separated (1,20)",
    )
    parser.add_argument(
        "--octavia",
        type=numbers(str),
        default=["0:0", "0.3:1"],
        help="seconds a call, and seconds PENDING after it, comma-separated (0:0,0.3:1)",
    )


def measure(options: argparse.Namespace) -> Report:
    """Both, one after the other for each kind of pool."""
    return asyncio.run(_measure(options, [Ancestor(), Product()]))


async def _measure(options: argparse.Namespace, contestants: list[Contestant]) -> Report:
    report = Report("ancestor")
    async with set_up(nodes=NODES, users=[ANCESTOR]) as stage:
        await stage.cluster.add_namespace()
        if "pods" in options.parts:
            report = await _with_pods(stage, contestants, options)
        if "services" in options.parts:
            played = {}
            for contestant in contestants:
                await contestant.enter(stage)
                played[contestant.name] = await ancestor_services.play(stage, contestant, options)
            report.tables += ancestor_services.tables(played)
            report.figures["services"] = {
                name: ancestor_services.figures(cases) for name, cases in played.items()
            }
    return report


async def _with_pods(
    stage: Stage, contestants: list[Contestant], options: argparse.Namespace
) -> Report:
    found: dict[str, Found] = defaultdict(Found)
    pools = [Pool.enough(mode, options.pods) for mode in options.pool]
    await stage.cluster.add_namespace("floor")
    floors = Floors(stage, options.pods)
    await floors.measure()
    for pool in pools:
        for contestant in contestants:
            await contestant.enter(stage)
            await _perform(stage, contestant, pool, options, found[contestant.name])
    if options.idle and any(pool.mode != "noop" for pool in pools):
        for contestant in contestants:
            await contestant.enter(stage)
            await _idle(stage, contestant, options.idle, found[contestant.name])
    await floors.measure()
    return ancestor_report(found, pools, floors.medians(), options.idle)


async def _perform(
    stage: Stage,
    contestant: Contestant,
    pool: Pool,
    options: argparse.Namespace,
    found: Found,
) -> None:
    program = Program(stage, contestant, pool, _one_family(stage))
    weathers = [
        Weather(latency, after=after) for latency in options.latency for after in options.after
    ]
    plays = {number: options.repeats if number == 1 else options.plays for number in options.pods}
    found.cases += await program.play(weathers, plays, options.churn)
    if program.churn is not None:
        found.churns[pool.mode] = program.churn


async def _idle(stage: Stage, contestant: Contestant, seconds: float, found: Found) -> None:
    """Calls of Neutron while nothing happens; with a pool of the usual size."""
    program = Program(stage, contestant, Pool("warm"), _one_family(stage))
    async with program.curtain(Weather(0.0, after=0.0)):
        await stage.cloud.forget_calls()
        await asyncio.sleep(seconds)
        found.idle = dict(by_kind(await stage.cloud.calls()))


def _one_family(stage: Stage) -> dict[str, dict[str, str]]:
    """kuryr-kubernetes knows one address of a Pod, so both get one."""
    return {"neutron_defaults": {"pod_subnet": stage.facts["subnets"][0]}}
