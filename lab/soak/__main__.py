"""Pods by tens and restarts at random times: `python -m lab.soak [--minutes 30]`.

The controller, the daemons, neutron and the ovn-controllers are restarted, or killed. Prints what
is struck as it happens and ends with a table; ends with 1 if a Pod was not Ready or not gone
within a minute, or if anything was left over or lost. The lab is up, with the product on it.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys
from collections.abc import Sequence

from lab.churn.faults import Fault
from lab.churn.leftovers import Owners
from lab.churn.lives import Life
from lab.churn.namespace import PodNamespace
from lab.lifecycle.lab import Lab
from lab.soak.memory import Size
from lab.soak.run import Outcome, Soak

_NAMESPACE = "soak"


def main(arguments: list[str]) -> int:
    """Run the soak that the command line asks for, and print its tables.

    :returns: the exit code: 1 where anything is not as it should be.
    """
    parser = argparse.ArgumentParser(prog="python -m lab.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, help="the same pauses, Pods and faults again")
    parser.add_argument("--batch", type=int, default=10, help="Pods at a time")
    options = parser.parse_args(arguments)
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    lab = Lab()
    sizes: list[tuple[float, Sequence[Size | None]]] = []
    with PodNamespace(lab, _NAMESPACE):
        soak = Soak(lab, _NAMESPACE, seed, options.batch)
        signal.signal(signal.SIGINT, lambda *_: soak.end())
        outcome = soak.run(
            60 * options.minutes, _told, lambda when, found: sizes.append((when, found))
        )
    _print_memory(soak.programs, sizes)
    _print_pods(outcome)
    _print_ports(outcome)
    for said in outcome.complaints:
        print(f"    {said}")
    count = len(outcome.complaints)
    print(f"\n{f'{count} things are not as they should be' if count else 'all is well'}")
    return 1 if count else 0


def _told(when: float, fault: Fault, seconds: float) -> None:
    print(f"{_clock(when)}  {fault.what:16}{fault.how:9} back after {seconds:.1f} s", flush=True)


def _print_memory(
    programs: Sequence[str], sizes: Sequence[tuple[float, Sequence[Size | None]]]
) -> None:
    print("\nMEMORY, MiB (running for)")
    print("WHEN ", *(f"{name:>22}" for name in programs))
    for when, found in sizes:
        print(_clock(when), *(f"{size or 'not running'!s:>22}" for size in found))


def _print_pods(outcome: Outcome) -> None:
    lives = outcome.lives
    ready = [life.ready - life.created for life in lives if life.ready]
    gone = [life.gone - life.deleted for life in lives if life.gone and life.deleted]
    hasty = sum(1 for life in lives if _is_hasty(life))
    struck = ", ".join(f"{what} {how} {n}x" for (what, how), n in sorted(outcome.struck.items()))
    print("\nPODS")
    print(f"made {len(lives)}, deleted before they were Ready {hasty}")
    print(f"Ready after {_spread(ready)}")
    print(f"gone after  {_spread(gone)}")
    print(f"meanwhile: {struck or 'nothing'}")


def _is_hasty(life: Life) -> bool:
    return life.ready is None or (life.deleted is not None and life.deleted < life.ready)


def _spread(seconds: list[float]) -> str:
    if len(seconds) < 2:
        return "?"
    hundredths = statistics.quantiles(seconds, n=100, method="inclusive")
    return f"p50 {hundredths[49]:.1f} s, p99 {hundredths[98]:.1f} s, at most {max(seconds):.1f} s"


def _print_ports(outcome: Outcome) -> None:
    print("\nPORTS AT THE END  EXPECTED (OF PODS + IN POOLS)  FOUND")
    for name, owners in (("with Pods", outcome.with_pods), ("without", outcome.without_pods)):
        if owners is not None:
            print(f"{name:16}  {_expected(owners):>29}  {owners.found:>5}")


def _expected(owners: Owners) -> str:
    return f"{owners.pods + owners.pools} ({owners.pods} + {owners.pools})"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02}:{int(seconds) % 60:02}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
