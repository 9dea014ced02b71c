"""Pods at once on a real API server and a fake Neutron: times, calls, memory, beside the floor.

The controller, the API server, etcd and the cloud are processes of their own; this one creates
the Pods and does what the daemon of their node would. All share the cores of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from statistics import median
from typing import Any

from bench.lives import Cost, Lives, Theatre
from bench.node import NodeDaemon
from bench.pods_report import Case, pods_report
from bench.report import Report
from bench.stage import ENVIRONMENT, Stage, set_up

FLOORS = 2  # measurements of the floor before the controller, and as many after it


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument(
        "--latency",
        type=_numbers(float),
        default=[0.0, 0.1, 0.3],
        help="seconds that each call of Neutron takes, comma-separated (0,0.1,0.3)",
    )
    parser.add_argument(
        "--per-port",
        type=float,
        default=0.0,
        help="seconds that a creation takes in addition for each of its ports (0)",
    )
    parser.add_argument(
        "--pods",
        type=_numbers(int),
        default=[1, 100, 400],
        help="how many Pods at once, comma-separated (1,100,400)",
    )
    parser.add_argument(
        "--repeats", type=int, default=20, help="how often one Pod alone is measured (20)"
    )
    parser.add_argument(
        "--plays", type=int, default=3, help="how often several Pods are measured (3)"
    )
    parser.add_argument("--profile", default="", help="write a cProfile of the controller here")


def measure(options: argparse.Namespace) -> Report:
    """Run all cases."""
    return asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> Report:
    async with set_up(profile=options.profile) as stage:
        await stage.cluster.add_namespace()
        await stage.cluster.add_namespace("floor")
        floors: dict[int, list[float]] = {number: [] for number in options.pods}
        await _measure_floors(stage, floors)
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(asyncio.TaskGroup())
            controller = await stack.enter_async_context(stage.controller())
            daemon = NodeDaemon(stage.daemon, "node0")
            await daemon.until_permitted()
            watching = group.create_task(daemon.run())
            theatre = Theatre(stage, controller, daemon)
            await theatre.play(["warm-up"])  # finds out how Neutron treats tags
            idle = controller.process.memory()
            cases = []
            for latency in options.latency:
                await stage.cloud.dial(latency, options.per_port)
                for number in options.pods:
                    lives, cost = await _play(theatre, number, options)
                    cases.append(Case(latency, options.per_port, number, lives, cost))
            watching.cancel()
        await _measure_floors(stage, floors)
    return pods_report(cases, {number: median(found) for number, found in floors.items()}, idle)


async def _play(
    theatre: Theatre, number: int, options: argparse.Namespace
) -> tuple[list[Lives], Cost]:
    times = options.repeats if number == 1 else options.plays
    plays = [[f"pod-{play}-{i}" for i in range(number)] for play in range(times)]
    return await theatre.play_counted(plays)


async def _measure_floors(stage: Stage, floors: dict[int, list[float]]) -> None:
    for number, found in floors.items():
        for _ in range(FLOORS):
            found.append(await _floor(stage, number))


async def _floor(stage: Stage, number: int) -> float:
    """Seconds that bare writes for so many KuryrPorts take, in a process of their own."""
    process = await asyncio.create_subprocess_exec(
        *("/usr/bin/env", *(f"{name}={value}" for name, value in ENVIRONMENT.items())),
        *(sys.executable, "-m", "bench.floor", str(number), *stage.configuration),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, complaints = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"the floor could not be measured:\n{complaints.decode()}")
    await stage.admin.delete("/apis/openstack.org/v1/namespaces/floor/kuryrports")
    return float(printed)


def _numbers(kind: type[Any]) -> Any:
    def read(text: str) -> list[Any]:
        return [kind(part) for part in text.split(",")]

    return read
