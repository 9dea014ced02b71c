"""The controller's start beside 10 000 Pods: seconds, calls, memory."""

from __future__ import annotations

import argparse
import asyncio
import time
from urllib.parse import parse_qs

from bench.options import add_profile
from bench.report import Report
from bench.restart.population import PER_NODE, Population
from bench.restart.report import Start, restart_report
from bench.testbed.audit import Tally
from bench.testbed.cloud_control import Call, count_by_kind
from bench.testbed.processes import Memory
from bench.testbed.testbed import CONTROLLER, Controller, Testbed, running_testbed

EMPTY_WATCHED = 10.0  # seconds for which the controller without Pods is watched


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--pods", type=int, default=10_000, help="how many Pods there are (10000)")
    parser.add_argument(
        "--watched",
        type=float,
        default=60.0,
        help="seconds after the start in which calls are counted (60)",
    )
    add_profile(parser)


def measure(options: argparse.Namespace) -> Report:
    """Start the controller without Pods and beside all of them; return the report."""
    return asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> Report:
    nodes = -(-options.pods // PER_NODE)
    async with running_testbed(nodes=nodes, profile=options.profile) as testbed:
        empty = await _start(testbed, EMPTY_WATCHED)
        population = Population(testbed, options.pods)
        begun = time.monotonic()
        await population.create()
        took = time.monotonic() - begun
        full = await _start(testbed, options.watched)
        size = await population.size()
    return restart_report(options.pods, empty, full, creation=took, pod_bytes=size)


async def _start(testbed: Testbed, watched: float) -> Start:
    """Start the controller and stop it `watched` seconds after its caches were synced."""
    await testbed.cloud.clear_calls()
    testbed.audit.mark()
    async with testbed.controller() as controller:
        ready_cpu = controller.process.cpu_seconds()
        await asyncio.sleep(watched)
        calls, tally = await testbed.cloud.calls(), testbed.audit.tally()
        memory = controller.process.memory()
        return _as_start(controller, calls, tally, ready_cpu, memory)


def _as_start(
    controller: Controller, calls: list[Call], tally: Tally, ready_cpu: float, memory: Memory
) -> Start:
    lists = [call for call in calls if _is_list_of_pods_ports(call)]
    others = [call for call in calls if call not in lists]
    swept = max((call.answered for call in lists), default=float("nan"))
    return Start(
        ready=controller.ready - controller.started,
        swept=swept - controller.started,
        cpu_ready=ready_cpu,
        cpu_seconds=controller.process.cpu_seconds(),
        lists=sum(_begins_list(call) for call in lists),
        pages=len(lists),
        checks=sum(call.answered < controller.ready for call in others),
        others=sum(call.answered >= controller.ready for call in others),
        writes=tally.writes(CONTROLLER),
        reads=tally.reads(CONTROLLER),
        watches=tally.lists(CONTROLLER),
        kinds={f"Neutron {kind}": count for kind, count in count_by_kind(calls).items()}
        | tally.kinds(),
        resident=memory.resident,
        peak=memory.peak,
    )


def _is_list_of_pods_ports(call: Call) -> bool:
    """Return whether a call lists ports; those of Nodes are listed once besides, and few."""
    is_list = (call.method, call.what) == ("GET", "/v2.0/ports")
    return is_list and "compute:kuryr-node" not in call.query


def _begins_list(call: Call) -> bool:
    """Return whether a call asks for the first page of a list.

    A last page that is full is followed by a search for the object that it ended with
    (``limit=1``): a list that is cut short because this object has gone must not look complete.
    """
    query = parse_qs(call.query)
    return "marker" not in query and query.get("limit") != ["1"]
