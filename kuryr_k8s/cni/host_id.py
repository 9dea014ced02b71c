"""The name by which Neutron knows the node, published on the Node."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kuryr_k8s import errors
from kuryr_k8s.cni.parts import Part
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.k8s.resources import NODES, Key, Resource
from kuryr_k8s.model.annotations import HOST_ID, annotation

LOG = logging.getLogger(__name__)
LOOK_AGAIN = 60.0  # seconds: a Node may be deleted, and registered again by its kubelet
ABSENT = 2.0  # seconds until the next look for a Node that does not exist
LONGEST_RETRY = 30.0  # seconds, as when another API is waited for at the start


class Api(Protocol):
    """The part of the API's client that this module needs."""

    async def get(self, resource: Resource[Any], key: Key) -> dict[str, Any]:
        """Read an object."""

    async def merge_patch(
        self, resource: Resource[Any], key: Key, patch: dict[str, Any], *, subresource: str = ""
    ) -> dict[str, Any]:
        """Patch an object and return it."""


class Switch(Protocol):
    """The part of :class:`~kuryr_k8s.cni.ovs.switch.OpenVSwitch` that this module needs."""

    def host_id(self) -> str | None:
        """Return the chassis' name."""

    def subscribe(self, subscriber: Callable[[], None]) -> None:
        """Call a function when the chassis' name may have changed."""


class HostIdPublisher(Part):
    """Reconciles one key, the Node's: its annotation is the chassis' hostname."""

    def __init__(self, api: Api, node: Key, switch: Switch) -> None:
        self._published = asyncio.Event()
        self._api = api
        self._switch = switch
        queue: WorkQueue[Key] = WorkQueue(cap=LONGEST_RETRY)
        self._controller = Controller("node", self.reconcile, queue=queue, workers=1)
        switch.subscribe(lambda: self._controller.queue.add(node))

    def loops(self) -> Sequence[Controller[Key]]:
        """Return the loop that reconciles the Node."""
        return [self._controller]

    def checks(self) -> Mapping[str, Callable[[], bool]]:
        """Return the check whether the annotation has been right once."""
        return {"host ID published": self._published.is_set}

    async def started(self) -> None:
        """Wait until the annotation has been right once."""
        await self._published.wait()

    def awaited(self) -> str:
        """Describe for users what :meth:`started` waits for."""
        return "the Node, which its kubelet registers, and external_ids:hostname of Open vSwitch"

    async def reconcile(self, key: Key) -> float | None:
        """Write the annotation if it is wrong.

        :returns: seconds until the next look.
        :raises errors.KubeError: to be tried again.
        """
        host_id = self._switch.host_id()
        if host_id is None:
            raise errors.Wait("Open vSwitch has no external_ids:hostname", delay=2.0)
        try:
            node = await self._api.get(NODES, key)
            if annotation(node, HOST_ID) != host_id:
                patch = {"metadata": {"annotations": {HOST_ID: host_id}}}
                await self._api.merge_patch(NODES, key, patch)
                LOG.info("Node %s is chassis %s", key, host_id)
        except errors.KubeNotFound as error:
            raise errors.Wait(f"Node {key} is not registered", delay=ABSENT) from error
        self._published.set()
        return LOOK_AGAIN
