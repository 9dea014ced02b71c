"""Restarts, kills and crashes while 20 Pods come and go: `python -m lab.churn [--seconds N]`.

Prints a row for each; ends with 1 if anything was left over, stuck, or lost without need. At least
one round is done: neutron, ovn-controller, kube-apiserver, daemon and controller restarted and
killed, then the last node killed, and rebooted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from lab.churn.campaign import Campaign, Row
from lab.churn.faults import Fault, crashes, nothing, restarts
from lab.churn.namespace import PodNamespace
from lab.lifecycle.lab import Lab

_NAMESPACE = "churn"
_COLUMNS = (
    *("WHAT", "HOW", "DOWN s", "CREATED", "DELETED", "SLOWEST READY s", "SLOWEST GONE s"),
    *("LOST v4", "LOST v6", "SETTLED s", "LEFT OVER"),
)
_WIDTHS = (15, 11, 7, 8, 8, 16, 15, 8, 8, 10, 10)


def main(arguments: list[str]) -> int:
    """Run the campaign that the command line asks for, and print a row for each fault.

    :returns: the exit code: 1 where anything is not as it should be.
    """
    parser = argparse.ArgumentParser(prog="python -m lab.churn", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0, help="rounds until then (one)")
    parser.add_argument("--pods", type=int, default=20, help="that live at a time")
    parser.add_argument("--interval", type=float, default=0.3, help="seconds between two changes")
    parser.add_argument("what", nargs="*", help="only these: neutron, daemon, …, a node")
    options = parser.parse_args(arguments)
    lab = Lab()
    with PodNamespace(lab, _NAMESPACE):
        campaign = Campaign(lab, _NAMESPACE, count=options.pods, interval=options.interval)
        _line(_COLUMNS)
        rows = campaign.run(_rounds(lab, options.seconds, options.what), _show)
    complaints = [said for row in rows for said in row.complaints()]
    found = f"{len(complaints)} things are not as they should be" if complaints else "all is well"
    print(f"\n{found}")
    return 1 if complaints else 0


def _rounds(lab: Lab, seconds: float, what: list[str]) -> Iterator[list[Fault]]:
    end = time.monotonic() + seconds
    while True:
        faults = [nothing(), *restarts(lab, kill=False), *restarts(lab, kill=True)]
        for fault in [*faults, *crashes(lab, lab.nodes[-1])]:
            if not what or fault.what in what:
                yield [fault]
        if time.monotonic() > end:
            return


def _show(row: Row) -> None:
    lost = ["?" if lost is None else str(lost) for lost in row.lost.values()]
    settled = "" if row.settled is None else f"{row.settled:.1f}"
    _line(
        (
            *(row.fault.what, row.fault.how, f"{row.down:.1f}", str(row.created)),
            *(str(row.deleted), f"{row.slowest_ready:.1f}", f"{row.slowest_gone:.1f}"),
            *(*lost, settled, str(len(row.leftovers))),
        )
    )
    for said in row.complaints():
        print(f"    {said}", flush=True)


def _line(cells: tuple[str, ...]) -> None:
    pairs = list(zip(cells, _WIDTHS, strict=True))
    words = [cell.ljust(width) for cell, width in pairs[:2]]
    print(" ".join([*words, *(cell.rjust(width) for cell, width in pairs[2:])]), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
