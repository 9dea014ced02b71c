"""One more host behind an L7 router that has many: times, calls and processor time.

The router is made on a real API server and a fake Octavia. Each host has an Ingress of its own.
All lead to one Service; the last ones, which are measured, lead to a Service each, so that their
pools are made as well.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from bench.options import add_octavia, add_profile, add_values
from bench.report import Report, Table, Target, percentile
from bench.services.case import Delays, read_delays
from bench.services.load import WRITES, quiet_octavia
from bench.services.objects import PORT, slices_of
from bench.services.options import service_options
from bench.testbed.concurrency import for_each
from bench.testbed.implementations import ThisProject
from bench.testbed.testbed import Controller, Testbed, running_testbed
from bench.testbed.watch import follow
from kuryr_k8s.handlers.l7.ingress import CONTROLLER
from tests.kit.fakes.observing import Changes
from tests.kit.kube.objects import (
    ingress_rules,
    make_ingress,
    make_ingress_class,
    make_service,
    path_of,
)

Json = dict[str, Any]
HANDLERS = "vif,kuryrport,lbaas_spec,loadbalancer,l7_router,ingress"
CLASS = "kuryr"
APP = "app"  # the Service to which most hosts lead
AT_ONCE = 32  # requests of this process under way
PATIENCE = 1800.0  # seconds
QUIET = 1.5  # seconds without a call of Octavia after which all that a change caused is over
SOON = 0.5  # seconds in which a host is served, if the cloud takes no time
RATIO = 1.5  # of Octavia alone
CALLS = 4  # a pool, its members, a policy, its rule


@dataclass(frozen=True)
class Added:
    """The cost of one more host.

    `seconds` last from its Ingress's POST until the Ingress has an address.
    """

    seconds: float
    writes: int
    reads: int
    cpu_seconds: float


@dataclass(frozen=True)
class Case:
    """Hosts that were added one after another beside so many others.

    `filled` are the seconds until all of these had an address, of which `created` went by until
    this process had created their Ingresses; the cloud took no time for them, and some were there
    before.
    """

    hosts: int
    filled: float
    created: float
    delays: Delays
    runs: list[Added]

    def __str__(self) -> str:
        return f"{self.hosts}, {self.delays}"

    def share(self, share: float) -> float:
        """Return this percentile of the seconds."""
        return percentile([run.seconds for run in self.runs], share)

    @property
    def writes(self) -> float:
        """Octavia's calls for a host that change something."""
        return float(median(run.writes for run in self.runs))

    @property
    def alone(self) -> float:
        """Seconds that Octavia takes for these writes, with one look at the end of each."""
        return self.writes * (2 * self.delays.latency + self.delays.pending)


