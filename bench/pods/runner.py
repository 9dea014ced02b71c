"""One contestant's programme: controllers with their pools, and the cases played with each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from bench.pods.case import Case
from bench.pods.load import Churn, Cost, Lives, Theatre
from bench.pods.pool import Pool
from bench.testbed.data_plane import Wiring
from bench.testbed.implementations import Contestant, Options
from bench.testbed.node_daemon import NodeDaemon
from bench.testbed.processes import Memory
from bench.testbed.testbed import Controller, Stage

QUIET = 2.0  # seconds without a call of Neutron: nobody fills a pool any more
PATIENCE = 300.0
NODES = 2  # beside a cold pool the second one warms the controller up: its pool is another
CHURNING = 20  # Pods alive at a time


@dataclass(frozen=True)
class Weather:
    """How slow the cloud is: see :class:`~bench.pods.case.Case`."""

    latency: float
    per_port: float = 0.0
    after: float | None = None  # None: nodes tell the cloud nothing


class Program:
    """What one contestant plays with one kind of pool.

    `idle` is the memory of its controller before the first case, `churn` is what was played last.
    """

    def __init__(
        self, stage: Stage, contestant: Contestant, pool: Pool, options: Options | None = None
    ) -> None:
        self._stage = stage
        self._contestant = contestant
        self.pool = pool
        self.idle = Memory(0.0, 0.0)
        self.churn: Churn | None = None
        self._options = {
            section: {**(options or {}).get(section, {}), **pool.options.get(section, {})}
            for section in {*(options or {}), *pool.options}
        }

    async def play(
        self, weathers: Sequence[Weather], plays: dict[int, int], churn: int = 0
    ) -> list[Case]:
        """Each number of Pods so many times in each weather; for a cold pool each time with a
        controller of its own. Then so many Pods of :attr:`churn` in the last weather."""
        cases = []
        if self.pool.mode == "cold":
            cases = [
                await self._cold(weather, number, times)
                for weather in weathers
                for number, times in plays.items()
            ]
        async with self.curtain(weathers[-1]) as (theatre, wiring):
            if self.pool.mode != "cold":
                cases = [
                    await self._case(theatre, wiring, weather, number, times)
                    for weather in weathers
                    for number, times in plays.items()
                ]
            if churn:
                self.churn = await theatre.churn(churn, CHURNING)
        return cases

    @asynccontextmanager
    async def curtain(self, weather: Weather) -> AsyncIterator[tuple[Theatre, Wiring | None]]:
        """One life of the controller, with warm connections, and its pool full if it is warm.

        Until then the cloud takes no time. No port is left at the end.
        """
        stage = self._stage
        wiring = None if weather.after is None else Wiring(stage.cloud, weather.after)
        await stage.cloud.dial(0.0)
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(asyncio.TaskGroup())
            stack.push_async_callback(stage.cloud.remove_ports)
            stack.push_async_callback(stage.cloud.dial, 0.0)
            controller = await stack.enter_async_context(
                self._contestant.controller(stage, self._options)
            )
            daemons = [
                self._contestant.node(stage, f"node{number}", wiring) for number in range(NODES)
            ]
            for daemon in daemons:
                await daemon.until_permitted()
            watching = [group.create_task(daemon.run()) for daemon in daemons]
            if wiring is not None:
                watching.append(group.create_task(wiring.run()))
            theatres = [self._theatre(controller, daemon) for daemon in daemons]
            await theatres[self.pool.mode == "cold"].play(["warm-up"])
            if self.pool.mode == "warm":
                await self.until_full()
            await self._dial(weather, wiring)
            if not self.idle.resident:
                self.idle = controller.process.memory()
            yield theatres[0], wiring
            for task in watching:
                task.cancel()

    def _theatre(self, controller: Controller, daemon: NodeDaemon) -> Theatre:
        pooled = self.pool.mode != "noop"
        return Theatre(self._stage, controller, daemon, self._contestant.user, pooled=pooled)

    async def until_full(self) -> None:
        """Until the first node's pool has its minimum, and nobody asks Neutron for anything."""
        cloud = self._stage.cloud
        async with asyncio.timeout(PATIENCE):
            while True:
                last = max((call.answered for call in await cloud.calls()), default=0.0)
                quiet = time.monotonic() - last > QUIET
                if quiet and await cloud.ports("node0") >= self.pool.minimum:
                    return
                await asyncio.sleep(0.25)

    async def _cold(self, weather: Weather, number: int, times: int) -> Case:
        lives: list[Lives] = []
        costs: list[Cost] = []
        for _ in range(times):
            async with self.curtain(weather) as (theatre, _):
                found, cost = await theatre.play_counted([_names(0, number)])
            lives += found
            costs.append(cost)
        return self._as_case(weather, number, lives, Cost.together(costs))

    async def _case(
        self, theatre: Theatre, wiring: Wiring | None, weather: Weather, number: int, times: int
    ) -> Case:
        await self._dial(weather, wiring)
        if self.pool.mode == "noop":
            plays = [_names(play, number) for play in range(times)]
            return self._as_case(weather, number, *await theatre.play_counted(plays))
        lives: list[Lives] = []
        costs: list[Cost] = []
        for play in range(times):
            found, cost = await theatre.play_counted([_names(play, number)])
            lives += found
            costs.append(cost)
            await self._refill(number)
        return self._as_case(weather, number, lives, Cost.together(costs))

    async def _refill(self, number: int) -> None:
        """Ports come back to a pool when it is looked at."""
        await asyncio.sleep(self.pool.frequency + 1 if number > 1 else 0)
        await self.until_full()

    async def _dial(self, weather: Weather, wiring: Wiring | None) -> None:
        await self._stage.cloud.dial(weather.latency, weather.per_port)
        if wiring is not None:
            wiring.after = weather.after or 0.0

    def _as_case(self, weather: Weather, number: int, lives: list[Lives], cost: Cost) -> Case:
        return Case(
            pool=self.pool.mode,
            latency=weather.latency,
            per_port=weather.per_port,
            after=weather.after or 0.0,
            number=number,
            lives=lives,
            cost=cost,
        )


def _names(play: int, number: int) -> list[str]:
    return [f"pod-{play}-{i}" for i in range(number)]
