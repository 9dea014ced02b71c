"""Runs of the cases of `bench services`, of a changing Service, and of restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.services import floor
from bench.services.case import Delays, LargeService, Restart, ServiceCase
from bench.services.load import (
    WRITES,
    Churn,
    ServiceLoad,
    octavia_kinds,
    quiet_octavia,
)
from bench.services.options import service_options
from bench.services.watch import ServiceWatch
from bench.testbed.implementations import Implementation
from bench.testbed.testbed import Controller, Testbed

QUIET = 5.0  # seconds without a call of Octavia after which a start is over


class ServiceRunner:
    """The cases of one implementation. There are no daemons of nodes: Services need none."""

    def __init__(self, testbed: Testbed, implementation: Implementation) -> None:
        self._testbed = testbed
        self._implementation = implementation

    @asynccontextmanager
    async def session(self) -> AsyncIterator[ServiceLoad]:
        """Run a controller with warm connections."""
        testbed, implementation = self._testbed, self._implementation
        await testbed.cloud.set_delays(0.0)
        options = service_options(testbed, implementation)
        testbed.configure(options)  # the floor reads it, whichever controller runs
        watch = self._watch()
        async with (
            implementation.controller(testbed, options) as controller,
            asyncio.TaskGroup() as group,
        ):
            watching = group.create_task(watch.run())
            load = ServiceLoad(testbed, controller, watch, implementation.user)
            names = [f"warm-up-{i}" for i in range(8)]
            await load.run(names, 1)
            await load.delete(names)
            yield load
            watching.cancel()

    async def case(
        self, load: ServiceLoad, delays: Delays, number: int, endpoints: int, times: int
    ) -> ServiceCase:
        """Measure the floor, run a case so many times, and delete its Services."""
        runs = []
        for run in range(times):
            await self._set_delays(delays)
            if not run:
                measured = await floor.measure(self._testbed, number, endpoints, delays.pending)
            names = [f"web-{run}-{i}" for i in range(number)]
            runs.append(await load.run(names, endpoints))
            await self._testbed.cloud.set_delays(0.0)
            await load.delete(names)
        return ServiceCase(number, endpoints, delays, measured, runs)

    async def churn(self, load: ServiceLoad, delays: Delays) -> Churn:
        """Create a Service, change it all the time, and delete it."""
        await self._set_delays(delays)
        await load.run(["churn"], 2)
        measured = await load.churn("churn")
        await self._testbed.cloud.set_delays(0.0)
        await load.delete(["churn"])
        return measured

    async def large(self, load: ServiceLoad, delays: Delays, endpoints: int) -> LargeService:
        """Create a Service with so many endpoints, of which one goes and comes back."""
        await self._set_delays(delays)
        created = await load.run(["large"], endpoints)
        changes = [await load.resize("large", number) for number in (endpoints - 1, endpoints)]
        await self._testbed.cloud.set_delays(0.0)
        await load.delete(["large"])
        return LargeService(endpoints, delays, created, changes)

    async def restart(self, delays: Delays, number: int, endpoints: int) -> Restart:
        """Start a controller beside Services that another one has brought to ACTIVE."""
        testbed, implementation = self._testbed, self._implementation
        names = [f"web-{i}" for i in range(number)]
        async with self.session() as load:
            await load.run(names, endpoints)
        await testbed.cloud.clear_calls()
        testbed.audit.mark()
        await self._set_delays(delays)
        options = service_options(testbed, implementation)
        async with implementation.controller(testbed, options) as controller:
            measured = await self._measure_start(controller, number, delays)
            await testbed.cloud.set_delays(0.0)
            load = ServiceLoad(testbed, controller, self._watch(), implementation.user)
            await load.delete(names)
        return measured

    async def _measure_start(self, controller: Controller, number: int, delays: Delays) -> Restart:
        ready = controller.ready
        calls = await quiet_octavia(self._testbed.cloud, ready, QUIET + delays.latency)
        last = max((call.answered for call in calls), default=ready)
        writes = sum(call.method in WRITES for call in calls)
        return Restart(
            number=number,
            delays=delays,
            ready=ready - controller.started,
            done=last - controller.started,
            octavia_writes=writes,
            octavia_reads=len(calls) - writes,
            octavia_kinds=octavia_kinds(calls),
            writes=self._testbed.audit.tally().writes(self._implementation.user),
            cpu_seconds=controller.process.cpu_seconds(),
            memory=controller.process.memory(),
        )

    def _watch(self) -> ServiceWatch:
        testbed = self._testbed
        publication = self._implementation.publication
        return ServiceWatch(testbed.admin, publication, testbed.cluster.namespace)

    async def _set_delays(self, delays: Delays) -> None:
        await self._testbed.cloud.set_delays(delays.latency, pending=delays.pending)
