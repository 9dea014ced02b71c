"""EndpointSlices by Service."""

from collections.abc import Iterable

from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.service import EndpointSlice


class ServiceSlices:
    """EndpointSlices of all Services."""

    def __init__(self, cache: Informer[EndpointSlice]) -> None:
        self._cache = cache
        self._keys: dict[Key, set[Key]] = {}  # of each Service's

    def __contains__(self, service: Key) -> bool:
        """Return whether the Service has a slice, even an empty one."""
        return service in self._keys

    def of(self, service: Key) -> list[EndpointSlice]:
        """Return the Service's slices for those who serve ClusterIPs."""
        return [each for each in self.every(service) if not each.of_others]

    def every(self, service: Key) -> list[EndpointSlice]:
        """Return all of the Service's slices."""
        found = (self._cache.get(key) for key in self._keys.get(service, ()))
        return [each for each in found if each is not None]

    def keys_of(self, service: Key) -> frozenset[Key]:
        """Return the keys of all of the Service's slices."""
        return frozenset(self._keys.get(service, ()))

    def changed(
        self, key: Key, old: EndpointSlice | None, new: EndpointSlice | None
    ) -> Iterable[Key]:
        """Note a change; yield the Services that it concerns. A slice may change hands."""
        for each in filter(None, (old, new)):
            service = Key(each.namespace, each.service)
            if each is new:
                self._keys.setdefault(service, set()).add(key)
            elif new is None or new.service != each.service:
                known = self._keys.get(service, set())
                known.discard(key)
                if not known:
                    self._keys.pop(service, None)
            if _essence_of(old) != _essence_of(new):
                yield service


def _essence_of(found: EndpointSlice | None) -> object:
    """Return what concerns load balancers; annotations of Endpoints, for example, do not."""
    return found and (
        found.service,
        found.family,
        found.ports,
        found.endpoints,
        found.of_others,
    )
