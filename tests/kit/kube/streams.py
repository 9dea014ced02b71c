"""One watch on its way through the proxy, and what may happen to its events."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from kuryr_k8s.k8s.informer import INITIAL_EVENTS_END
from kuryr_k8s.k8s.json_text import parse_now
from tests.kit.fakes.faults import drop
from tests.kit.fakes.observing import Changes

Json = dict[str, Any]

_EXPIRED = {
    "type": "ERROR",
    "object": {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    },
}  # fmt: skip


@dataclass
class Events:
    """What is to happen to events; a resource is a plural, None stands for all of them.

    Bookmarks are neither dropped nor doubled: they carry nothing but a version. But after a lost
    event, its connection gets none any more, but for the end of a list: no server says that a
    client has everything up to a version, and leaves something out.
    """

    told: Counter[tuple[str, str]] = field(default_factory=Counter)  # by resource and name
    _drop: dict[str | None, int] = field(default_factory=dict)
    _double: dict[str | None, int] = field(default_factory=dict)
    _slow: dict[str | None, float] = field(default_factory=dict)
    _held: set[str | None] = field(default_factory=set)
    _open: asyncio.Event = field(default_factory=asyncio.Event)

    def drop(self, number: int, resource: str | None = None) -> None:
        """Lose the next `number` events."""
        self._drop[resource] = self._drop.get(resource, 0) + number

    def double(self, number: int, resource: str | None = None) -> None:
        """Send each of the next `number` events twice."""
        self._double[resource] = self._double.get(resource, 0) + number

    def slow(self, seconds: float, resource: str | None = None) -> None:
        """Keep each event back for so long."""
        self._slow[resource] = seconds

    @property
    def passed(self) -> int:
        """How many events there were so far."""
        return self.told.total()

    @property
    def dropping(self) -> bool:
        """Whether there are events still to be lost."""
        return any(self._drop.values())

    def hold(self, resource: str | None = None) -> None:
        """Keep all events back until they are released: the client's cache grows old."""
        self._held.add(resource)

    def release(self) -> None:
        """Let all events that are held go, in their order."""
        self._held.clear()
        self._open.set()
        self._open = asyncio.Event()

    async def pass_through(self, resource: str, line: bytes) -> int:
        """Wait as long as the event must; how many times it is to be sent."""
        while self._held & {None, resource}:
            await self._open.wait()
        if seconds := self._slow.get(resource, self._slow.get(None, 0.0)):
            await asyncio.sleep(seconds)
        event = parse_now(line)
        if event["type"] == "BOOKMARK":
            return 1
        if _use(self._drop, resource):
            return 0
        self.told[resource, event["object"].get("metadata", {}).get("name", "")] += 1
        return 2 if _use(self._double, resource) else 1


class Stream:
    """A watch: reads lines from the server, sends them to the client."""

    def __init__(
        self,
        resource: str,
        request: web.Request,
        response: web.StreamResponse,
        answer: aiohttp.ClientResponse,
        events: Events,
        changes: Changes,
    ) -> None:
        self.resource = resource
        self._request, self._response, self._answer = request, response, answer
        self._events, self._changes = events, changes
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._version = ""  # of what was sent last
        self._has_lost = False

    def end(self, how: str) -> None:
        """End it: "cut" is the connection, "expired" sends ERROR 410, "over" is regular."""
        if not self._ended.done():
            self._ended.set_result(how)

    async def bookmark(self) -> None:
        """Tell the client how far it is, as the server does every minute."""
        kind = {"kind": "Any", "apiVersion": "v1", "metadata": {"resourceVersion": self._version}}
        line = json.dumps({"type": "BOOKMARK", "object": kind})
        await self._response.write(line.encode() + b"\n")

    async def run(self) -> None:
        """Until one of the two ends, or `end` does."""
        try:
            async with asyncio.TaskGroup() as group:
                pump = group.create_task(self._pump())
                how = await self._ended
                pump.cancel()
        except* (aiohttp.ClientError, ConnectionError):
            how = "cut"
        if how == "cut":
            drop(self._request)
        elif how == "expired":
            await self._response.write(json.dumps(_EXPIRED).encode() + b"\n")

    async def _pump(self) -> None:
        while line := await self._answer.content.readline():
            times = await self._events.pass_through(self.resource, line)
            self._has_lost |= times == 0
            if self._has_lost and _is_progress(line):
                continue
            for _ in range(times):
                await self._response.write(line)
                self._version = parse_now(line)["object"]["metadata"].get("resourceVersion", "")
            self._changes.notify()
        self.end("over")


def _is_progress(line: bytes) -> bool:
    """Return whether it is a bookmark, and not the one that ends a list."""
    event = parse_now(line)
    if event["type"] != "BOOKMARK":
        return False
    return INITIAL_EVENTS_END not in (event["object"]["metadata"].get("annotations") or {})


def _use(left: dict[str | None, int], resource: str) -> bool:
    for key in (resource, None):
        if left.get(key, 0) > 0:
            left[key] -= 1
            return True
    return False
