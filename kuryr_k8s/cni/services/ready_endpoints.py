"""Follow the EndpointSlices of the Services whose health a node is asked about.

These Services are few, and a node is not to hear of all endpoints of the cluster. So the watch
names the Services, and another watch replaces it when there are others.
"""

import asyncio
from collections.abc import Sequence

from kuryr_k8s.cni.parts import Job, Part
from kuryr_k8s.cni.services.node_ports import Services
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import ENDPOINTSLICES, Key
from kuryr_k8s.model.annotations import SERVICE_NAME_LABEL
from kuryr_k8s.model.node_port import ServiceAtNodes, SliceAtNodes
from kuryr_k8s.patience import PATIENCE, Patience


class ReadyEndpoints(Part):
    """Follows the EndpointSlices of Services with a health check port."""

    def __init__(self, services: Services, api: KubeApi, patience: Patience = PATIENCE) -> None:
        self._services = services
        self._api = api
        self._patience = patience
        self._changed = asyncio.Event()
        self._known: Informer[SliceAtNodes] | None = None  # the newest that is complete
        self._asked: frozenset[Key] = frozenset()  # the Services whose slices it has
        services.subscribe(self._note)

    def loops(self) -> Sequence[Job]:
        """Return the loop that follows the slices."""
        return [Job("ready-endpoints", self.run)]

    def _note(self, _key: Key, old: ServiceAtNodes | None, new: ServiceAtNodes | None) -> None:
        if any(each is not None and each.health_check_port for each in (old, new)):
            self._changed.set()

    def any_of(self, service: Key) -> bool:
        """Return whether an endpoint of the Service is ready; True as long as that is unknown."""
        if self._known is None or service not in self._asked:
            return True
        return any(
            each.ready
            for each in self._known.values()
            if (each.namespace, each.service) == service
        )

    async def run(self) -> None:
        """Follow the slices of these Services until cancelled."""
        while True:
            asked = self._wanted()
            async with asyncio.TaskGroup() as group:
                following = group.create_task(self._follow(asked))
                while asked == self._wanted():
                    self._changed.clear()
                    await self._changed.wait()
                following.cancel()

    def _wanted(self) -> frozenset[Key]:
        return frozenset(
            Key(service.namespace, service.name)
            for service in self._services.values()
            if service.health_check_port is not None
        )

    async def _follow(self, asked: frozenset[Key]) -> None:
        if not asked:
            self._known, self._asked = None, asked
            return
        names = ",".join(sorted({service.name for service in asked}))
        informer = Informer(
            self._api,
            ENDPOINTSLICES,
            SliceAtNodes.read,
            selectors={"labelSelector": f"{SERVICE_NAME_LABEL} in ({names})"},
            patience=self._patience,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            await informer.synced.wait()
            self._known, self._asked = informer, asked
