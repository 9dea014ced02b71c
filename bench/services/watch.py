"""The moments when the load balancers of Services are published as ready."""

from __future__ import annotations

import time
from typing import Any

from bench.testbed.publication import Publication
from bench.testbed.watch import follow
from tests.kit.fakes.observing import Changes
from tests.kit.kube import KubeClient

Json = dict[str, Any]


class ServiceWatch:
    """A watch of a namespace that notes when each Service has all its members.

    `ready` holds the times of time.monotonic() by name.
    """

    def __init__(self, client: KubeClient, publication: Publication, namespace: str) -> None:
        self._client = client
        self._path = publication.path(namespace)
        self._members = publication.members
        self._wanted = 0
        self.changes = Changes()
        self.ready: dict[str, float] = {}

    def expect(self, members: int) -> None:
        """Clear all times; from now on a Service is ready with so many members."""
        self._wanted = members
        self.ready.clear()

    async def run(self) -> None:
        """Watch until cancelled."""

        def listed(objects: list[Json]) -> None:
            for item in objects:
                self._take(item)

        def changed(_event: str, item: Json) -> None:
            self._take(item)

        await follow(self._client, self._path, {}, listed=listed, changed=changed)

    def _take(self, item: Json) -> None:
        name = item["metadata"]["name"]
        if name not in self.ready and self._members(item) == self._wanted:
            self.ready[name] = time.monotonic()
            self.changes.notify()
