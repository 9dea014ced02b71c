"""The kinds that we read and write, and their URLs: nothing else builds a path."""

from dataclasses import dataclass
from typing import NamedTuple


class Key(NamedTuple):
    """The name of an object; below the queue it is all that is left of an event.

    ``namespace`` is empty for cluster-scoped kinds.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of the Kubernetes API.

    ``metadata_only``: that alone is asked for where it is listed and watched.
    """

    kind: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    metadata_only: bool = False

    @property
    def api_version(self) -> str:
        """``apiVersion`` as it stands in an object."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of an object, or of the collection where ``name`` is empty."""
        root = f"/apis/{self.group}" if self.group else "/api"
        parts = [root, self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts += filter(None, (self.plural, name, subresource))
        return "/".join(parts)


PODS = Resource("Pod", "pods")
NODES = Resource("Node", "nodes", namespaced=False)
NAMESPACES = Resource("Namespace", "namespaces", namespaced=False)
SERVICES = Resource("Service", "services")
ENDPOINTS = Resource("Endpoints", "endpoints", metadata_only=True)
ENDPOINTSLICES = Resource("EndpointSlice", "endpointslices", group="discovery.k8s.io")
SERVICECIDRS = Resource("ServiceCIDR", "servicecidrs", group="networking.k8s.io", namespaced=False)
EVENTS = Resource("Event", "events", group="events.k8s.io")
LEASES = Resource("Lease", "leases", group="coordination.k8s.io")
KURYRPORTS = Resource("KuryrPort", "kuryrports", group="openstack.org")
KURYRPORTPOOLS = Resource(
    "KuryrPortPool", "kuryrportpools", group="openstack.org", namespaced=False
)
