"""The controller's start beside 10 000 Pods: seconds, calls, memory."""

from __future__ import annotations

import argparse
import asyncio
import time

from bench.report import Report
from bench.restart.population import PER_NODE, Population
from bench.restart.report import Start, restart_report
from bench.testbed.audit import Tally
from bench.testbed.fake_cloud import Call, by_kind
from bench.testbed.processes import Memory
from bench.testbed.testbed import CONTROLLER, Controller, Stage, set_up

EMPTY_WATCHED = 10.0  # seconds that the controller without Pods is looked at


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument("--pods", type=int, default=10_000, help="how many Pods (10000)")
    parser.add_argument(
        "--watched",
        type=float,
        default=60.0,
        help="seconds after the start in which calls are counted (60)",
    )
    parser.add_argument("--profile", default="", help="write a cProfile of the controller here")


def measure(options: argparse.Namespace) -> Report:
    """Start it without Pods, then beside all of them."""
    return asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> Report:
    nodes = -(-options.pods // PER_NODE)
    async with set_up(nodes=nodes, profile=options.profile) as stage:
        empty = await _start(stage, EMPTY_WATCHED)
        population = Population(stage, options.pods)
        begun = time.monotonic()
        await population.create()
        took = time.monotonic() - begun
        full = await _start(stage, options.watched)
        size = await population.size()
    return restart_report(options.pods, empty, full, creation=took, pod_bytes=size)


async def _start(stage: Stage, watched: float) -> Start:
    """One life of the controller, `watched` seconds long after its caches were synced."""
    await stage.cloud.forget_calls()
    stage.audit.mark()
    async with stage.controller() as controller:
        ready_cpu = controller.process.cpu_seconds()
        await asyncio.sleep(watched)
        calls, tally = await stage.cloud.calls(), stage.audit.tally()
        memory = controller.process.memory()
        return _found(controller, calls, tally, ready_cpu, memory)


def _found(
    controller: Controller, calls: list[Call], tally: Tally, ready_cpu: float, memory: Memory
) -> Start:
    lists = [call for call in calls if (call.method, call.what) == ("GET", "/v2.0/ports")]
    others = [call for call in calls if call not in lists]
    swept = max((call.answered for call in lists), default=float("nan"))
    return Start(
        ready=controller.ready - controller.begun,
        swept=swept - controller.begun,
        cpu_ready=ready_cpu,
        cpu_seconds=controller.process.cpu_seconds(),
        lists=sum("marker=" not in call.query for call in lists),
        pages=len(lists),
        checks=sum(call.answered < controller.ready for call in others),
        others=sum(call.answered >= controller.ready for call in others),
        writes=tally.writes(CONTROLLER),
        reads=tally.reads(CONTROLLER),
        watches=tally.lists(CONTROLLER),
        kinds={f"Neutron {kind}": n for kind, n in by_kind(calls).items()} | tally.kinds(),
        resident=memory.resident,
        peak=memory.peak,
    )
