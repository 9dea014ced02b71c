"""Pods created at once, brought to ACTIVE, deleted: when what happened, and what it cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench.fake_cloud import by_kind
from bench.node import NodeDaemon
from bench.stage import CONTROLLER, DAEMON, Controller, Stage
from tests.kube import make_pod

PATIENCE = 300.0  # seconds for any one step
AT_ONCE = 64  # requests of ours under way
SETTLE = 0.5  # seconds after which nobody is still at work on what has happened
NODE = "node0"


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


@dataclass(frozen=True)
class Cost:
    """What the lives of some Pods took: calls by kind, the controller's time and memory (MiB)."""

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


class Theatre:
    """One stage with one controller; a play is the life of some Pods from birth to end."""

    def __init__(self, stage: Stage, controller: Controller, daemon: NodeDaemon) -> None:
        self._stage = stage
        self._process = controller.process
        self._daemon = daemon

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
        if await self._stage.cloud.ports():
            raise RuntimeError("ports are left after their KuryrPorts")
        daemon = self._daemon
        return Lives(
            plugged=[daemon.plugged[name] - born[name] for name in names],
            active=[daemon.active[name] - born[name] for name in names],
            gone=[daemon.gone[name] - deleted[name] for name in names],
            created_all=created - begun,
            plugged_all=max(daemon.plugged.values()) - begun,
            active_all=max(daemon.active.values()) - begun,
            gone_all=gone - ended,
        )

    async def play_counted(self, plays: list[list[str]]) -> tuple[list[Lives], Cost]:
        """Plays one after another, and what all of them cost together."""
        await asyncio.sleep(SETTLE)
        stage, process = self._stage, self._process
        process.forget_peak()
        stage.audit.mark()
        await stage.cloud.forget_calls()
        cpu, before = process.cpu_seconds(), process.memory()
        lives = [await self.play(names) for names in plays]
        await asyncio.sleep(SETTLE)
        tally, after = stage.audit.tally(), process.memory()
        cost = Cost(
            neutron=dict(by_kind(await stage.cloud.calls())),
            writes=tally.writes(CONTROLLER),
            node_writes=tally.writes(DAEMON),
            reads=tally.reads(CONTROLLER),
            lists=tally.lists(CONTROLLER),
            kinds=tally.kinds(),
            cpu_seconds=process.cpu_seconds() - cpu,
            rss_before=before.resident,
            rss_peak=after.peak,
            rss_after=after.resident,
        )
        return lives, cost

    async def _create(self, name: str) -> None:
        await self._stage.admin.create(make_pod(name, self._stage.cluster.namespace, node=NODE))

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
            words = self._process.last_words()
            raise RuntimeError(f"not all Pods got there; the controller:\n{words}") from None