class Hosts:
    """The Ingresses of one namespace, and when each got an address."""

    def __init__(self, testbed: Testbed) -> None:
        self._client = testbed.admin
        self._namespace = testbed.cluster.namespace
        self._path = path_of(make_ingress("", namespace=self._namespace)).rpartition("/")[0]
        self._changes = Changes()
        self.served: dict[str, float] = {}

    async def watch(self) -> None:
        """Follow the Ingresses until cancelled."""

        def listed(items: list[Json]) -> None:
            for item in items:
                self._note("ADDED", item)

        await follow(self._client, self._path, {}, listed=listed, changed=self._note)

    def _note(self, event: str, item: Json) -> None:
        name = item["metadata"]["name"]
        if event == "DELETED":
            self.served.pop(name, None)
        elif (item["status"].get("loadBalancer") or {}).get("ingress"):
            self.served.setdefault(name, time.monotonic())
        self._changes.notify()

    async def create(self, name: str, service: str = APP) -> float:
        """Create the Ingress of a host; return when that was requested."""
        rules = ingress_rules([(f"{name}.bench.demo", ("Prefix", "/", service))])
        asked = time.monotonic()
        await self._client.create(
            make_ingress(name, *rules, namespace=self._namespace, class_name=CLASS)
        )
        return asked

    async def delete(self, name: str) -> None:
        """Delete the Ingress of a host."""
        await self._client.delete(f"{self._path}/{name}")

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition about the Ingresses holds."""
        await self._changes.wait_for(condition, within=PATIENCE)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_values(parser, "--hosts", int, (10, 100, 1000), "how many hosts are there already")
    add_octavia(parser)
    parser.add_argument("--runs", type=int, default=10, help="hosts that are added (10)")
    add_profile(parser)


def measure(options: argparse.Namespace) -> Report:
    """Run all cases and return their report."""
    return asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> Report:
    cases: list[Case] = []
    async with running_testbed(profile=options.profile) as testbed:
        await testbed.cluster.add_namespace()
        await testbed.admin.create(make_ingress_class(CLASS, CONTROLLER))
        for item in _backend(testbed, APP):
            await testbed.admin.create(item)
        project = ThisProject()
        configured = service_options(testbed, project, "amphora")
        configured = {
            **configured,
            "kubernetes": {**configured["kubernetes"], "enabled_handlers": HANDLERS},
        }
        async with (
            project.controller(testbed, configured) as controller,
            _watched(testbed) as hosts,
        ):
            for number in sorted(options.hosts):
                filled, created = await _fill(hosts, number)
                for delays in read_delays(options.octavia):
                    runs = [
                        await _add(testbed, controller, hosts, f"more-{number}-{run}", delays)
                        for run in range(options.runs)
                    ]
                    cases.append(Case(number, filled, created, delays, runs))
    return _report(cases)


@asynccontextmanager
async def _watched(testbed: Testbed) -> AsyncIterator[Hosts]:
    """Follow the Ingresses meanwhile."""
    hosts = Hosts(testbed)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(hosts.watch())
        yield hosts
        watching.cancel()


def _backend(testbed: Testbed, name: str) -> list[Json]:
    """Return a headless Service with two Pods: only the router is measured."""
    namespace = testbed.cluster.namespace
    service = make_service(name, PORT, namespace=namespace, clusterIP="None")
    return [service, *slices_of(name, namespace, 2)]


async def _fill(hosts: Hosts, number: int) -> tuple[float, float]:
    """Create hosts until there are so many.

    :returns: the seconds until all have an address, and until all are created.
    """
    names = [f"host-{each}" for each in range(len(hosts.served), number)]
    begun = time.monotonic()
    await for_each(names, hosts.create, at_once=AT_ONCE)
    created = time.monotonic()
    await hosts.until(lambda: len(hosts.served) == number)
    return time.monotonic() - begun, created - begun


async def _add(
    testbed: Testbed, controller: Controller, hosts: Hosts, name: str, delays: Delays
) -> Added:
    """Add a host with a Service of its own, and remove both."""
    backend = _backend(testbed, name)
    for item in backend:
        await testbed.admin.create(item)
    await quiet_octavia(testbed.cloud, time.monotonic(), QUIET)
    await testbed.cloud.set_delays(delays.latency, pending=delays.pending)
    await testbed.cloud.clear_calls()
    cpu = controller.process.cpu_seconds()
    asked = await hosts.create(name, service=name)
    await hosts.until(lambda: name in hosts.served)
    seconds = hosts.served[name] - asked
    # what comes after is this host's as well
    calls = await quiet_octavia(testbed.cloud, hosts.served[name], QUIET)
    cpu_seconds = controller.process.cpu_seconds() - cpu
    await testbed.cloud.set_delays(0.0)
    await hosts.delete(name)
    await hosts.until(lambda: name not in hosts.served)
    for item in backend:
        await testbed.admin.delete(path_of(item))
    writes = sum(call.method in WRITES for call in calls)
    return Added(seconds, writes, len(calls) - writes, cpu_seconds)


def _report(cases: Sequence[Case]) -> Report:
    title = (
        "Seconds from the POST of an Ingress for one more host, with a Service of its own, until "
        "its status has an address, beside Octavia alone for as many writes with a look at the "
        "end of each; for each host: writes and reads of Octavia, CPU ms of the controller"
    )
    columns = ("HOSTS, OCTAVIA", "FILLED", "CREATED", "P50", "P99", "ALONE", "P50/ALONE", "WRITES",
               "READS", "CPU")  # fmt: skip
    rows = [
        (
            str(case),
            case.filled,
            case.created,
            case.share(0.5),
            case.share(0.99),
            case.alone,
            case.share(0.5) / case.alone if case.alone else "-",
            case.writes,
            fmean(run.reads for run in case.runs),
            1000 * fmean(run.cpu_seconds for run in case.runs),
        )
        for case in cases
    ]
    targets = [
        Target(f"{case}: Octavia's writes for one more host", case.writes, CALLS) for case in cases
    ]
    targets += [
        Target(f"{case}: p50, of Octavia alone", case.share(0.5) / case.alone, RATIO)
        if case.alone
        else Target(f"{case}: p50", case.share(0.5), SOON, "s")
        for case in cases
    ]
    figures = {
        "cases": [
            {
                **vars(case),
                "delays": str(case.delays),
                "runs": [vars(run) for run in case.runs],
            }
            for case in cases
        ]
    }
    return Report("l7", [Table(title, columns, rows)], targets, figures)
