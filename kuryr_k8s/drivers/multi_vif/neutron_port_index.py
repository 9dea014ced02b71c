"""NeutronPorts by what Pods find them by, so that a Pod is compared with few of them."""

from collections import defaultdict
from collections.abc import Collection

from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.neutronport import NeutronPort


class NeutronPortIndex:
    """The NeutronPorts of the cache, by their namespaces, and by the Pods that have them."""

    def __init__(self, ports: Informer[NeutronPort]) -> None:
        self._by_namespace: defaultdict[str, dict[str, NeutronPort]] = defaultdict(dict)
        self._by_pod: defaultdict[str, dict[Key, NeutronPort]] = defaultdict(dict)
        ports.subscribe(self._changed)

    def in_namespace(self, namespace: str) -> Collection[NeutronPort]:
        """Return the NeutronPorts of a namespace."""
        return self._by_namespace.get(namespace, {}).values()

    def bound_to(self, pod_uid: str) -> Collection[NeutronPort]:
        """Return the NeutronPorts that a Pod has."""
        return self._by_pod.get(pod_uid, {}).values()

    def named(self, key: Key) -> NeutronPort | None:
        """Return the NeutronPort of a name."""
        return self._by_namespace.get(key.namespace, {}).get(key.name)

    def _changed(self, key: Key, old: NeutronPort | None, new: NeutronPort | None) -> None:
        if old is not None and old.bound_to is not None:
            held = self._by_pod[old.bound_to.uid]
            held.pop(key, None)
            if not held:
                del self._by_pod[old.bound_to.uid]
        if new is None:
            found = self._by_namespace[key.namespace]
            found.pop(key.name, None)
            if not found:
                del self._by_namespace[key.namespace]
            return
        self._by_namespace[key.namespace][key.name] = new
        if new.bound_to is not None:
            self._by_pod[new.bound_to.uid][key] = new
