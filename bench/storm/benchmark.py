"""300 nodes, 10 000 Pods: exhausted quota, an outage of Neutron, 5 000 deletions."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bench.options import add_profile
from bench.report import Report
from bench.storm.figures import Phase
from bench.storm.lease import LeaseWatch
from bench.storm.load import StormLoad, until
from bench.storm.report import storm_report
from bench.testbed.testbed import Testbed, running_testbed

POOLED = {
    "kubernetes": {"vif_pool_driver": "neutron"},
    "vif_pool": {
        "ports_pool_min": "1",
        "ports_pool_batch": "1",
        "park_ports": "false",
        "port_names": "false",
    },
}
NOOP = {"kubernetes": {"vif_pool_driver": "noop"}}
WATCHED = 30.0  # seconds for which the exhausted quota is watched
ENDING = 100  # Pods that end while others wait for their quota
UNSERVED = 503
FOR_A_NODE = 2  # Pods that come during the outage: one finds a port in the pool, the other waits
LONG = 1800.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--nodes", type=int, default=300, help="how many nodes there are (300)")
    parser.add_argument("--pods", type=int, default=10_000, help="how many Pods there are (10000)")
    parser.add_argument(
        "--outage",
        type=float,
        default=120.0,
        help="seconds for which Neutron answers 503 (120); it is long enough for the longest "
        "back-off of pools",
    )
    parser.add_argument(
        "--latency", type=float, default=0.1, help="seconds that each call of Neutron takes (0.1)"
    )
    add_profile(parser)


def measure(options: argparse.Namespace) -> Report:
    """Run all phases, and return the report."""
    return asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> Report:
    async with running_testbed(nodes=options.nodes, profile=options.profile) as testbed:
        await testbed.cluster.add_namespace()
        await testbed.cloud.set_delays(options.latency)
        storm = Storm(testbed, options.nodes, options.pods)
        async with asyncio.TaskGroup() as group:
            others = [
                group.create_task(storm.load.daemons.run()),
                group.create_task(storm.lease.run()),
            ]
            await storm.run(options.outage)
            for task in others:
                task.cancel()
    return storm_report(options.nodes, options.pods, storm.phases)


class Storm:
    """The phases, one after another; `phases` holds them by the names of their figures."""

    def __init__(self, testbed: Testbed, nodes: int, pods: int) -> None:
        self._testbed = testbed
        self._nodes, self._pods = nodes, pods
        self._waits: Sequence[float] = ()
        self.load = StormLoad(testbed, nodes)
        self.lease = LeaseWatch(testbed.admin)
        self.phases: dict[str, Phase] = {}

    async def run(self, outage: float) -> None:
        """Run all phases."""
        self._testbed.configure(POOLED)
        async with self._testbed.controller():
            names = await self._use_up_quota()
            await self._free_some(names)
            await self._raise_quota(names)
            await self._have_outage(outage)
        self._testbed.configure(NOOP)
        async with self._testbed.controller():
            await self._delete_many(names)

    async def _use_up_quota(self) -> list[str]:
        half = self._pods // 2
        await self._testbed.cloud.set_quota(half)
        async with self._phase("come", "Pods come, half of them find no quota"):
            names = await self.load.create("web", self._pods)
            await until(
                lambda: len(self.load.plugged(names)) >= half, "half have ports", within=LONG
            )
            self._waits = self.load.waits(self.load.plugged(names))
        async with self._phase("exhausted", "the quota stays used up"):
            await asyncio.sleep(WATCHED)
        return names

    async def _free_some(self, names: list[str]) -> None:
        """End Pods one after another, and see when others get their quota."""
        running = self.load.plugged(names)
        waiting = [name for name in names if name not in self.load.daemons.plugged]
        async with self._phase("freed", f"{ENDING} Pods end, others get their quota"):
            await self.load.delete(running[:ENDING])
            await until(
                lambda: (
                    len(self.load.gone(running)) >= ENDING
                    and len(self.load.plugged(waiting)) >= ENDING
                ),
                "as many Pods have ports as have ended",
                within=LONG,
            )
            freed = sorted(self.load.daemons.gone[name] for name in self.load.gone(running))
            served = sorted(self.load.daemons.plugged[name] for name in self.load.plugged(waiting))
            self._waits = [max(0.0, got - at) for at, got in zip(freed, served, strict=False)]

    async def _raise_quota(self, names: list[str]) -> None:
        waiting = [name for name in names if name not in self.load.daemons.plugged]
        async with self._phase("raised", "the quota is raised") as began:
            await self._testbed.cloud.set_quota(-1)
            await until(
                lambda: len(self.load.plugged(waiting)) == len(waiting), "all have", within=LONG
            )
            self._waits = self.load.waits(waiting, began)

    async def _have_outage(self, seconds: float) -> None:
        await self._testbed.cloud.set_outage(UNSERVED)
        async with self._phase("outage", f"{UNSERVED} for {seconds:.0f} s"):
            names = await self.load.create("outage", self._nodes * FOR_A_NODE)
            began = self.load.created[names[0]]
            await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
        waiting = [name for name in names if name not in self.load.daemons.plugged]
        async with self._phase("recovery", "Neutron serves again") as began:
            await self._testbed.cloud.set_outage(0)
            await until(
                lambda: len(self.load.plugged(waiting)) == len(waiting), "all have", within=LONG
            )
            self._waits = self.load.waits(waiting, began)

    async def _delete_many(self, names: list[str]) -> None:
        there = [name for name in names if name not in self.load.daemons.gone]
        going = there[: self._pods // 2]
        async with self._phase("deletions", f"one Pod beside {len(going)} deletions"):
            async with asyncio.TaskGroup() as group:
                group.create_task(self.load.delete(going))
                await until(lambda: bool(self.load.gone(going)), "the first is gone", within=LONG)
                (name,) = await self.load.create("one", 1)
            await until(lambda: bool(self.load.plugged([name])), "it has a port", within=LONG)
            self._waits = self.load.waits([name])
            await until(
                lambda: len(self.load.gone(going)) == len(going), "all are gone", within=LONG
            )

    @asynccontextmanager
    async def _phase(self, name: str, what: str) -> AsyncIterator[float]:
        """Measure a phase; `_waits` becomes its waits.

        :returns: when it began.
        """
        await self._testbed.cloud.clear_calls()
        self.lease.mark()
        self._waits = ()
        began = time.monotonic()
        yield began
        seconds = time.monotonic() - began
        calls = await self._testbed.cloud.calls()
        self.phases[name] = Phase(
            what=what,
            waits=list(self._waits),
            seconds=seconds,
            calls=len(calls),
            creations=sum((call.method, call.what) == ("POST", "/v2.0/ports") for call in calls),
            rows=sum(call.rows for call in calls),
            lease=self.lease.seen,
        )
