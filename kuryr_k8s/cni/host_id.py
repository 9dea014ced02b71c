"""The node's name as Neutron knows it, published on the Node."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from kuryr_k8s import errors
from kuryr_k8s.k8s.resources import NODES, Key, Resource
from kuryr_k8s.model.annotations import HOST_ID, annotation

LOG = logging.getLogger(__name__)
LOOK_AGAIN = 60.0  # seconds: a Node may be deleted, and registered anew by its kubelet


class Api(Protocol):
    """The part of the API's client that we need."""

    async def get(self, resource: Resource, key: Key) -> dict[str, Any]: ...

    async def merge_patch(
        self, resource: Resource, key: Key, patch: dict[str, Any], *, subresource: str = ""
    ) -> dict[str, Any]: ...


class HostIdPublisher:
    """Reconciles one key, the Node's: its annotation is the chassis' hostname.

    ``published`` is set from the first time on that it was right.
    """

    def __init__(self, api: Api, host_id: Callable[[], str | None]) -> None:
        self.published = asyncio.Event()
        self._api = api
        self._host_id = host_id

    async def reconcile(self, key: Key) -> float | None:
        """:raises errors.KubeError: to be tried again."""
        host_id = self._host_id()
        if host_id is None:
            raise errors.Wait("Open vSwitch has no external_ids:hostname", delay=2.0)
        node = await self._api.get(NODES, key)
        if annotation(node, HOST_ID) != host_id:
            patch = {"metadata": {"annotations": {HOST_ID: host_id}}}
            await self._api.merge_patch(NODES, key, patch)
            LOG.info("Node %s is chassis %s", key, host_id)
        self.published.set()
        return LOOK_AGAIN
