"""A rollout on the lab under traffic, with and without the readiness gate.

A Pod on one node sends requests all the time; the Pods of a Deployment answer, and are replaced
one by one. Without the gate, Kubernetes deletes a Pod as soon as the new one serves, whether or
not Octavia knows it.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

from bench.lab.requests import INTERVAL, TIMEOUT, Requests
from bench.lab.web import (
    APP,
    CLIENT,
    DRAIN,
    NAMESPACE,
    SERVICES,
    deployed,
    no_other_services,
    ready,
    service,
    wait_for,
    with_client,
)
from bench.options import add_values
from bench.report import Report, Table, Target
from lab import facts
from lab.kubernetes.client import Kube
from lab.kuryr.installation import Installation, kubectl
from lab.kuryr.services import PROVIDERS
from lab.progress import Progress

GATE = "kuryr.openstack.org/load-balancer-ready"
ADDRESS = "10.96.200.254"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--replicas", type=int, default=2, help="Pods of the Deployment (2)")
    add_values(parser, "--drain", int, (DRAIN, 1), "seconds for which a deleted Pod serves")
    add_values(parser, "--provider", str, tuple(PROVIDERS), "providers of the load balancers")


@dataclass(frozen=True)
class Rollout:
    """One rollout.

    `seconds` last until Kubernetes calls it complete; `gap` are the most seconds without an
    answer.
    """

    provider: str
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
    quiet = Progress(quiet=True)
    lab = facts.load()
    kube = Kube(lab)
    found: list[Rollout] = []
    for provider in options.provider:
        Installation(progress=quiet, with_services=True, provider=provider).up()
        with no_other_services(lab, kube), with_client(lab, kube):
            kube.call("POST", SERVICES, service(APP, ADDRESS))
            for drain in options.drain:
                for gated in (False, True):
                    gates = [GATE] if gated else []
                    with deployed(lab, kube, options.replicas, drain=drain, gates=gates):
                        rollout = _roll_out(lab, kube, options.replicas, drain)
                    found.append(Rollout(provider, drain, gated, *rollout))
    Installation(progress=quiet).up()
    return _report(found)


def _roll_out(
    lab: facts.Lab, kube: Kube, replicas: int, drain: int
) -> tuple[float, int, int, float]:
    """Replace all Pods; return the fields of a Rollout that are measured."""
    of = ("-n", NAMESPACE, "rollout")
    with Requests(lab, NAMESPACE, CLIENT, f"http://{ADDRESS}/") as requests:
        wait_for(
            lambda: all(requests.first(pod) for pod in ready(kube)) and requests.answers,
            "all Pods answer",
        )
        time.sleep(2 * TIMEOUT)  # until requests from before the load balancer are over
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
            each.drain,
            each.seconds,
            each.asked,
            each.failed,
            each.gap,
        )
        for each in found
    ]
    targets = [
        Target(f"{each.provider}, with the gate: requests failed", each.failed, 0)
        for each in found
        if each.gated and each.drain >= DRAIN
    ]
    title = (
        f"Rollouts; a request every {INTERVAL:g} s, each on a connection of its own; DRAIN and "
        "GAP (the longest time without an answer) in seconds"
    )
    columns = ("", "DRAIN", "SECONDS", "REQUESTS", "FAILED", "GAP")
    figures = {"rollouts": [vars(each) for each in found]}
    return Report("lab_rollout", [Table(title, columns, rows)], targets, figures)
