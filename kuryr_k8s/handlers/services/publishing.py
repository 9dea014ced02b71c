"""What other programs and people read of a Service's load balancers in annotations: the state, on
the Endpoints or else on the Service, and what the cloud provider writes there as well."""

from collections.abc import Mapping
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.state import Publication, publication
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import ENDPOINTS, SERVICES, Key, Resource
from kuryr_k8s.model.annotations import LBAAS_STATE, LBAAS_STATE_CUT
from kuryr_k8s.model.lbaas import LBaaSServiceSpec
from kuryr_k8s.model.load_balancer import FoundLoadBalancer
from kuryr_k8s.model.service import Endpoints, Service, digest
from kuryr_k8s.model.service_annotations import (
    LOAD_BALANCER_ADDRESS,
    LOAD_BALANCER_ID,
    WRITTEN_ID,
)

INVALID = 422  # the API server's word for annotations that are too long together


class Publishing:
    """Writes nothing that stands there already."""

    def __init__(self, context: HandlerContext) -> None:
        self._kube = context.kube
        self._services = context.informers.of(SERVICES)
        self._endpoints = context.informers.of(ENDPOINTS)

    async def state(
        self, key: Key, service: Service, found: FoundLoadBalancer, spec: LBaaSServiceSpec
    ) -> None:
        """On the Endpoints, else on the Service, and never on both. Where annotations of others
        leave too little room, without the members."""
        try:
            await self._state_everywhere(key, service, publication(found, spec))
        except errors.KubeError as error:
            if error.status != INVALID:
                raise
            await self._state_everywhere(key, service, publication(found, spec, budget=0))

    async def no_state(self, key: Key, service: Service) -> None:
        """On neither."""
        await self._state_everywhere(key, service, None)

    async def _state_everywhere(
        self, key: Key, service: Service, state: Publication | None
    ) -> None:
        endpoints = self._endpoints.get(key)
        await self._state(ENDPOINTS, self._endpoints, key, endpoints, state)
        of_service = None if endpoints else state
        await self._state(SERVICES, self._services, key, service, of_service)

    async def outside(
        self, key: Key, service: Service, load_balancer_id: str, address: str
    ) -> None:
        """The load balancer that serves it outside, and its address; that the id is of our
        writing stands beside it, so that it is never taken for a wish.

        :param load_balancer_id: empty: the user has written it.
        :raises errors.Wait: the user has asked for something else in the meantime.
        """
        texts: dict[str, str | None] = {
            WRITTEN_ID: load_balancer_id,
            LOAD_BALANCER_ADDRESS: address,
        }
        if load_balancer_id:
            texts[LOAD_BALANCER_ID] = load_balancer_id
        if texts.items() - set(service.marks):
            await self._mark(key, service, texts)

    async def no_outside(self, key: Key, service: Service) -> None:
        """What was written of it goes; a wish of the user stays.

        :raises errors.Wait: as of :meth:`outside`.
        """
        marks = dict(service.marks)
        if WRITTEN_ID not in marks:
            return
        texts: dict[str, str | None] = {WRITTEN_ID: None, LOAD_BALANCER_ADDRESS: None}
        if marks.get(LOAD_BALANCER_ID) == marks[WRITTEN_ID]:
            texts[LOAD_BALANCER_ID] = None
        await self._mark(key, service, texts)

    async def _mark(self, key: Key, service: Service, texts: Mapping[str, str | None]) -> None:
        """Where users write as well: what they have written since ``service`` was read stays.

        :raises errors.Wait: they have.
        """
        now = self._services.get(key)  # as our own last write has left it
        if now is None or now.uid != service.uid:
            return
        lags = errors.Wait(f"Service {key} has changed", delay=1.0)
        if now.marks != service.marks:
            raise lags
        try:
            await self._annotate(
                SERVICES, self._services, key, service.uid, texts, version=now.resource_version
            )
        except errors.KubeConflict as error:
            raise lags from error

    async def _state(
        self,
        resource: Resource[Any],
        informer: Informer[Any],
        key: Key,
        known: Service | Endpoints | None,
        state: Publication | None,
    ) -> None:
        if known is None or known.lbaas_state == (digest(*state) if state else None):
            return
        text, cut = state or (None, None)
        texts = {LBAAS_STATE: text, LBAAS_STATE_CUT: cut}
        await self._annotate(resource, informer, key, known.uid, texts)

    async def _annotate(
        self,
        resource: Resource[Any],
        informer: Informer[Any],
        key: Key,
        uid: str,
        texts: Mapping[str, str | None],
        version: str | None = None,
    ) -> None:
        """:param version: of the object, which alone is written; None: of any."""
        meta: dict[str, Any] = {"uid": uid, "annotations": texts}
        if version is not None:
            meta["resourceVersion"] = version
        patch = {"metadata": meta}
        try:
            informer.learn(await self._kube.merge_patch(resource, key, patch))
        except errors.KubeNotFound:
            return  # gone in the meantime
