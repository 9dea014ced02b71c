"""Pods on many nodes, and the daemons of all of these nodes in one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

from bench.testbed.concurrency import for_each
from bench.testbed.node_daemon import NodeDaemon
from bench.testbed.testbed import Testbed
from kuryr_k8s.k8s.resources import PODS
from tests.kit.kube.objects import make_pod

Json = dict[str, Any]
AT_ONCE = 48  # requests under way
PAUSE = 0.05  # seconds between two looks at what the daemons have seen


class AllDaemons(NodeDaemon):
    """The daemons of all nodes."""

    def __init__(self, testbed: Testbed) -> None:
        super().__init__(testbed.daemon, "")

    def _query(self) -> dict[str, str]:
        return {}


class StormLoad:
    """Pods that come and go; `created` holds when each was, by name."""

    def __init__(self, testbed: Testbed, nodes: int) -> None:
        self._testbed = testbed
        self._nodes = nodes
        self.daemons = AllDaemons(testbed)
        self.created: dict[str, float] = {}

    async def create(self, prefix: str, count: int) -> list[str]:
        """Create so many Pods, spread over the nodes, and return their names."""
        names = [f"{prefix}-{number:05}" for number in range(count)]
        await for_each(enumerate(names), self._create, at_once=AT_ONCE)
        return names

    async def _create(self, numbered: tuple[int, str]) -> None:
        number, name = numbered
        node = f"node{number % self._nodes}"
        namespace = self._testbed.cluster.namespace
        self.created[name] = time.monotonic()
        await self._testbed.admin.create(make_pod(name, namespace, node=node))

    async def delete(self, names: Iterable[str]) -> None:
        """Delete Pods."""
        await for_each(names, self._delete, at_once=AT_ONCE)

    async def _delete(self, name: str) -> None:
        path = PODS.path(self._testbed.cluster.namespace, name)
        await self._testbed.admin.delete(path, gracePeriodSeconds=0)

    def plugged(self, names: Iterable[str]) -> list[str]:
        """Return those of the Pods that have their ports."""
        return [name for name in names if name in self.daemons.plugged]

    def gone(self, names: Iterable[str]) -> list[str]:
        """Return those of the Pods whose KuryrPorts are gone."""
        return [name for name in names if name in self.daemons.gone]

    def waits(self, names: Iterable[str], since: float | None = None) -> list[float]:
        """Return how long the Pods waited for ports, from their creation or a moment."""
        plugged = self.daemons.plugged
        return [plugged[name] - (self.created[name] if since is None else since) for name in names]


async def until(condition: Callable[[], bool], what: str, *, within: float) -> None:
    """Look again and again until the condition is true.

    :raises TimeoutError: it is not true in time; `what` says what it is.
    """
    ends = time.monotonic() + within
    while not condition():
        if time.monotonic() > ends:
            raise TimeoutError(f"not within {within:.0f} s: {what}")
        await asyncio.sleep(PAUSE)
