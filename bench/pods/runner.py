"""Runs of the cases of `bench pods`, by one implementation with one kind of pool."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from bench.pods.case import Case, Delays
from bench.pods.load import Churn, Cost, PodLoad, PodTimes
from bench.pods.pool import Pool
from bench.testbed.data_plane import DataPlaneClient
from bench.testbed.implementations import Implementation, Options
from bench.testbed.node_daemon import NodeDaemon
from bench.testbed.processes import Memory
from bench.testbed.testbed import Controller, Testbed
from kuryr_k8s.drivers.multi_vif.additional_subnets import ANNOTATION

QUIET = 2.0  # seconds without a call of Neutron after which no pool is being filled
PATIENCE = 300.0
NODES = 2  # beside a cold pool the second one warms the controller up: its pool is another
CHURNING = 20  # Pods alive at a time


@dataclass(frozen=True)
class Session:
    """A controller that runs, with the load on the first node."""

    load: PodLoad
    data_plane: DataPlaneClient | None


class PodRunner:
    """The cases of one implementation with one kind of pool.

    `idle` is the memory of the first controller before its first case; `churn` is the last churn.

    :param interfaces: of each Pod; the driver additional_subnets is asked for the further ones.
    """

    def __init__(
        self,
        testbed: Testbed,
        implementation: Implementation,
        pool: Pool,
        options: Options | None = None,
        interfaces: int = 1,
    ) -> None:
        self._testbed = testbed
        self._implementation = implementation
        self.pool = pool
        self._interfaces = interfaces
        self.idle = Memory(0.0, 0.0)
        self.churn: Churn | None = None
        self._options = {
            section: {**(options or {}).get(section, {}), **pool.options.get(section, {})}
            for section in {*(options or {}), *pool.options}
        }

    async def run(
        self, delays: Sequence[Delays], repetitions: dict[int, int], churn: int = 0
    ) -> list[Case]:
        """Run a case for each of the delays and each number of Pods.

        With a cold pool each run has a controller of its own.

        :param repetitions: the number of runs by the number of Pods.
        :param churn: the number of Pods that come and go at the end, with the last delays.
        """
        cases = []
        if self.pool.mode == "cold":
            cases = [
                await self._run_cold(delays_of_case, number, times)
                for delays_of_case in delays
                for number, times in repetitions.items()
            ]
        async with self.session(delays[-1]) as session:
            if self.pool.mode != "cold":
                cases = [
                    await self._run_case(session, delays_of_case, number, times)
                    for delays_of_case in delays
                    for number, times in repetitions.items()
                ]
            if churn:
                self.churn = await session.load.churn(churn, CHURNING)
        return cases

    @asynccontextmanager
    async def session(self, delays: Delays) -> AsyncIterator[Session]:
        """Run a controller with warm connections; a warm pool is full.

        The cloud has these delays from then on. All ports are removed at the end.
        """
        testbed = self._testbed
        data_plane = None if delays.after is None else DataPlaneClient(testbed.cloud, delays.after)
        await testbed.cloud.set_delays(0.0)
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(asyncio.TaskGroup())
            stack.push_async_callback(testbed.cloud.remove_ports)
            stack.push_async_callback(testbed.cloud.set_delays, 0.0)
            controller = await stack.enter_async_context(
                self._implementation.controller(testbed, self._options)
            )
            daemons = [
                self._implementation.node(testbed, f"node{number}", data_plane)
                for number in range(NODES)
            ]
            for daemon in daemons:
                await daemon.wait_for_permission()
            tasks = [group.create_task(daemon.run()) for daemon in daemons]
            if data_plane is not None:
                tasks.append(group.create_task(data_plane.run()))
            loads = [self._load(controller, daemon) for daemon in daemons]
            await loads[self.pool.mode == "cold"].run(["warm-up"])
            if self.pool.mode == "warm":
                await self._wait_until_full()
            session = Session(loads[0], data_plane)
            await self._set_delays(session, delays)
            if not self.idle.resident:
                self.idle = controller.process.memory()
            yield session
            for task in tasks:
                task.cancel()

    def _load(self, controller: Controller, daemon: NodeDaemon) -> PodLoad:
        pooled = self.pool.mode != "noop"
        user = self._implementation.user
        further = self._testbed.facts["further_subnets"][: self._interfaces - 1]
        annotations = {ANNOTATION: json.dumps(further)} if further else None
        return PodLoad(
            self._testbed, controller, daemon, user, pooled=pooled, annotations=annotations
        )

    async def _wait_until_full(self) -> None:
        """Wait until the first node's pool has its minimum, and Neutron is called no more."""
        cloud = self._testbed.cloud
        async with asyncio.timeout(PATIENCE):
            while True:
                last = max((call.answered for call in await cloud.calls()), default=0.0)
                quiet = time.monotonic() - last > QUIET
                if quiet and await cloud.ports("node0") >= self.pool.minimum:
                    return
                await asyncio.sleep(0.25)

    async def _run_cold(self, delays: Delays, number: int, times: int) -> Case:
        runs: list[PodTimes] = []
        costs: list[Cost] = []
        for _ in range(times):
            async with self.session(delays) as session:
                measured, cost = await session.load.run_counted([_names(0, number)])
            runs += measured
            costs.append(cost)
        return self._case(delays, number, runs, Cost.sum_of(costs))

    def _case(self, delays: Delays, number: int, runs: list[PodTimes], cost: Cost) -> Case:
        return Case(self.pool.mode, delays, number, runs, cost, self._interfaces)

    async def _run_case(self, session: Session, delays: Delays, number: int, times: int) -> Case:
        await self._set_delays(session, delays)
        names = [_names(run, number) for run in range(times)]
        if self.pool.mode == "noop":
            runs, cost = await session.load.run_counted(names)
            return self._case(delays, number, runs, cost)
        runs = []
        costs: list[Cost] = []
        for names_of_run in names:
            measured, cost = await session.load.run_counted([names_of_run])
            runs += measured
            costs.append(cost)
            await self._refill(number)
        return self._case(delays, number, runs, Cost.sum_of(costs))

    async def _refill(self, number: int) -> None:
        """Wait until the pool has its ports back, which return when it is checked."""
        await asyncio.sleep(self.pool.frequency + 1 if number > 1 else 0)
        await self._wait_until_full()

    async def _set_delays(self, session: Session, delays: Delays) -> None:
        await self._testbed.cloud.set_delays(delays.latency, delays.per_port)
        if session.data_plane is not None:
            session.data_plane.after = delays.after or 0.0


def _names(run: int, number: int) -> list[str]:
    return [f"pod-{run}-{i}" for i in range(number)]
