"""The load of `bench pods`: Pods created, brought to ACTIVE and deleted, with times and costs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from bench.testbed.cloud_control import count_by_kind
from bench.testbed.concurrency import for_each
from bench.testbed.node_daemon import NodeDaemon
from bench.testbed.processes import CoreUse
from bench.testbed.testbed import DAEMON, Controller, Testbed
from tests.kit.kube import make_pod

PATIENCE = 300.0  # seconds for any step
AT_ONCE = 64  # requests of this process under way
SETTLE = 0.5  # seconds after which all work that a run caused is over


@dataclass(frozen=True)
class PodTimes:
    """The times of one run, in seconds: for each Pod since its request was sent, and for all."""

    plugged: list[float]
    active: list[float]
    gone: list[float]
    created_all: float
    plugged_all: float
    active_all: float
    gone_all: float
    calls_until_active: int  # of Neutron, until all were ACTIVE


@dataclass(frozen=True)
class Churn:
    """The times of Pods that come and go: seconds of each Pod's whole life, and of all."""

    seconds: list[float]
    total: float


@dataclass(frozen=True)
class Cost:
    """The cost of runs: calls by kind, the controller's processor time and memory (MiB).

    `busy` is the share of the machine's cores at work for any process.
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
    def sum_of(cls, costs: Sequence[Cost]) -> Cost:
        """Return the sum of costs.

        Its memory is the greatest before the runs and at the peak, and the last one after them.
        """
        return cls(
            neutron=dict(sum((Counter(cost.neutron) for cost in costs), Counter())),
            writes=sum(cost.writes for cost in costs),
            node_writes=sum(cost.node_writes for cost in costs),
            reads=sum(cost.reads for cost in costs),
            lists=sum(cost.lists for cost in costs),
            kinds=dict(sum((Counter(cost.kinds) for cost in costs), Counter())),
            cpu_seconds=sum(cost.cpu_seconds for cost in costs),
            rss_before=max(cost.rss_before for cost in costs),
            rss_peak=max(cost.rss_peak for cost in costs),
            rss_after=costs[-1].rss_after,
            busy=fmean(cost.busy for cost in costs),
        )


class PodLoad:
    """Pods on one node, beside one controller.

    :param user: the controller's user, whose requests are counted.
    :param pooled: ports outlive their Pods, since a pool takes them back.
    :param annotations: of each Pod.
    """

    def __init__(
        self,
        testbed: Testbed,
        controller: Controller,
        daemon: NodeDaemon,
        user: str,
        *,
        pooled: bool = False,
        annotations: dict[str, str] | None = None,
    ) -> None:
        self._testbed = testbed
        self.process = controller.process
        self._daemon = daemon
        self._user = user
        self._pooled = pooled
        self._annotations = annotations

    async def run(self, names: list[str]) -> PodTimes:
        """Create all Pods at once, delete them once they are ACTIVE, and wait until all are gone.

        :raises RuntimeError: a Pod did not get there, or a port is left.
        """
        daemon = self._daemon
        daemon.reset()
        begun = time.monotonic()
        creations = await self._for_each(names, self._create)
        created = time.monotonic()
        await self._wait_for(lambda: len(daemon.active) == len(names))
        await asyncio.sleep(SETTLE if len(names) > 1 else 0)
        deletion_begun = time.monotonic()
        deletions = await self._for_each(names, self._delete)
        await self._wait_for(lambda: len(daemon.gone) == len(names))
        gone = time.monotonic()
        if not self._pooled and await self._testbed.cloud.ports():
            raise RuntimeError("ports are left after their KuryrPorts")
        last_active = max(daemon.active.values())
        calls = await self._testbed.cloud.calls()
        return PodTimes(
            plugged=[daemon.plugged[name] - creations[name] for name in names],
            active=[daemon.active[name] - creations[name] for name in names],
            gone=[daemon.gone[name] - deletions[name] for name in names],
            created_all=created - begun,
            plugged_all=max(daemon.plugged.values()) - begun,
            active_all=last_active - begun,
            gone_all=gone - deletion_begun,
            calls_until_active=sum(begun < call.answered <= last_active for call in calls),
        )

    async def churn(self, number: int, at_once: int) -> Churn:
        """Create Pods with at most `at_once` alive, and delete each as soon as it is ACTIVE."""
        self._daemon.reset()
        active, gone = self._daemon.active, self._daemon.gone

        async def live(name: str) -> float:
            begun = time.monotonic()
            await self._create(name)
            await self._wait_for(partial(active.__contains__, name))
            await self._delete(name)
            await self._wait_for(partial(gone.__contains__, name))
            return gone[name] - begun

        begun = time.monotonic()
        seconds = await for_each([f"churn-{i}" for i in range(number)], live, at_once=at_once)
        return Churn(seconds, time.monotonic() - begun)

    async def run_counted(self, runs: list[list[str]]) -> tuple[list[PodTimes], Cost]:
        """Run one list of names after another.

        :returns: the times of each run, and the cost of all.
        """
        await asyncio.sleep(SETTLE)
        testbed, process = self._testbed, self.process
        process.reset_peak()
        testbed.audit.mark()
        await testbed.cloud.clear_calls()
        cpu, before, cores = process.cpu_seconds(), process.memory(), CoreUse()
        times = [await self.run(names) for names in runs]
        await asyncio.sleep(SETTLE)
        tally, after, busy = testbed.audit.tally(), process.memory(), cores.share()
        cost = Cost(
            neutron=dict(count_by_kind(await testbed.cloud.calls())),
            writes=tally.writes(self._user),
            node_writes=tally.writes(DAEMON),
            reads=tally.reads(self._user),
            lists=tally.lists(self._user),
            kinds=tally.kinds(),
            cpu_seconds=process.cpu_seconds() - cpu,
            rss_before=before.resident,
            rss_peak=after.peak,
            rss_after=after.resident,
            busy=busy,
        )
        return times, cost

    async def _create(self, name: str) -> None:
        namespace, node = self._testbed.cluster.namespace, self._daemon.node
        pod = make_pod(name, namespace, node=node, annotations=self._annotations)
        await self._testbed.admin.create(pod)

    async def _delete(self, name: str) -> None:
        path = f"/api/v1/namespaces/{self._testbed.cluster.namespace}/pods/{name}"
        await self._testbed.admin.delete(path, gracePeriodSeconds=0)

    async def _for_each(
        self, names: list[str], act: Callable[[str], Awaitable[None]]
    ) -> dict[str, float]:
        """Send the requests of all Pods; return when each was sent, by name."""

        async def send(name: str) -> float:
            sent = time.monotonic()
            await act(name)
            return sent

        times = await for_each(names, send, at_once=AT_ONCE)
        return dict(zip(names, times, strict=True))

    async def _wait_for(self, condition: Callable[[], object]) -> None:
        try:
            await self._daemon.changes.wait_for(condition, within=PATIENCE)
        except TimeoutError:
            output = self.process.output_tail()
            raise RuntimeError(f"not all Pods got there; the controller:\n{output}") from None
