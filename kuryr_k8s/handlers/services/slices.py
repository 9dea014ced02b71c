"""Which EndpointSlices each Service has."""

from collections.abc import Iterable

from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.service import EndpointSlice


class ServiceSlices:
    def __init__(self, cache: Informer[EndpointSlice]) -> None:
        self._cache = cache
        self._keys: dict[Key, set[Key]] = {}  # of each Service's

    def __contains__(self, service: Key) -> bool:
        """Whether there is any, though it be empty."""
        return service in self._keys

    def of(self, service: Key) -> list[EndpointSlice]:
        found = (self._cache.get(one) for one in self._keys.get(service, ()))
        return [one for one in found if one is not None]

    def changed(
        self, key: Key, old: EndpointSlice | None, new: EndpointSlice | None
    ) -> Iterable[Key]:
        """Told of every change; the Services that it matters to. A slice may change hands."""
        for one in filter(None, (old, new)):
            service = Key(one.namespace, one.service)
            if one is new:
                self._keys.setdefault(service, set()).add(key)
            elif new is None or new.service != one.service:
                known = self._keys.get(service, set())
                known.discard(key)
                if not known:
                    self._keys.pop(service, None)
            if _what_matters_of(old) != _what_matters_of(new):
                yield service


def _what_matters_of(one: EndpointSlice | None) -> object:
    """Kubernetes copies annotations of Endpoints to slices, among others."""
    return one and (one.service, one.family, one.ports, one.endpoints)
