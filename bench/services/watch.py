"""When a Service's load balancer is told to be ready: by what its controller publishes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kuryr_k8s.model.annotations import LBAAS_STATE
from tests.kit.fakes.observing import Changes
from tests.kit.kube import KubeClient, KubeRefusal

Json = dict[str, Any]


@dataclass(frozen=True)
class Publication:
    """Where a controller publishes, and how many members are in what it published (None: there
    is nothing yet). Objects have the names of their Services."""

    plural: str
    members: Callable[[Json], int | None]

    def path(self, namespace: str) -> str:
        """Of the objects of a namespace."""
        group, _, plural = self.plural.rpartition("/")
        return f"{group}/namespaces/{namespace}/{plural}"


def _in_annotation(item: Json) -> int | None:
    text = (item["metadata"].get("annotations") or {}).get(LBAAS_STATE)
    return len(json.loads(text)["versioned_object.data"]["members"]) if text else None


def _in_status(item: Json) -> int | None:
    status = item.get("status") or {}
    return len(status["members"]) if "members" in status else None


ANNOTATION = Publication("/api/v1/endpoints", _in_annotation)
STATUS = Publication("/apis/openstack.org/v1/kuryrloadbalancers", _in_status)


class ServiceWatch:
    """Notes when each Service of a namespace was told to have `wanted` members.

    `told` is by name, on the clock time.monotonic().
    """

    def __init__(self, client: KubeClient, publication: Publication, namespace: str) -> None:
        self._client = client
        self._path = publication.path(namespace)
        self._members = publication.members
        self.changes = Changes()
        self.wanted = 0
        self.told: dict[str, float] = {}

    def expect(self, members: int) -> None:
        """Begin anew."""
        self.wanted = members
        self.told.clear()

    async def run(self) -> None:
        """Until cancelled. The server ends a watch whose reader lags; then all is read again."""
        while True:
            listed = await self._client.request("GET", self._path)
            for item in listed["items"]:
                self._take(item)
            query = {"resourceVersion": listed["metadata"]["resourceVersion"]}
            try:
                async for event in self._client.watch(self._path, timeoutSeconds="3600", **query):
                    if event["type"] == "ERROR":
                        break
                    self._take(event["object"])
            except KubeRefusal as refusal:
                if refusal.status != 410:
                    raise

    def _take(self, item: Json) -> None:
        name = item["metadata"]["name"]
        if name not in self.told and self._members(item) == self.wanted:
            self.told[name] = time.monotonic()
            self.changes.notify()
