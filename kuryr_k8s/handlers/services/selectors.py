"""Services by the Pods that they select."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.pod import Pod
from kuryr_k8s.model.service import Service
from kuryr_k8s.model.service_class import is_handled


class _Place(NamedTuple):
    """One label of a selector, under which a Service is filed."""

    namespace: str
    label: tuple[str, str]


class Selectors:
    """Selectors of the Services that are handled; a Pod is compared with few of them."""

    def __init__(self) -> None:
        self._services: defaultdict[_Place, dict[Key, Service]] = defaultdict(dict)

    def note(self, key: Key, old: Service | None, new: Service | None) -> None:
        """Note a change of a Service."""
        before, now = (_place_of(each) for each in (old, new))
        if before is not None and before != now:
            filed = self._services[before]
            filed.pop(key, None)
            if not filed:
                del self._services[before]
        if now is not None and new is not None:
            self._services[now][key] = new

    def of(self, pod: Pod) -> Mapping[Key, Service]:
        """Return the Services whose load balancers the Pod is to be a member of.

        A Service that has no ClusterIP of an address family of the Pod's has no endpoint of it.
        """
        gate = pod.gate
        if gate is None:
            return {}
        places = [_Place(pod.namespace, label) for label in gate.labels]
        return {
            key: service
            for place in places
            for key, service in self._services.get(place, {}).items()
            if gate.labels.issuperset(service.selector) and served(service, pod.addresses)
        }


def served(service: Service, addresses: Iterable[str]) -> list[str]:
    """Return those of a Pod's addresses that are of the Service's address families."""
    families = {":" in cluster_ip for cluster_ip in service.cluster_ips}
    return [address for address in addresses if (":" in address) in families]


def _place_of(service: Service | None) -> _Place | None:
    """Return the place of a Service that selects Pods for load balancers of ours."""
    if service is None or service.deleting or not service.selector or not is_handled(service):
        return None
    return _Place(service.namespace, service.selector[0])
