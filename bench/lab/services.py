"""Services on the lab: until the first answer, and until a removed Pod gets no more requests.

A Pod on one node sends requests all the time; Pods of a Deployment answer. They keep serving for a
while when they are deleted, as Pods behind a load balancer should.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field

from bench.lab.requests import INTERVAL, Requests
from bench.lab.web import (
    APP,
    DRAIN,
    NAMESPACE,
    SERVICES,
    deployed,
    ready,
    requests_to,
    service,
    until_answered,
    wait_for,
    with_each,
)
from bench.options import add_values
from bench.report import Report, Table, Target, percentile
from lab import facts
from lab.kubernetes.client import Kube
from lab.kuryr.installation import kubectl
from lab.kuryr.services import PROVIDERS

QUIET = 2.5  # seconds without an answer of a Pod after which the last one was its last
REPLICAS = 3


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--runs", type=int, default=20, help="of each step (20)")
    add_values(parser, "--provider", str, tuple(PROVIDERS), "providers of the load balancers")


@dataclass
class Measurements:
    """The measurements with one provider; the lists hold the seconds of each run.

    They last from the Service's POST to the first answer, from the scale-down to the last answer
    of the Pod removed, and from the scale-up to the first answer of the new Pod. `failed` and
    `asked` count the requests during all scale events.
    """

    answered: list[float] = field(default_factory=list)
    drained: list[float] = field(default_factory=list)
    joined: list[float] = field(default_factory=list)
    failed: int = 0
    asked: int = 0


def measure(options: argparse.Namespace) -> Report:
    """Measure one provider after the other; return the report.

    Afterwards the controller makes no load balancers.
    """

    def measure_one(lab: facts.Lab, kube: Kube, _provider: str) -> Measurements:
        measured = Measurements()
        with deployed(lab, kube, REPLICAS):
            for number in range(options.runs):
                address = f"10.96.200.{number + 1}"
                measured.answered.append(until_answered(lab, kube, f"web-{number}", address))
            _scale_events(lab, kube, options.runs, measured)
        return measured

    return _report(with_each(options.provider, measure_one))


def _scale_events(lab: facts.Lab, kube: Kube, runs: int, measured: Measurements) -> None:
    address = "10.96.200.254"
    kube.call("POST", SERVICES, service(APP, address))
    with requests_to(lab, kube, address) as requests:
        begun = time.monotonic()
        for _ in range(runs):
            measured.drained.append(_until_drained(lab, kube, requests))
            measured.joined.append(_until_joined(lab, kube, requests))
        measured.failed = requests.failed(begun)
        measured.asked = sum(answered >= begun for answered, _ in requests.answers)


def _until_drained(lab: facts.Lab, kube: Kube, requests: Requests) -> float:
    before, begun = ready(kube), time.monotonic()
    _scale(lab, REPLICAS - 1)
    wait_for(lambda: len(ready(kube)) < REPLICAS, "a Pod is deleted")
    (removed,) = before - ready(kube)
    wait_for(lambda: _is_quiet(requests, removed, begun), f"{removed} gets no more requests")
    return (requests.last(removed) or begun) - begun


def _until_joined(lab: facts.Lab, kube: Kube, requests: Requests) -> float:
    before, begun = ready(kube), time.monotonic()
    _scale(lab, REPLICAS)
    wait_for(lambda: len(ready(kube)) == REPLICAS, "a Pod is Ready")
    (new,) = ready(kube) - before
    wait_for(lambda: requests.first(new), f"{new} answers")
    return (requests.first(new) or begun) - begun


def _is_quiet(requests: Requests, pod: str, begun: float) -> bool:
    return time.monotonic() - max(requests.last(pod) or begun, begun) > QUIET


def _scale(lab: facts.Lab, replicas: int) -> None:
    kubectl(lab, "-n", NAMESPACE, "scale", "deployment", APP, f"--replicas={replicas}")


def _report(found: dict[str, Measurements]) -> Report:
    rows, targets = [], []
    for provider, measured in found.items():
        times = {
            "Service's POST → first answer": measured.answered,
            "scale-down → last answer of the Pod removed": measured.drained,
            "scale-up → first answer of the new Pod": measured.joined,
        }
        for step, values in times.items():
            shares = [percentile(values, share) for share in (0.5, 0.99)]
            rows.append((f"{provider}: {step}", len(values), *shares))
        rows.append(
            (
                f"{provider}: requests in scale events, and failed",
                measured.asked,
                measured.failed,
                "",
            )
        )
        last = percentile(measured.drained, 0.99)
        targets += [
            Target(f"{provider}: last answer of a Pod removed, p99", last, DRAIN, "s"),
            Target(f"{provider}: requests failed while Pods came and went", measured.failed, 0),
        ]
    title = (
        f"Seconds; a request every {INTERVAL:g} s, each on a connection of its own; a Pod serves "
        f"{DRAIN} s more when it is deleted"
    )
    table = Table(title, ("", "COUNT", "P50", "P99"), rows)
    figures = {provider: vars(measured) for provider, measured in found.items()}
    return Report("lab_services", [table], targets, figures)
