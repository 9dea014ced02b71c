"""Services created at once and brought to ACTIVE; one that changes all the time; the costs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bench.services.objects import endpoints_of, service, slice_of
from bench.services.watch import ServiceWatch
from bench.testbed.fake_cloud import Call
from bench.testbed.processes import machine_seconds
from bench.testbed.testbed import Controller, Stage
from tests.kit.kube.objects import path_of

PATIENCE = 300.0  # seconds for any one step
AT_ONCE = 64  # Services that are created or deleted at a time
SETTLE = 1.5  # seconds after which nobody is still at work on what has happened
CHANGES, WITHIN = 100, 10.0  # of one Service's EndpointSlice; seconds
WRITES = ("POST", "PUT", "DELETE")


@dataclass(frozen=True)
class Cost:
    """Octavia's calls and the controller's requests of Kubernetes, and its time on a core.

    `busy` is the share of the machine's cores that were at work, for whomever.
    """

    octavia_writes: int
    octavia_reads: int
    octavia_kinds: dict[str, int]
    writes: int
    reads: int
    kinds: dict[str, int]
    cpu_seconds: float
    busy: float


@dataclass(frozen=True)
class Play:
    """Seconds from each Service's POST until it is told to be ACTIVE, and until all are.

    `created` are those until all are made with their endpoints, by this process.
    """

    seconds: list[float]
    created: float
    total: float
    cost: Cost


@dataclass(frozen=True)
class Churn:
    """`seconds` from the first change until the last one is told; writes until then.

    `between` are the seconds from the first write to Octavia to the last one.
    """

    seconds: float
    between: float
    octavia_writes: int
    writes: int

    @property
    def rate(self) -> float:
        """Writes to Octavia a second."""
        return (self.octavia_writes - 1) / self.between if self.between else 0.0


class Market:
    """A namespace of Services beside one controller, whose user is `user`.

    This process does what kube-controller-manager does: right after a Service it makes the
    EndpointSlice and the Endpoints.
    """

    def __init__(
        self, stage: Stage, controller: Controller, watch: ServiceWatch, user: str
    ) -> None:
        self._stage = stage
        self._process = controller.process
        self._watch = watch
        self._user = user
        self._namespace = stage.cluster.namespace

    async def play(self, names: Sequence[str], endpoints: int) -> Play:
        """All Services at once; they stay."""
        stage, process, watch = self._stage, self._process, self._watch
        watch.expect(endpoints)
        stage.audit.mark()
        await stage.cloud.forget_calls()
        cpu, machine = process.cpu_seconds(), machine_seconds()
        sent: dict[str, float] = {}

        async def create(name: str) -> None:
            sent[name] = time.monotonic()
            await stage.admin.create(service(name, self._namespace))
            async with asyncio.TaskGroup() as group:
                for make in (slice_of, endpoints_of):
                    group.create_task(stage.admin.create(make(name, self._namespace, endpoints)))

        await _each(names, create)
        created = time.monotonic()
        await self._until(lambda: len(watch.told) == len(names))
        await asyncio.sleep(SETTLE)
        return Play(
            seconds=[watch.told[name] - sent[name] for name in names],
            created=created - min(sent.values()),
            total=max(watch.told.values()) - min(sent.values()),
            cost=await self._cost(process.cpu_seconds() - cpu, machine),
        )

    async def churn(self, name: str) -> Churn:
        """A Service that is there gets other endpoints again and again."""
        stage, watch = self._stage, self._watch
        stage.audit.mark()
        await stage.cloud.forget_calls()
        watch.expect(CHANGES)
        begun = time.monotonic()
        for number in range(CHANGES):
            endpoints = CHANGES if number == CHANGES - 1 else 1 + number % 10
            wanted = slice_of(name, self._namespace, endpoints)
            await stage.admin.patch(path_of(wanted), {"endpoints": wanted["endpoints"]})
            due = begun + (number + 1) * WITHIN / CHANGES
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        await self._until(lambda: name in watch.told)
        calls = octavia(await stage.cloud.calls())
        answered = [call.answered for call in calls if call.method in WRITES]
        return Churn(
            seconds=watch.told[name] - begun,
            between=max(answered) - min(answered),
            octavia_writes=len(answered),
            writes=stage.audit.tally().writes(self._user),
        )

    async def clear(self, names: Sequence[str]) -> None:
        """Delete them, and wait until nothing is left of them."""
        stage = self._stage

        async def delete(name: str) -> None:
            await stage.admin.delete(path_of(service(name, self._namespace)))

        await _each(names, delete)
        slices = path_of(slice_of("any", self._namespace, 0)).rpartition("/")[0]
        await stage.admin.delete(slices)
        services = path_of(service("any", self._namespace)).rpartition("/")[0]
        async with asyncio.timeout(PATIENCE):
            while True:
                if not await stage.admin.list(services):  # a finalizer keeps them till then
                    return
                await asyncio.sleep(0.1)

    async def _cost(self, cpu: float, machine: tuple[float, float]) -> Cost:
        worked, passed = (a - b for a, b in zip(machine_seconds(), machine, strict=True))
        calls, tally = octavia(await self._stage.cloud.calls()), self._stage.audit.tally()
        writes = sum(call.method in WRITES for call in calls)
        return Cost(
            octavia_writes=writes,
            octavia_reads=len(calls) - writes,
            octavia_kinds=kinds_of(calls),
            writes=tally.writes(self._user),
            reads=tally.reads(self._user),
            kinds=tally.kinds(),
            cpu_seconds=cpu,
            busy=worked / passed,
        )

    async def _until(self, condition: Callable[[], object]) -> None:
        try:
            await self._watch.changes.wait_for(condition, within=PATIENCE)
        except TimeoutError:
            words = self._process.last_words()
            raise RuntimeError(f"not all Services got there; the controller:\n{words}") from None


def octavia(calls: Sequence[Call]) -> list[Call]:
    """Those of Octavia."""
    return [call for call in calls if "/lbaas/" in call.what]


def kinds_of(calls: Sequence[Call]) -> dict[str, int]:
    """How many calls of each method and kind of path, as Octavia's reference writes them."""
    return dict(Counter(f"{one.method} {one.what.partition('/lbaas')[2]}" for one in calls))


async def _each(names: Sequence[str], act: Callable[[str], Awaitable[None]]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with slots:
            await act(name)

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(one(name))
