"""Command-line options that several benchmarks have."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any


def add_values(
    parser: argparse.ArgumentParser,
    option: str,
    kind: Callable[[str], Any],
    default: Sequence[Any],
    description: str,
) -> None:
    """Add an option whose values are separated by commas; its help shows the default."""
    shown = ",".join(f"{value:g}" if kind is float else str(value) for value in default)
    parser.add_argument(
        option,
        type=lambda text: [kind(part) for part in text.split(",")],
        default=list(default),
        metavar=option.strip("-").upper(),
        help=f"{description}, comma-separated ({shown})",
    )


def add_latency(parser: argparse.ArgumentParser) -> None:
    """Add the option for the latencies of Neutron."""
    description = "seconds that each call of Neutron takes"
    add_values(parser, "--latency", float, (0.0, 0.1, 0.3), description)


def add_pods(parser: argparse.ArgumentParser) -> None:
    """Add the option for the numbers of Pods."""
    add_values(parser, "--pods", int, (1, 100, 400), "how many Pods to create at once")


def add_services(parser: argparse.ArgumentParser, default: Sequence[int]) -> None:
    """Add the option for the numbers of Services."""
    add_values(parser, "--services", int, default, "how many Services to create at once")


def add_octavia(parser: argparse.ArgumentParser) -> None:
    """Add the option for the delays of Octavia."""
    description = (
        "seconds that each call of the cloud takes, a colon, and seconds for which a change of a "
        "load balancer stays PENDING after the answer"
    )
    add_values(parser, "--octavia", str, ("0:0", "0.3:1"), description)


def add_repetitions(
    parser: argparse.ArgumentParser, what: str, *, single: int, several: int
) -> None:
    """Add the options for the repetitions of cases with a single object and with several."""
    single_help = f"how often a case with a single {what} is repeated ({single})"
    parser.add_argument("--repeats", type=int, default=single, help=single_help)
    several_help = f"how often a case with several {what}s is repeated ({several})"
    parser.add_argument("--plays", type=int, default=several, help=several_help)


def repetitions(options: argparse.Namespace, number: int) -> int:
    """Return how often these options repeat a case with so many objects."""
    return int(options.repeats if number == 1 else options.plays)


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Add the option for a profile of the controller."""
    parser.add_argument(
        "--profile",
        default="",
        metavar="FILE",
        help="profile the controller with cProfile and write the result to this file",
    )
