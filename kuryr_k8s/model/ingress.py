"""Views of Ingresses and IngressClasses for the caches.

https://kubernetes.io/docs/concepts/services-networking/ingress/
"""

import sys
from dataclasses import dataclass
from typing import Any, Self

from kuryr_k8s.model.annotations import annotation
from kuryr_k8s.model.service import ingress_text

Json = dict[str, Any]
CLASS_ANNOTATION = "kubernetes.io/ingress.class"  # older than the field of the specification
DEFAULT_CLASS_ANNOTATION = "ingressclass.kubernetes.io/is-default-class"
EXACT = "Exact"
# The annotations by which users of other controllers say what the specification cannot.
NGINX, OCTAVIA = "nginx.ingress.kubernetes.io/", "octavia.ingress.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class ServiceBackend:
    """A backend of an Ingress.

    :param port: the name or the number of the Service's port, as text.
    """

    service: str
    port: str


@dataclass(frozen=True, slots=True)
class IngressPath:
    """A path of a rule.

    :param backend: None if it is no Service.
    """

    path: str
    path_type: str
    backend: ServiceBackend | None


@dataclass(frozen=True, slots=True)
class IngressRule:
    """A rule of an Ingress.

    :param paths: empty if all requests to the host are the default backend's.
    """

    host: str
    paths: tuple[IngressPath, ...]


@dataclass(frozen=True, slots=True)
class IngressTLS:
    """Hosts of an Ingress that are served over TLS.

    :param hosts: in lower case; empty for all hosts of its rules.
    :param secret: the name of the Secret with the certificate; empty for that of the router.
    """

    hosts: tuple[str, ...]
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingress:
    """An Ingress, reduced to what decides about its routes.

    :param class_name: what names its class: the field, or else the annotation; None: nothing.
    :param has_default: it has a default backend, even if that is no Service.
    :param tls: what it asks for of TLS.
    :param annotations: those for other controllers, sorted by name.
    :param created: RFC 3339.
    :param ingress: the ingress of its status, as :func:`ingress_text` returns it.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    class_name: str | None
    has_default: bool
    default_backend: ServiceBackend | None
    rules: tuple[IngressRule, ...]
    tls: tuple[IngressTLS, ...]
    annotations: tuple[tuple[str, str], ...]
    created: str
    deleting: bool
    ingress: str

    @classmethod
    def read(cls, item: Json) -> Self:
        """Read an Ingress from the API's JSON."""
        meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
        return cls(
            namespace=sys.intern(meta["namespace"]),
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            class_name=spec.get("ingressClassName") or annotation(item, CLASS_ANNOTATION),
            has_default="defaultBackend" in spec,
            default_backend=_backend(spec.get("defaultBackend")),
            rules=tuple(map(_rule, spec.get("rules") or ())),
            tls=tuple(map(_tls, spec.get("tls") or ())),
            annotations=tuple(
                (sys.intern(name), str(text))
                for name, text in sorted((meta.get("annotations") or {}).items())
                if name.startswith((NGINX, OCTAVIA))
            ),
            created=meta.get("creationTimestamp") or "",
            deleting="deletionTimestamp" in meta,
            ingress=ingress_text((status.get("loadBalancer") or {}).get("ingress") or ()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressClass:
    """An IngressClass.

    :param controller: who serves its Ingresses.
    :param router: the name of the L7Router that is its parameters; empty if it has none.
    :param is_understood: it has no other parameters.
    """

    name: str
    uid: str
    resource_version: str
    controller: str
    is_default: bool
    router: str
    is_understood: bool

    @classmethod
    def read(cls, item: Json) -> Self:
        """Read an IngressClass from the API's JSON."""
        meta, spec = item["metadata"], item.get("spec") or {}
        parameters = spec.get("parameters")
        router = _router(parameters or {})
        return cls(
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            controller=spec.get("controller") or "",
            is_default=annotation(item, DEFAULT_CLASS_ANNOTATION) == "true",
            router=router,
            is_understood=bool(router) or parameters is None,
        )


def _router(parameters: Json) -> str:
    """Return the name of the L7Router that is the parameters of a class; empty for others."""
    kind = (parameters.get("apiGroup"), parameters.get("kind"), parameters.get("scope", "Cluster"))
    return parameters.get("name", "") if kind == ("openstack.org", "L7Router", "Cluster") else ""


def _rule(item: Json) -> IngressRule:
    paths = (item.get("http") or {}).get("paths") or ()
    return IngressRule(
        item.get("host") or "",
        tuple(
            IngressPath(
                each.get("path") or "/", sys.intern(each["pathType"]), _backend(each["backend"])
            )
            for each in paths
        ),
    )


def _tls(item: Json) -> IngressTLS:
    hosts = tuple(host.lower() for host in item.get("hosts") or ())
    return IngressTLS(hosts, item.get("secretName") or "")


def _backend(item: Json | None) -> ServiceBackend | None:
    service = (item or {}).get("service")
    if service is None:
        return None
    port = service.get("port") or {}
    return ServiceBackend(service["name"], str(port.get("name") or port.get("number")))
