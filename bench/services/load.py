"""The load of `bench services`: Services brought to ACTIVE, one that changes, and their costs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.services.objects import endpoints_of, service, slices_of
from bench.services.watch import ServiceWatch
from bench.testbed.cloud_control import Call, CloudControl
from bench.testbed.concurrency import for_each
from bench.testbed.processes import CoreUse, Memory
from bench.testbed.testbed import Controller, Testbed
from tests.kit.kube.objects import path_of

PATIENCE = 300.0  # seconds for any step
AT_ONCE = 64  # Services that are created or deleted at a time
SETTLE = 1.5  # seconds after which all work that a run caused is over
CHANGES, WITHIN = 100, 10.0  # of one Service's EndpointSlice; seconds
WRITES = ("POST", "PUT", "DELETE")


@dataclass(frozen=True)
class Cost:
    """The cost of a run: Octavia's calls, the controller's requests, processor time and memory.

    `busy` is the share of the machine's cores at work for any process; `memory` is the
    controller's at the end, and its peak in the run.
    """

    octavia_writes: int
    octavia_reads: int
    octavia_kinds: dict[str, int]
    writes: int
    reads: int
    kinds: dict[str, int]
    cpu_seconds: float
    busy: float
    memory: Memory


@dataclass(frozen=True)
class ServiceTimes:
    """The times of one run: seconds from each Service's POST until it is published as ACTIVE.

    `total` are the seconds until all are; `created` until this process has created all.
    """

    seconds: list[float]
    created: float
    total: float
    cost: Cost


@dataclass(frozen=True)
class Resize:
    """A change of the number of a Service's endpoints.

    `seconds` last until the new number is published.
    """

    endpoints: int
    seconds: float
    cost: Cost


@dataclass(frozen=True)
class Churn:
    """The times and writes of a Service that changes all the time.

    `seconds` last from the first change until the last one is published, `between` from the first
    write to Octavia to the last one.
    """

    seconds: float
    between: float
    octavia_writes: int
    writes: int

    @property
    def rate(self) -> float:
        """Writes to Octavia a second."""
        return (self.octavia_writes - 1) / self.between if self.between else 0.0


class ServiceLoad:
    """Services of a namespace, beside one controller.

    This process stands in for kube-controller-manager: right after a Service it creates the
    EndpointSlice and the Endpoints.

    :param user: the controller's user, whose requests are counted.
    """

    def __init__(
        self, testbed: Testbed, controller: Controller, watch: ServiceWatch, user: str
    ) -> None:
        self._testbed = testbed
        self._process = controller.process
        self._watch = watch
        self._user = user
        self._namespace = testbed.cluster.namespace

    async def run(self, names: Sequence[str], endpoints: int) -> ServiceTimes:
        """Create all Services at once and wait until all are ACTIVE; they stay.

        :raises RuntimeError: a Service did not get there.
        """
        testbed, process, watch = self._testbed, self._process, self._watch
        watch.expect(endpoints)
        testbed.audit.mark()
        await testbed.cloud.clear_calls()
        process.reset_peak()
        cpu, cores = process.cpu_seconds(), CoreUse()
        sent: dict[str, float] = {}

        async def create(name: str) -> None:
            sent[name] = time.monotonic()
            await testbed.admin.create(service(name, self._namespace))
            rest = [
                *slices_of(name, self._namespace, endpoints),
                endpoints_of(name, self._namespace, endpoints),
            ]
            async with asyncio.TaskGroup() as group:
                for item in rest:
                    group.create_task(testbed.admin.create(item))

        await for_each(names, create, at_once=AT_ONCE)
        created = time.monotonic()
        await self._wait_for(lambda: len(watch.ready) == len(names))
        await asyncio.sleep(SETTLE)
        return ServiceTimes(
            seconds=[watch.ready[name] - sent[name] for name in names],
            created=created - min(sent.values()),
            total=max(watch.ready.values()) - min(sent.values()),
            cost=await self._cost(process.cpu_seconds() - cpu, cores.share()),
        )

    async def resize(self, name: str, endpoints: int) -> Resize:
        """Change the last EndpointSlice of a Service so that it has so many endpoints."""
        testbed, process, watch = self._testbed, self._process, self._watch
        watch.expect(endpoints)
        testbed.audit.mark()
        await testbed.cloud.clear_calls()
        process.reset_peak()
        cpu, cores, begun = process.cpu_seconds(), CoreUse(), time.monotonic()
        last = slices_of(name, self._namespace, endpoints)[-1]
        await testbed.admin.patch(path_of(last), {"endpoints": last["endpoints"]})
        await self._wait_for(lambda: name in watch.ready)
        await asyncio.sleep(SETTLE)
        cost = await self._cost(process.cpu_seconds() - cpu, cores.share())
        return Resize(endpoints, watch.ready[name] - begun, cost)

    async def churn(self, name: str) -> Churn:
        """Change the endpoints of a Service again and again."""
        testbed, watch = self._testbed, self._watch
        testbed.audit.mark()
        await testbed.cloud.clear_calls()
        watch.expect(CHANGES)
        begun = time.monotonic()
        for number in range(CHANGES):
            endpoints = CHANGES if number == CHANGES - 1 else 1 + number % 10
            [wanted] = slices_of(name, self._namespace, endpoints)
            await testbed.admin.patch(path_of(wanted), {"endpoints": wanted["endpoints"]})
            due = begun + (number + 1) * WITHIN / CHANGES
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        await self._wait_for(lambda: name in watch.ready)
        calls = octavia_calls(await testbed.cloud.calls())
        answered = [call.answered for call in calls if call.method in WRITES]
        return Churn(
            seconds=watch.ready[name] - begun,
            between=max(answered) - min(answered),
            octavia_writes=len(answered),
            writes=testbed.audit.tally().writes(self._user),
        )

    async def delete(self, names: Sequence[str]) -> None:
        """Delete the Services and wait until nothing is left of them, nor of others."""
        admin, cloud = self._testbed.admin, self._testbed.cloud

        async def delete(name: str) -> None:
            await admin.delete(path_of(service(name, self._namespace)))

        await for_each(names, delete, at_once=AT_ONCE)
        await admin.delete(_collection(slices_of("any", self._namespace, 0)[0]))
        services = _collection(service("any", self._namespace))
        async with asyncio.timeout(PATIENCE):
            while True:
                left = await cloud.load_balancers(self._namespace)
                if not left and not await admin.list(services):
                    return
                await asyncio.sleep(0.1)

    async def _cost(self, cpu: float, busy: float) -> Cost:
        calls = octavia_calls(await self._testbed.cloud.calls())
        tally = self._testbed.audit.tally()
        writes = sum(call.method in WRITES for call in calls)
        return Cost(
            octavia_writes=writes,
            octavia_reads=len(calls) - writes,
            octavia_kinds=octavia_kinds(calls),
            writes=tally.writes(self._user),
            reads=tally.reads(self._user),
            kinds=tally.kinds(),
            cpu_seconds=cpu,
            busy=busy,
            memory=self._process.memory(),
        )

    async def _wait_for(self, condition: Callable[[], object]) -> None:
        try:
            await self._watch.changes.wait_for(condition, within=PATIENCE)
        except TimeoutError:
            output = self._process.output_tail()
            raise RuntimeError(f"not all Services got there; the controller:\n{output}") from None


def octavia_calls(calls: Sequence[Call]) -> list[Call]:
    """Return the calls of Octavia."""
    return [call for call in calls if "/lbaas/" in call.what]


async def quiet_octavia(cloud: CloudControl, since: float, seconds: float) -> list[Call]:
    """Wait until Octavia has not been called for so many seconds.

    :param since: a time of time.monotonic() from which they count at the earliest.
    :returns: its calls since they were last cleared.
    """
    while True:
        calls = octavia_calls(await cloud.calls())
        last = max((call.answered for call in calls), default=since)
        if time.monotonic() - max(last, since) > seconds:
            return calls
        await asyncio.sleep(0.25)


def octavia_kinds(calls: Sequence[Call]) -> dict[str, int]:
    """Count calls by method and kind of path, as Octavia's reference writes them."""
    return dict(Counter(f"{call.method} {call.what.partition('/lbaas')[2]}" for call in calls))


def _collection(item: dict[str, object]) -> str:
    """Return the path of all objects of this one's kind in its namespace."""
    return path_of(item).rpartition("/")[0]
