"""Removal of what Services have in clouds, and of our finalizer."""

import contextlib
from collections.abc import Callable, Sequence

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import ServicePublicIPDriver
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.desired import owners_of
from kuryr_k8s.handlers.services.endpoints import PublishedEndpoints
from kuryr_k8s.handlers.services.outside import Outside
from kuryr_k8s.handlers.services.reporting import Reports
from kuryr_k8s.handlers.services.requests import Requests
from kuryr_k8s.handlers.services.settings import keeps_address
from kuryr_k8s.k8s.resources import SERVICES, Key
from kuryr_k8s.model.annotations import SERVICE_FINALIZER
from kuryr_k8s.model.owner import Owner
from kuryr_k8s.model.service import Service
from kuryr_k8s.model.service_annotations import Settings
from kuryr_k8s.model.service_class import is_handled


class Removal:
    """Releases Services that are deleted, lost, or not handled any more.

    :param last_settings: returns the last settings of a Service, by key and uid, that could be
        read.
    """

    def __init__(
        self,
        context: HandlerContext,
        requests: Requests,
        outside: Outside,
        reports: Reports,
        last_settings: Callable[[Key, str], Settings | None],
    ) -> None:
        self._kube = context.kube
        self._public_ips = context.drivers[ServicePublicIPDriver]
        self._services = context.informers.of(SERVICES)
        self._endpoints = PublishedEndpoints(context)
        self._requests = requests
        self._outside = outside
        self._reports = reports
        self._last_settings = last_settings

    async def release(self, key: Key, service: Service) -> None:
        """Remove all that the Service has, and our finalizer."""
        if not self._may_have(key, service):
            return
        if not service.deleting:
            await self._check_live(key, service)
        stuck: errors.Refused | None = None
        try:
            await self._outside.release(key, service, keep=keeps_address(service))
        except errors.Refused as error:  # what depends on others holds up nothing else
            stuck = error
        for owner in owners_of(service):
            await self._requests.release(key, owner)
        if stuck is not None:
            raise stuck
        if not service.deleting:
            await self._reports.clear(key, service)
        await self.let_go(key, service)

    def _may_have(self, key: Key, service: Service) -> bool:
        """Return whether anything can have been made for the Service and not be gone yet."""
        endpoints = self._endpoints.get(key)
        return (
            SERVICE_FINALIZER in service.finalizers
            or bool(self._requests.owners(key))
            or any(each.lbaas_state for each in (service, endpoints) if each is not None)
        )

    async def let_go(self, key: Key, service: Service) -> None:
        """Remove our finalizer from a Service that has nothing outside."""
        if SERVICE_FINALIZER in service.finalizers:
            answer = await self._kube.remove_finalizers(
                SERVICES, key, SERVICE_FINALIZER, uid=service.uid, known=service.finalizers
            )
            self._services.learn(answer)

    async def release_lost(self, key: Key, service: Service | None) -> None:
        """Release what a Service had that is gone.

        No finalizer of ours holds a Service that we do not expose. The API server itself must say
        that the Service is gone.

        :raises errors.Wait: Octavia is at work on it.
        """
        owners = self._requests.owners(key)
        lost = [owner for owner in owners if service is None or owner.uid != service.uid]
        if not lost:
            return
        live = await self._kube.find(SERVICES, key)
        for uid in {owner.uid for owner in lost}:
            owners = [owner for owner in lost if owner.uid == uid]
            if live is None or live["metadata"]["uid"] != uid:
                await self._release_unheld(key, uid, owners)
            for owner in owners:
                self._requests.forget(key, owner)

    async def _release_unheld(self, key: Key, uid: str, owners: Sequence[Owner]) -> None:
        """Release what a lost Service had, but for what others still use.

        The sweep removes that: the next Service has to be served now.
        """
        known = self._last_settings(key, uid)
        if not any([await self._requests.is_shared(key, owner) for owner in owners]):
            keep = known is None or known.keep_floating_ip
            await self._public_ips.release(Owner(uid), keep=keep)
        for owner in owners:
            with contextlib.suppress(errors.Refused):
                await self._requests.release(key, owner)

    async def _check_live(self, key: Key, service: Service) -> None:
        """Make sure that the API server too says that the Service is not handled any more.

        :raises errors.Wait: it does not: the cache is not up to date.
        """
        live = await self._kube.find(SERVICES, key)
        if live is not None and live["metadata"]["uid"] == service.uid:
            current = Service.read(live)
            if is_handled(current) and not current.deleting:
                raise errors.Wait(f"the cache lags behind Service {key}", delay=1.0)
