"""Many NeutronPorts at once: when each is Available, and what they cost."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bench.testbed.audit import Tally
from bench.testbed.cloud_control import count_by_kind
from bench.testbed.concurrency import for_each
from bench.testbed.testbed import CONTROLLER, Controller, Testbed
from bench.testbed.watch import follow
from kuryr_k8s.k8s.resources import NEUTRONPORTS
from tests.kit.kube.objects import make_neutron_port

Json = dict[str, Any]
AT_ONCE = 32  # requests of this process under way
PATIENCE = 600.0  # seconds


@dataclass(frozen=True)
class Made:
    """The times of NeutronPorts that were created at once, in seconds, and what they cost.

    `alone` is the time that the API server takes for the same writes, without a controller.
    """

    latency: float
    number: int
    available: list[float]
    created_all: float
    available_all: float
    gone_all: float
    alone: float
    neutron: dict[str, int]
    writes: int
    reads: int
    cpu_seconds: float
    peak: float


class Population:
    """NeutronPorts of one namespace, and when each became Available."""

    def __init__(self, testbed: Testbed, namespace: str) -> None:
        self._client = testbed.admin
        self._namespace = namespace
        self._changed = asyncio.Event()
        self.available: dict[str, float] = {}
        self.there: set[str] = set()

    async def watch(self) -> None:
        """Follow the objects until cancelled."""
        path = NEUTRONPORTS.path(self._namespace)
        await follow(self._client, path, {}, listed=self._listed, changed=self._note)

    def _listed(self, items: list[Json]) -> None:
        for item in items:
            self._note("ADDED", item)

    def _note(self, kind: str, item: Json) -> None:
        name = item["metadata"]["name"]
        if kind == "DELETED":
            self.there.discard(name)
        else:
            self.there.add(name)
            phase = (item.get("status") or {}).get("phase")
            if phase == "Available":
                self.available.setdefault(name, time.monotonic())
        self._changed.set()

    async def create(self, name: str) -> float:
        """Create one; return when it was requested."""
        asked = time.monotonic()
        await self._client.create(make_neutron_port(name, self._namespace))
        return asked

    async def delete(self, name: str) -> None:
        """Request the deletion of one."""
        await self._client.delete(NEUTRONPORTS.path(self._namespace, name))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition about the objects holds."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@contextlib.asynccontextmanager
async def watched(testbed: Testbed, namespace: str) -> Any:
    """Follow the NeutronPorts of a namespace meanwhile."""
    population = Population(testbed, namespace)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(population.watch())
        yield population
        task.cancel()


async def alone(testbed: Testbed, number: int) -> float:
    """Return the seconds that the API server takes for the writes of so many objects."""
    namespace = "floor"

    async def write(name: str) -> None:
        client, path = testbed.admin, NEUTRONPORTS.path(namespace, name)
        await client.create(make_neutron_port(name, namespace))
        await client.patch(path, {"metadata": {"finalizers": ["example.invalid/held"]}})
        status = {"phase": "Available", "portId": name, "securityGroupIds": ["group"]}
        await client.patch(f"{path}/status", {"status": status})

    names = [f"port-{each}" for each in range(number)]
    begun = time.monotonic()
    await for_each(names, write, at_once=AT_ONCE)
    took = time.monotonic() - begun

    async def remove(name: str) -> None:
        path = NEUTRONPORTS.path(namespace, name)
        await testbed.admin.patch(path, {"metadata": {"finalizers": None}})
        await testbed.admin.delete(path)

    await for_each(names, remove, at_once=AT_ONCE)
    return took


async def make(
    testbed: Testbed, controller: Controller, latency: float, number: int, floor: float
) -> Made:
    """Create NeutronPorts at once, wait until all are Available, and delete them."""
    names = [f"port-{each}" for each in range(number)]
    process = controller.process
    async with watched(testbed, testbed.cluster.namespace) as population:
        await testbed.cloud.set_delays(latency)
        await testbed.cloud.clear_calls()
        testbed.audit.mark()
        process.reset_peak()
        cpu, begun = process.cpu_seconds(), time.monotonic()
        asked = await for_each(names, population.create, at_once=AT_ONCE)
        created = time.monotonic()
        await population.until(lambda: len(population.available) == number)
        last = max(population.available.values())
        tally: Tally = testbed.audit.tally()
        calls = count_by_kind(await testbed.cloud.calls())
        cpu_seconds, peak = process.cpu_seconds() - cpu, process.memory().peak
        deleted = time.monotonic()
        await for_each(names, population.delete, at_once=AT_ONCE)
        await population.until(lambda: not population.there)
        gone = time.monotonic()
    times = zip(names, asked, strict=True)
    return Made(
        latency=latency,
        number=number,
        available=[population.available[name] - sent for name, sent in times],
        created_all=created - begun,
        available_all=last - begun,
        gone_all=gone - deleted,
        alone=floor,
        neutron=dict(calls),
        writes=tally.writes(CONTROLLER),
        reads=tally.reads(CONTROLLER),
        cpu_seconds=cpu_seconds,
        peak=peak,
    )


async def filled(testbed: Testbed, number: int, act: Callable[[], Awaitable[Any]]) -> Any:
    """Do something while so many NeutronPorts are Available; delete them afterwards."""
    names = [f"free-{each}" for each in range(number)]
    async with watched(testbed, testbed.cluster.namespace) as population:
        await for_each(names, population.create, at_once=AT_ONCE)
        await population.until(lambda: len(population.available) == number)
        result = await act()
        await for_each(names, population.delete, at_once=AT_ONCE)
        await population.until(lambda: not population.there)
    return result
