"""The kinds that we read and write: their URLs, and the views that caches keep of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

from kuryr_k8s.model.ingress import Ingress, IngressClass
from kuryr_k8s.model.kuryrport import KuryrPort
from kuryr_k8s.model.kuryrportpool import KuryrPortPool
from kuryr_k8s.model.l7router import L7RouterObject
from kuryr_k8s.model.neutronport import NeutronPort
from kuryr_k8s.model.neutronportpool import NeutronPortPool
from kuryr_k8s.model.ocp_route import OCPRoute
from kuryr_k8s.model.pod import Namespace, Node, Pod
from kuryr_k8s.model.service import Endpoints, EndpointSlice, Service
from kuryr_k8s.model.tls_secret import TLS_TYPE, TLSSecret


class Key(NamedTuple):
    """The name of an object; below the queue it is all that is left of an event.

    ``namespace`` is empty for cluster-scoped kinds.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Versioned(Protocol):
    """The attributes of an object that a cache needs."""

    @property
    def uid(self) -> str:
        """The object's uid."""

    @property
    def resource_version(self) -> str:
        """The object's resourceVersion."""


T_co = TypeVar("T_co", bound=Versioned, covariant=True)


def _keep_nothing(_item: dict[str, Any]) -> Any:
    raise NotImplementedError("this kind is never cached: its Resource has no view")


@dataclass(frozen=True, slots=True)
class Resource(Generic[T_co]):
    """One kind of the Kubernetes API, declared where it is used.

    :param view: Reads an object into the few fields that a cache keeps of it.
    :param field_selector: Caches keep the objects that it selects.
    :param metadata_only: Lists and watches ask for the objects' metadata only.
    """

    kind: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    metadata_only: bool = False
    field_selector: str = ""
    view: Callable[[dict[str, Any]], T_co] = field(default=_keep_nothing, compare=False)

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of an object."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of an object, or of the collection if ``name`` is empty."""
        root = f"/apis/{self.group}" if self.group else "/api"
        parts = [root, self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts += filter(None, (self.plural, quote(name, safe=":"), subresource))
        return "/".join(parts)


PODS = Resource("Pod", "pods", view=Pod.read)
NODES = Resource("Node", "nodes", namespaced=False, view=Node.read)
NAMESPACES = Resource("Namespace", "namespaces", namespaced=False, view=Namespace.read)
SERVICES = Resource("Service", "services", view=Service.read)
ENDPOINTS = Resource("Endpoints", "endpoints", metadata_only=True, view=Endpoints.read)
ENDPOINTSLICES = Resource(
    "EndpointSlice", "endpointslices", group="discovery.k8s.io", view=EndpointSlice.read
)
SERVICECIDRS: Resource[Any] = Resource(
    "ServiceCIDR", "servicecidrs", group="networking.k8s.io", namespaced=False
)
TLSSECRETS = Resource("Secret", "secrets", field_selector=f"type={TLS_TYPE}", view=TLSSecret.read)
CONFIGMAPS: Resource[Any] = Resource("ConfigMap", "configmaps")
INGRESSES = Resource("Ingress", "ingresses", group="networking.k8s.io", view=Ingress.read)
INGRESSCLASSES = Resource(
    "IngressClass",
    "ingressclasses",
    group="networking.k8s.io",
    namespaced=False,
    view=IngressClass.read,
)
L7ROUTERS = Resource(
    "L7Router", "l7routers", group="openstack.org", namespaced=False, view=L7RouterObject.read
)
ROUTES = Resource("Route", "routes", group="route.openshift.io", view=OCPRoute.read)
EVENTS: Resource[Any] = Resource("Event", "events", group="events.k8s.io")
LEASES: Resource[Any] = Resource("Lease", "leases", group="coordination.k8s.io")
IPAMCLAIMS: Resource[Any] = Resource(
    "IPAMClaim", "ipamclaims", group="k8s.cni.cncf.io", version="v1alpha1"
)
RESOURCECLAIMS: Resource[Any] = Resource(
    "ResourceClaim", "resourceclaims", group="resource.k8s.io"
)
RESOURCESLICES: Resource[Any] = Resource(
    "ResourceSlice", "resourceslices", group="resource.k8s.io", namespaced=False
)
KURYRPORTS = Resource("KuryrPort", "kuryrports", group="openstack.org", view=KuryrPort.read)
NEUTRONPORTS = Resource(
    "NeutronPort", "neutronports", group="openstack.org", view=NeutronPort.read
)
NEUTRONPORTPOOLS = Resource(
    "NeutronPortPool", "neutronportpools", group="openstack.org", view=NeutronPortPool.read
)
KURYRPORTPOOLS = Resource(
    "KuryrPortPool",
    "kuryrportpools",
    group="openstack.org",
    namespaced=False,
    view=KuryrPortPool.read,
)
