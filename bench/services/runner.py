"""What is played with Services: cases, churn, and a restart beside them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import fmean, median

from bench.report import percentile
from bench.services import floor as service_floors
from bench.services.floor import Floor
from bench.services.load import WRITES, Churn, Market, Play, kinds_of, octavia
from bench.services.watch import ServiceWatch
from bench.testbed.implementations import Contestant, Options
from bench.testbed.testbed import Controller, Stage

QUIET = 5.0  # seconds without a call of Octavia: the start is over


@dataclass(frozen=True)
class Weather:
    """Seconds that each call of the cloud takes, and that a change is PENDING after its answer."""

    latency: float
    pending: float

    def __str__(self) -> str:
        return f"{self.latency:g} + {self.pending:g}"


@dataclass(frozen=True)
class ServiceCase:
    """`number` Services at once with so many `endpoints` each, once or several times."""

    number: int
    endpoints: int
    weather: Weather
    floor: Floor
    plays: list[Play]

    def share(self, share: float) -> float:
        """That percentile of all Services' seconds."""
        return percentile([one for play in self.plays for one in play.seconds], share)

    @property
    def total(self) -> float:
        """Seconds until all are ACTIVE; the median of several plays."""
        return float(median(play.total for play in self.plays))

    @property
    def created(self) -> float:
        """Seconds until all are made; likewise."""
        return float(median(play.created for play in self.plays))

    def each(self, what: str) -> float:
        """A cost, for each Service."""
        costs = [getattr(play.cost, what) for play in self.plays]
        return float(sum(costs) / (self.number * len(self.plays)))

    @property
    def busy(self) -> float:
        """The share of the cores at work."""
        return fmean(play.cost.busy for play in self.plays)


@dataclass(frozen=True)
class Restart:
    """A start of the controller beside `number` Services that are as they are to be.

    `done` are the seconds from exec until Octavia's last call.
    """

    number: int
    weather: Weather
    ready: float
    done: float
    octavia_writes: int
    octavia_reads: int
    octavia_kinds: dict[str, int]
    writes: int
    cpu_seconds: float


class ServiceProgram:
    """What one contestant plays. Its nodes are not played: Services need none."""

    def __init__(self, stage: Stage, contestant: Contestant) -> None:
        self._stage = stage
        self._contestant = contestant

    @asynccontextmanager
    async def curtain(self) -> AsyncIterator[Market]:
        """One life of the controller, with warm connections."""
        stage, contestant = self._stage, self._contestant
        await stage.cloud.dial(0.0)
        options = options_of(stage, contestant)
        stage.configure(options)  # the floor reads it, whoever's controller it is
        watch = ServiceWatch(stage.admin, contestant.publication, stage.cluster.namespace)
        async with (
            contestant.controller(stage, options) as controller,
            asyncio.TaskGroup() as group,
        ):
            watching = group.create_task(watch.run())
            market = Market(stage, controller, watch, contestant.user)
            names = [f"warm-up-{i}" for i in range(8)]
            await market.play(names, 1)
            await market.clear(names)
            yield market
            watching.cancel()

    async def case(
        self, market: Market, weather: Weather, number: int, endpoints: int, times: int
    ) -> ServiceCase:
        """Beside its floor, measured before; nothing is left."""
        plays = []
        for play in range(times):
            await self._dial(weather)
            if not play:
                floor = await service_floors.measure(
                    self._stage, number, endpoints, weather.pending
                )
            names = [f"web-{play}-{i}" for i in range(number)]
            plays.append(await market.play(names, endpoints))
            await self._stage.cloud.dial(0.0)
            await market.clear(names)
        return ServiceCase(number, endpoints, weather, floor, plays)

    async def churn(self, market: Market, weather: Weather) -> Churn:
        """In this weather; nothing is left."""
        await self._dial(weather)
        await market.play(["churn"], 2)
        found = await market.churn("churn")
        await self._stage.cloud.dial(0.0)
        await market.clear(["churn"])
        return found

    async def restart(self, weather: Weather, number: int, endpoints: int) -> Restart:
        """One controller makes Services, another one finds them as they are to be."""
        stage, contestant = self._stage, self._contestant
        names = [f"web-{i}" for i in range(number)]
        async with self.curtain() as market:
            await market.play(names, endpoints)
        await stage.cloud.forget_calls()
        stage.audit.mark()
        await self._dial(weather)
        async with contestant.controller(stage, options_of(stage, contestant)) as controller:
            found = await self._until_done(controller, number, weather)
            await stage.cloud.dial(0.0)
            watch = ServiceWatch(stage.admin, contestant.publication, stage.cluster.namespace)
            await Market(stage, controller, watch, contestant.user).clear(names)
        return found

    async def _until_done(self, controller: Controller, number: int, weather: Weather) -> Restart:
        while True:
            calls = octavia(await self._stage.cloud.calls())
            last = max((call.answered for call in calls), default=controller.ready)
            if time.monotonic() - last > QUIET + weather.latency:
                break
            await asyncio.sleep(0.25)
        writes = sum(call.method in WRITES for call in calls)
        return Restart(
            number=number,
            weather=weather,
            ready=controller.ready - controller.begun,
            done=last - controller.begun,
            octavia_writes=writes,
            octavia_reads=len(calls) - writes,
            octavia_kinds=kinds_of(calls),
            writes=self._stage.audit.tally().writes(self._contestant.user),
            cpu_seconds=controller.process.cpu_seconds(),
        )

    async def _dial(self, weather: Weather) -> None:
        await self._stage.cloud.dial(weather.latency, pending=weather.pending)


def options_of(stage: Stage, contestant: Contestant) -> Options:
    """What differs with Services, in both projects: the provider ovn as it needs to be; Pods have
    one address."""
    facts = stage.facts
    return {
        "kubernetes": {
            "enabled_handlers": contestant.handlers,
            "endpoints_driver_octavia_provider": "ovn",
        },
        "octavia_defaults": {
            "member_mode": "L2",
            "lb_algorithm": "SOURCE_IP_PORT",
            "enforce_sg_rules": "false",  # read by the ancestor alone, who wants it so with ovn
        },
        "neutron_defaults": {
            "pod_subnet": facts["subnets"][0],
            "service_subnet": ",".join(facts["service_subnets"][: contestant.families]),
        },
    }


def weathers(texts: Iterable[str]) -> list[Weather]:
    """Reads "0.3:1", seconds a call and seconds PENDING."""
    return [Weather(*map(float, text.split(":"))) for text in texts]
