"""A burst of Services on the lab that are deleted at once, and one more that stays.

A Pod sends requests to the address of the Service that stays. It is created right after the burst,
or some time later, while the load balancers of the burst are still being deleted.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import statistics
import time
from dataclasses import dataclass, field

from bench.lab.web import (
    NAMESPACE,
    SERVICES,
    deployed,
    names,
    service,
    until_answered,
    wait_for,
    with_each,
)
from bench.options import add_values
from bench.report import Report, Table, Target
from lab import facts
from lab.kubernetes.client import Kube
from lab.kuryr.services import PROVIDERS
from lab.openstack import cloud
from lab.openstack.rest import Api
from lab.process import wait_until

AT_ONCE = 15  # requests to the API server
LATER = 10.0  # seconds by which the burst may hold up the one that stays
PATIENCE = 900.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--burst", type=int, default=200, help="Services of a burst (200)")
    parser.add_argument("--alone", type=int, default=5, help="runs without a burst (5)")
    add_values(
        parser, "--after", float, (0, 5, 20), "seconds from the end of the burst to the Service"
    )
    add_values(parser, "--provider", str, tuple(PROVIDERS), "providers of the load balancers")


@dataclass(frozen=True)
class AfterBurst:
    """One burst.

    `seconds` last from the first POST of the burst to the last DELETE, `answered` from the POST of
    the Service that stays to its first answer, and `gone` from the last DELETE until no load
    balancer of the burst was left.
    """

    after: float
    seconds: float
    answered: float
    gone: float


@dataclass
class Measurements:
    """The measurements with one provider; `alone` holds the seconds without a burst."""

    alone: list[float] = field(default_factory=list)
    bursts: list[AfterBurst] = field(default_factory=list)


def measure(options: argparse.Namespace) -> Report:
    """Measure one provider after the other; return the report.

    Afterwards the controller makes no load balancers.
    """

    def measure_one(lab: facts.Lab, kube: Kube, _provider: str) -> Measurements:
        measured = Measurements()
        with deployed(lab, kube, 1):
            for number in range(options.alone):
                address = f"10.96.200.{number + 1}"
                measured.alone.append(until_answered(lab, kube, f"alone-{number}", address))
            for number, after in enumerate(options.after):
                address = f"10.96.201.{number + 1}"
                measured.bursts.append(_after_burst(lab, kube, options.burst, after, address))
        return measured

    return _report(options.burst, with_each(options.provider, measure_one))


def _after_burst(lab: facts.Lab, kube: Kube, count: int, after: float, address: str) -> AfterBurst:
    octavia = Api(f"{lab.cloud.octavia_url}/v2/lbaas", cloud.admin_token())

    burst = [f"burst-{number}" for number in range(count)]
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(lambda name: kube.call("POST", SERVICES, service(name)), burst))
        list(threads.map(lambda name: kube.call("DELETE", f"{SERVICES}/{name}"), burst))
    ended = time.monotonic()
    time.sleep(after)
    answered = until_answered(lab, kube, "stays", address)
    wait_for(lambda: not names(kube), "all Services are gone")

    def left() -> bool:
        listed = octavia.get("/loadbalancers", fields="name")["loadbalancers"]
        return any(each["name"].startswith(f"{NAMESPACE}/") for each in listed)

    if not wait_until(lambda: not left(), PATIENCE, pause=1.0):
        raise TimeoutError("load balancers of the burst are left")
    return AfterBurst(after, ended - begun, answered, time.monotonic() - ended)


def _report(count: int, found: dict[str, Measurements]) -> Report:
    rows: list[tuple[object, ...]] = []
    targets = []
    for provider, measured in found.items():
        alone = statistics.median(measured.alone)
        rows.append((f"{provider}: alone", "", "", alone, "", ""))
        for each in measured.bursts:
            later = each.answered - alone
            row = (f"{provider}: after a burst", each.after, each.seconds, each.answered)
            rows.append((*row, later, each.gone))
            name = f"{provider}: answered later, {each.after:g} s after the burst"
            targets.append(Target(name, later, LATER, "s"))
    title = (
        f"Seconds; bursts of {count} Services that are deleted at once: how long they lasted, and "
        "until nothing of them was left in Octavia"
    )
    columns = ("", "AFTER", "BURST", "ANSWERED", "LATER", "ALL GONE")
    figures = {
        provider: {"alone": measured.alone, "bursts": [vars(each) for each in measured.bursts]}
        for provider, measured in found.items()
    }
    return Report("lab_burst", [Table(title, columns, rows)], targets, figures)
