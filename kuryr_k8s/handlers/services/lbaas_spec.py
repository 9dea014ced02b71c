"""Handler of Services' specs: annotations of the Service and of its Endpoints.

A second annotation has the resourceVersion of the Service from which the spec was computed. Both
are written only when the spec changes. Writing them changes the resourceVersion, so it only tells
which of two specs is the later one. On a Service that we expose, our finalizer comes with the
spec, in one PATCH; the handler ``loadbalancer`` makes nothing before, and removes the finalizer.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.base.granted import projects
from kuryr_k8s.handlers.base import Handler, HandlerContext, Watch
from kuryr_k8s.handlers.services.endpoints import PublishedEndpoints
from kuryr_k8s.handlers.services.spec import ServiceSpecs, service_reference, text_of
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import SERVICES, Key
from kuryr_k8s.model.annotations import LBAAS_SPEC, LBAAS_SPEC_VERSION, SERVICE_FINALIZER
from kuryr_k8s.model.service import Endpoints, Service
from kuryr_k8s.model.service_class import Classes, is_exposed, is_handled

Json = dict[str, Any]


class LBaaSSpecHandler(Handler):
    """Writes the specs of Services."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        if "loadbalancer" not in context.conf.kubernetes.enabled_handlers:
            raise errors.ConfigError(
                "[kubernetes] enabled_handlers: lbaas_spec needs the handler loadbalancer"
            )
        self._classes = Classes.read(context.conf)
        self._specs = ServiceSpecs(context.drivers, projects(context.conf))
        self._endpoints = PublishedEndpoints(context)

    def watches(self) -> Sequence[Watch[Any]]:
        services = self._context.informers.of(SERVICES)
        return (Watch(services, _of_service), *self._endpoints.watches(_of_endpoints))

    async def reconcile(self, key: Key) -> float | None:
        service = self._context.informers.of(SERVICES).get(key)
        if service is None or service.deleting:
            return None
        spec = version = None
        if is_handled(service):
            spec = text_of((await self._specs.of(service))[0])
            same = service.lbaas_spec == spec and service.lbaas_spec_version
            version = service.lbaas_spec_version if same else service.resource_version
        try:
            await self._write(key, service, spec, version)
        except errors.KubeNotFound:
            return None  # gone in the meantime
        except errors.KubeConflict as error:
            raise errors.Wait(f"the cache lags behind Service {key}", delay=1.0) from error
        return None

    async def _write(
        self, key: Key, service: Service, spec: str | None, version: str | None
    ) -> None:
        """Write the Service first: the Endpoints copy its version, whoever is interrupted."""
        meta: Json = {"uid": service.uid}
        if (service.lbaas_spec, service.lbaas_spec_version) != (spec, version):
            meta["annotations"] = {LBAAS_SPEC: spec, LBAAS_SPEC_VERSION: version}
        exposed = spec is not None and is_exposed(service, self._classes)
        if exposed and SERVICE_FINALIZER not in service.finalizers:
            meta["finalizers"] = [*service.finalizers, SERVICE_FINALIZER]
            meta["resourceVersion"] = service.resource_version  # others may add theirs
        if len(meta) > 1:
            answer = await self._context.kube.merge_patch(SERVICES, key, {"metadata": meta})
            self._context.informers.of(SERVICES).learn(answer)
        endpoints = self._endpoints.get(key)
        if endpoints and (endpoints.lbaas_spec, endpoints.lbaas_spec_version) != (spec, version):
            meta = {
                "uid": endpoints.uid,
                "annotations": {LBAAS_SPEC: spec, LBAAS_SPEC_VERSION: version},
            }
            await self._endpoints.patch(key, meta)

    def about(self, key: Key) -> Reference | None:
        return service_reference(self._context.informers.of(SERVICES).get(key))


def _of_service(key: Key, _old: Service | None, _new: Service | None) -> Iterable[Key]:
    return (key,)


def _of_endpoints(key: Key, old: Endpoints | None, new: Endpoints | None) -> Iterable[Key]:
    """Ignore changes to the state annotation."""

    def matters(endpoints: Endpoints | None) -> object:
        return endpoints and (endpoints.uid, endpoints.lbaas_spec, endpoints.lbaas_spec_version)

    return () if matters(old) == matters(new) else (key,)
