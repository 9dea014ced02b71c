"""Annotations in which others read about a Service's load balancers.

These are the state, on the Endpoints or else on the Service, and what the cloud provider writes
there as well.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.endpoints import PublishedEndpoints
from kuryr_k8s.handlers.services.state import Publication, publication
from kuryr_k8s.k8s.resources import SERVICES, Key
from kuryr_k8s.model.annotations import LBAAS_STATE, LBAAS_STATE_CUT
from kuryr_k8s.model.lbaas import LBaaSServiceSpec
from kuryr_k8s.model.load_balancer import FoundLoadBalancer
from kuryr_k8s.model.service import Endpoints, Service, digest
from kuryr_k8s.model.service_annotations import (
    LOAD_BALANCER_ADDRESS,
    LOAD_BALANCER_ID,
    WRITTEN_ID,
)

Json = dict[str, Any]
Patch = Callable[[Key, Json], Awaitable[None]]  # key and metadata
INVALID = 422  # the API server's word for annotations that are too long together


class Publishing:
    """Writer of annotations; what is written already is not written again."""

    def __init__(self, context: HandlerContext) -> None:
        self._kube = context.kube
        self._services = context.informers.of(SERVICES)
        self._endpoints = PublishedEndpoints(context)

    async def state(
        self, key: Key, service: Service, found: FoundLoadBalancer, spec: LBaaSServiceSpec
    ) -> None:
        """Publish the state on the Endpoints, or else on the Service, but never on both.

        If annotations of others leave too little room, the members are left out.
        """
        try:
            await self._state_everywhere(key, service, publication(found, spec))
        except errors.KubeError as error:
            if error.status != INVALID:
                raise
            await self._state_everywhere(key, service, publication(found, spec, budget=0))

    async def no_state(self, key: Key, service: Service) -> None:
        """Remove the state from both."""
        await self._state_everywhere(key, service, None)

    async def _state_everywhere(
        self, key: Key, service: Service, state: Publication | None
    ) -> None:
        endpoints = self._endpoints.get(key)
        await self._state(self._endpoints.patch, key, endpoints, state)
        of_service = None if endpoints else state
        await self._state(self._patch_service, key, service, of_service)

    async def outside(
        self, key: Key, service: Service, load_balancer_id: str, address: str
    ) -> None:
        """Publish the load balancer that serves the Service outside, and its address.

        A further annotation says that we wrote the id, so that it is never taken for a wish.

        :param load_balancer_id: empty if the user has written it.
        :raises errors.Wait: the user has asked for something else in the meantime.
        """
        texts: dict[str, str | None] = {
            WRITTEN_ID: load_balancer_id,
            LOAD_BALANCER_ADDRESS: address,
        }
        if load_balancer_id:
            texts[LOAD_BALANCER_ID] = load_balancer_id
        if texts.items() - set(service.annotations):
            await self._annotate_if_unchanged(key, service, texts)

    async def no_outside(self, key: Key, service: Service) -> None:
        """Remove what :meth:`outside` wrote; a wish of the user stays.

        :raises errors.Wait: the user has asked for something else in the meantime.
        """
        annotations = dict(service.annotations)
        if WRITTEN_ID not in annotations:
            return
        texts: dict[str, str | None] = {WRITTEN_ID: None, LOAD_BALANCER_ADDRESS: None}
        if annotations.get(LOAD_BALANCER_ID) == annotations[WRITTEN_ID]:
            texts[LOAD_BALANCER_ID] = None
        await self._annotate_if_unchanged(key, service, texts)

    async def _annotate_if_unchanged(
        self, key: Key, service: Service, texts: Mapping[str, str | None]
    ) -> None:
        """Write annotations that users write as well.

        :raises errors.Wait: they have written since ``service`` was read; that stays.
        """
        current = self._services.get(key)  # as our own last write has left it
        if current is None or current.uid != service.uid:
            return
        lags = errors.Wait(f"Service {key} has changed", delay=1.0)
        if current.annotations != service.annotations:
            raise lags
        try:
            await self._annotate(
                self._patch_service, key, service.uid, texts, version=current.resource_version
            )
        except errors.KubeConflict as error:
            raise lags from error

    async def _state(
        self,
        patch: Patch,
        key: Key,
        known: Service | Endpoints | None,
        state: Publication | None,
    ) -> None:
        if known is None or known.lbaas_state == (digest(*state) if state else None):
            return
        text, cut = state or (None, None)
        texts = {LBAAS_STATE: text, LBAAS_STATE_CUT: cut}
        await self._annotate(patch, key, known.uid, texts)

    async def _annotate(
        self,
        patch: Patch,
        key: Key,
        uid: str,
        texts: Mapping[str, str | None],
        version: str | None = None,
    ) -> None:
        """Write annotations of an object.

        :param version: the only version of the object that is written; None for any.
        """
        meta: Json = {"uid": uid, "annotations": texts}
        if version is not None:
            meta["resourceVersion"] = version
        try:
            await patch(key, meta)
        except errors.KubeNotFound:
            return  # gone in the meantime

    async def _patch_service(self, key: Key, meta: Json) -> None:
        """Change metadata of a Service."""
        answer = await self._kube.merge_patch(SERVICES, key, {"metadata": meta})
        self._services.learn(answer)
