"""Pods created at once, brought to ACTIVE, deleted: when what happened, and what it cost."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from bench.testbed.fake_cloud import by_kind
from bench.testbed.node_daemon import NodeDaemon
from bench.testbed.processes import machine_seconds
from bench.testbed.testbed import DAEMON, Controller, Stage
from tests.kit.kube import make_pod

PATIENCE = 300.0  # seconds for any one step
AT_ONCE = 64  # requests of ours under way
SETTLE = 0.5  # seconds after which nobody is still at work on what has happened


@dataclass(frozen=True)
class Lives:
    """Seconds of each Pod, from the moment its request was sent; and of all together."""

    plugged: list[float]
    active: list[float]
    gone: list[float]
    created_all: float
    plugged_all: float
    active_all: float
    gone_all: float
    calls_on_way: int  # of Neutron, until all were ACTIVE


@dataclass(frozen=True)
class Churn:
    """Seconds from each Pod's creation until nothing was left of it; of all together."""

    seconds: list[float]
    total: float


@dataclass(frozen=True)
class Cost:
    """What the lives of some Pods took: calls by kind, the controller's time and memory (MiB).

    `busy` is the share of the machine's cores that were at work, for whomever.
    """

    neutron: dict[str, int]
    writes: int
    node_writes: int
    reads: int
    lists: int
    kinds: dict[str, int]
    cpu_seconds: float
    rss_before: float
    rss_peak: float
    rss_after: float
    busy: float

    @classmethod
    def together(cls, costs: Sequence[Cost]) -> Cost:
        """The sum of several; the memory of the greatest, and of the last."""
        return cls(
            neutron=dict(sum((Counter(one.neutron) for one in costs), Counter())),
            writes=sum(one.writes for one in costs),
            node_writes=sum(one.node_writes for one in costs),
            reads=sum(one.reads for one in costs),
            lists=sum(one.lists for one in costs),
            kinds=dict(sum((Counter(one.kinds) for one in costs), Counter())),
            cpu_seconds=sum(one.cpu_seconds for one in costs),
            rss_before=max(one.rss_before for one in costs),
            rss_peak=max(one.rss_peak for one in costs),
            rss_after=costs[-1].rss_after,
            busy=fmean(one.busy for one in costs),
        )


class Theatre:
    """One stage with one controller; a play is the life of some Pods from birth to end.

    `user` is the controller's, for the count of what it asks of the API server; with a pool,
    ports outlive their Pods (`pooled`).
    """

    def __init__(
        self,
        stage: Stage,
        controller: Controller,
        daemon: NodeDaemon,
        user: str,
        *,
        pooled: bool = False,
    ) -> None:
        self._stage = stage
        self.process = controller.process
        self._daemon = daemon
        self._user = user
        self._pooled = pooled

    async def play(self, names: list[str]) -> Lives:
        """All Pods at once; returns when nothing is left of them."""
        self._daemon.forget()
        begun = time.monotonic()
        born = await self._each(names, self._create)
        created = time.monotonic()
        await self._until(lambda: len(self._daemon.active) == len(names))
        await asyncio.sleep(SETTLE if len(names) > 1 else 0)
        ended = time.monotonic()
        deleted = await self._each(names, self._delete)
        await self._until(lambda: len(self._daemon.gone) == len(names))
        gone = time.monotonic()
        if not self._pooled and await self._stage.cloud.ports():
            raise RuntimeError("ports are left after their KuryrPorts")
        daemon = self._daemon
        ready = max(daemon.active.values())
        calls = await self._stage.cloud.calls()
        return Lives(
            plugged=[daemon.plugged[name] - born[name] for name in names],
            active=[daemon.active[name] - born[name] for name in names],
            gone=[daemon.gone[name] - deleted[name] for name in names],
            created_all=created - begun,
            plugged_all=max(daemon.plugged.values()) - begun,
            active_all=ready - begun,
            gone_all=gone - ended,
            calls_on_way=sum(begun < call.answered <= ready for call in calls),
        )

    async def churn(self, number: int, at_once: int) -> Churn:
        """`number` Pods, `at_once` of them alive, each deleted as soon as it is ACTIVE."""
        self._daemon.forget()
        left, seconds = iter(range(number)), []
        active, gone = self._daemon.active, self._daemon.gone

        async def work() -> None:
            for i in left:
                name = f"churn-{i}"
                begun = time.monotonic()
                await self._create(name)
                await self._until(partial(active.__contains__, name))
                await self._delete(name)
                await self._until(partial(gone.__contains__, name))
                seconds.append(gone[name] - begun)

        begun = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())
        return Churn(seconds, time.monotonic() - begun)

    async def play_counted(self, plays: list[list[str]]) -> tuple[list[Lives], Cost]:
        """Plays one after another, and what all of them cost together."""
        await asyncio.sleep(SETTLE)
        stage, process = self._stage, self.process
        process.forget_peak()
        stage.audit.mark()
        await stage.cloud.forget_calls()
        cpu, before = process.cpu_seconds(), process.memory()
        worked, passed = machine_seconds()
        lives = [await self.play(names) for names in plays]
        await asyncio.sleep(SETTLE)
        tally, after = stage.audit.tally(), process.memory()
        worked, passed = (
            end - begin for end, begin in zip(machine_seconds(), (worked, passed), strict=True)
        )
        cost = Cost(
            neutron=dict(by_kind(await stage.cloud.calls())),
            writes=tally.writes(self._user),
            node_writes=tally.writes(DAEMON),
            reads=tally.reads(self._user),
            lists=tally.lists(self._user),
            kinds=tally.kinds(),
            cpu_seconds=process.cpu_seconds() - cpu,
            rss_before=before.resident,
            rss_peak=after.peak,
            rss_after=after.resident,
            busy=worked / passed,
        )
        return lives, cost

    async def _create(self, name: str) -> None:
        node = self._daemon.node
        await self._stage.admin.create(make_pod(name, self._stage.cluster.namespace, node=node))

    async def _delete(self, name: str) -> None:
        path = f"/api/v1/namespaces/{self._stage.cluster.namespace}/pods/{name}"
        await self._stage.admin.delete(path, gracePeriodSeconds=0)

    async def _each(
        self, names: list[str], act: Callable[[str], Awaitable[None]]
    ) -> dict[str, float]:
        """Do it for all of them at once; when each request was sent."""
        sent: dict[str, float] = {}
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> None:
            async with slots:
                sent[name] = time.monotonic()
                await act(name)

        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(one(name))
        return sent

    async def _until(self, condition: Callable[[], object]) -> None:
        try:
            await self._daemon.changes.wait_for(condition, within=PATIENCE)
        except TimeoutError:
            words = self.process.last_words()
            raise RuntimeError(f"not all Pods got there; the controller:\n{words}") from None
