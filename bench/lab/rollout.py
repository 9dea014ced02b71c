"""A rollout on the lab under traffic, with and without the readiness gate.

A Pod on one node sends requests all the time; the Pods of a Deployment answer, and are replaced
one by one. Without the gate, Kubernetes deletes a Pod as soon as the new one serves, whether or
not Octavia knows it. The more Services select the Pods, the more Octavia has to do for each.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

from bench.lab.requests import INTERVAL, TIMEOUT
from bench.lab.web import (
    APP,
    DRAIN,
    NAMESPACE,
    SERVICES,
    deployed,
    ready,
    requests_to,
    service,
    wait_for,
    with_each,
)
from bench.options import add_values
from bench.report import Report, Table, Target
from lab import facts
from lab.kubernetes.client import Kube
from lab.kuryr.installation import kubectl
from lab.kuryr.services import PROVIDERS

GATE = "kuryr.openstack.org/load-balancer-ready"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--replicas", type=int, default=2, help="Pods of the Deployment (2)")
    add_values(parser, "--services", int, (1, 20), "Services that select the Pods")
    add_values(parser, "--drain", int, (DRAIN, 1), "seconds for which a deleted Pod serves")
    add_values(parser, "--provider", str, tuple(PROVIDERS), "providers of the load balancers")


@dataclass(frozen=True)
class Rollout:
    """One rollout.

    `seconds` last until Kubernetes calls it complete; `gap` are the most seconds without an
    answer.
    """

    provider: str
    services: int
    drain: int
    gated: bool
    seconds: float
    asked: int
    failed: int
    gap: float


def measure(options: argparse.Namespace) -> Report:
    """Measure one provider after the other; return the report.

    Afterwards the controller makes no load balancers.
    """

    def measure_one(lab: facts.Lab, kube: Kube, provider: str) -> list[Rollout]:
        found = []
        for number in range(max(options.services)):
            kube.call("POST", SERVICES, service(f"{APP}-{number}", _address(number)))
            if number + 1 not in options.services:
                continue
            for drain in options.drain:
                for gated in (False, True):
                    gates = [GATE] if gated else []
                    with deployed(lab, kube, options.replicas, drain=drain, gates=gates):
                        measured = _roll_out(lab, kube, options.replicas, drain, number)
                    found.append(Rollout(provider, number + 1, drain, gated, *measured))
        return found

    by_provider = with_each(options.provider, measure_one)
    return _report([each for found in by_provider.values() for each in found])


def _address(number: int) -> str:
    return f"10.96.200.{number + 1}"


def _roll_out(
    lab: facts.Lab, kube: Kube, replicas: int, drain: int, asked: int
) -> tuple[float, int, int, float]:
    """Replace all Pods; return the fields of a Rollout that are measured.

    :param asked: number of the Service that is asked.
    """
    of = ("-n", NAMESPACE, "rollout")
    with requests_to(lab, kube, _address(asked)) as requests:
        before, begun = ready(kube), time.monotonic()
        kubectl(lab, *of, "restart", f"deployment/{APP}")
        kubectl(lab, *of, "status", f"deployment/{APP}", "--timeout=120s")
        seconds = time.monotonic() - begun
        new = ready(kube) - before
        assert len(new) == replicas
        wait_for(lambda: all(requests.first(pod) for pod in new), "all new Pods answer")
        time.sleep(drain + 2 * TIMEOUT)  # until the last Pod deleted is gone
        answers = [time_of for time_of, _ in requests.answers if time_of >= begun]
        return seconds, len(answers), requests.failed(begun), requests.gap(begun)


def _report(found: list[Rollout]) -> Report:
    rows = [
        (
            f"{each.provider}, {'with' if each.gated else 'without'} the gate",
            each.services,
            each.drain,
            each.seconds,
            each.asked,
            each.failed,
            each.gap,
        )
        for each in found
    ]
    targets = [
        Target(
            f"{each.provider}, {each.services} Services, with the gate: requests failed",
            each.failed,
            0,
        )
        for each in found
        if each.gated and each.drain >= DRAIN
    ]
    title = (
        f"Rollouts; a request every {INTERVAL:g} s, each on a connection of its own; DRAIN and "
        "GAP (the longest time without an answer) in seconds"
    )
    columns = ("", "SERVICES", "DRAIN", "SECONDS", "REQUESTS", "FAILED", "GAP")
    figures = {"rollouts": [vars(each) for each in found]}
    return Report("lab_rollout", [Table(title, columns, rows)], targets, figures)
