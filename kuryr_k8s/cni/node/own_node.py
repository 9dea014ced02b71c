"""The daemon's own Node, reduced to what ``kuryr0`` depends on."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from kuryr_k8s import errors
from kuryr_k8s.cni.parts import Job, Part
from kuryr_k8s.k8s.resources import NODES, Key, Resource
from kuryr_k8s.model.annotations import NODE_INTERFACE, annotation

LOG = logging.getLogger(__name__)
INTERVAL = 15.0  # seconds from one look at the Node to the next


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnNode:
    """A Node.

    :param interface: what the controller wrote for ``kuryr0``; None: there is to be none.
    """

    uid: str
    interface: str | None

    @classmethod
    def read(cls, item: dict[str, Any]) -> Self:
        """Read a Node from the API's JSON."""
        return cls(uid=item["metadata"]["uid"], interface=annotation(item, NODE_INTERFACE))


class Api(Protocol):
    """The part of the API's client that this module needs."""

    async def find(self, resource: Resource[Any], key: Key) -> dict[str, Any] | None:
        """Read an object; None if it does not exist."""


class OwnNodes(Part):
    """The daemon's own Node as last read; whoever may watch one Node may list all of them."""

    def __init__(self, api: Api, key: Key, interval: float = INTERVAL) -> None:
        self._api = api
        self._key = key
        self._interval = interval
        self._node: OwnNode | None = None
        self._subscribers: list[Callable[[Key], None]] = []

    def loops(self) -> Sequence[Job]:
        """Return the loop that reads the Node."""
        return [Job("own-node", self._run)]

    def get(self, _key: Key) -> OwnNode | None:
        """Return the Node; None if there is none, or it could never be read."""
        return self._node

    def subscribe(self, subscriber: Callable[[Key], None]) -> None:
        """Call a function at each change."""
        self._subscribers.append(subscriber)

    async def _run(self) -> None:
        while True:
            try:
                await self._read()
            except errors.KuryrError as error:
                LOG.debug("Node %s cannot be read: %s", self._key, error)
            await asyncio.sleep(self._interval)

    async def _read(self) -> None:
        item = await self._api.find(NODES, self._key)
        node = None if item is None else OwnNode.read(item)
        if node != self._node:
            self._node = node
            for subscriber in self._subscribers:
                subscriber(self._key)
