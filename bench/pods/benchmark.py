"""Pods at once on a real API server and a fake Neutron: times, calls, memory, beside the floor.

The controller, the API server, etcd and the cloud are processes of their own; this one creates
the Pods and does what the daemon of their node would. All share the cores of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from bench.pods.floor import Floors
from bench.pods.pool import MODES, Pool
from bench.pods.report import pods_report
from bench.pods.runner import NODES, Program, Weather
from bench.report import Report
from bench.testbed.implementations import Product
from bench.testbed.testbed import set_up


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument(
        "--latency",
        type=numbers(float),
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
        type=numbers(int),
        default=[1, 100, 400],
        help="how many Pods at once, comma-separated (1,100,400)",
    )
    parser.add_argument(
        "--repeats", type=int, default=20, help="how often one Pod alone is measured (20)"
    )
    parser.add_argument(
        "--plays", type=int, default=3, help="how often several Pods are measured (3)"
    )
    parser.add_argument(
        "--pool",
        choices=MODES,
        default="noop",
        help="without a pool of ports, with one that is empty (cold) or full (warm) (noop)",
    )
    parser.add_argument("--profile", default="", help="write a cProfile of the controller here")


def measure(options: argparse.Namespace) -> Report:
    """Run all cases."""
    return asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> Report:
    pool = Pool.enough(options.pool, options.pods)
    async with set_up(nodes=NODES, profile=options.profile) as stage:
        await stage.cluster.add_namespace()
        await stage.cluster.add_namespace("floor")
        floors = Floors(stage, options.pods)
        await floors.measure()
        program = Program(stage, Product(), pool)
        weathers = [Weather(latency, options.per_port) for latency in options.latency]
        plays = {
            number: options.repeats if number == 1 else options.plays for number in options.pods
        }
        cases = await program.play(weathers, plays)
        await floors.measure()
    return pods_report(cases, pool, floors.medians(), program.idle)


def numbers(kind: type[Any]) -> Any:
    """Reads an option's values, comma-separated."""

    def read(text: str) -> list[Any]:
        return [kind(part) for part in text.split(",")]

    return read
