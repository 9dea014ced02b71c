"""View of OpenShift's Routes for the caches.

https://docs.openshift.com/container-platform/latest/rest_api/network_apis/route-route-openshift-io-v1.html
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from kuryr_k8s.model.ocp_route_shape import SPEC, STATUS, flaw_of

Json = dict[str, Any]
HAPROXY, ROUTER = "haproxy.router.openshift.io/", "router.openshift.io/"
GENERATED = "openshift.io/host.generated"  # the annotation beside a host that nobody chose
SERVICE = "Service"
DEFAULT_WEIGHT = 100
LONGEST_VALUE = 100  # characters of an annotation; users may write 256 KiB
LONGEST = 65536  # characters of a text in PEM: more is no certificate


@dataclass(frozen=True, slots=True)
class RouteTarget:
    """A backend of a Route."""

    kind: str
    name: str
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTLS:
    """TLS of a Route.

    :param certificate: like ``authorities`` and ``key``, in PEM; empty if there is none, and
        :const:`TOO_LONG` if it can be none.
    :param secret: the name of a Secret with the certificate; empty for none.
    :param insecure: what becomes of requests in plain HTTP.
    :param destination: certificates of CAs, by which those of the Pods are verified, in PEM.
    """

    termination: str
    insecure: str
    certificate: str
    authorities: str
    key: str = field(repr=False)
    secret: str
    destination: str


TOO_LONG = "too long"


@dataclass(frozen=True, slots=True, kw_only=True)
class OCPRoute:
    """A Route, reduced to what decides about its routes.

    :param host: in lower case, like ``subdomain``; empty if nobody has chosen one.
    :param targets: ``to``, and ``alternateBackends``.
    :param target_port: the name or the number of the port, as text; empty for any.
    :param has_headers: it changes headers.
    :param labels: sorted by name, like the annotations for routers.
    :param created: RFC 3339.
    :param flaw: why nothing of its specification is here; empty if it is.
    :param ingress: the list in its status, as :func:`ingress_text` returns it.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    host: str
    subdomain: str
    path: str
    targets: tuple[RouteTarget, ...]
    target_port: str
    wildcard_policy: str
    tls: RouteTLS | None
    has_headers: bool
    labels: tuple[tuple[str, str], ...]
    annotations: tuple[tuple[str, str], ...]
    created: str
    deleting: bool
    flaw: str
    ingress: str

    @classmethod
    def read(cls, item: Json) -> Self:
        """Read a Route from the API's JSON."""
        meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
        if flaw := flaw_of(spec, SPEC, "spec"):
            spec = {}
        if flaw_of(status, STATUS, "status"):
            status = {}
        targets = [spec.get("to") or {}, *(spec.get("alternateBackends") or ())]
        target_port = (spec.get("port") or {}).get("targetPort")
        return cls(
            namespace=sys.intern(meta["namespace"]),
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            host=(spec.get("host") or "").lower(),
            subdomain=(spec.get("subdomain") or "").lower(),
            path=spec.get("path") or "",
            targets=tuple(map(_target, targets)),
            target_port="" if target_port is None else str(target_port),
            wildcard_policy=sys.intern(spec.get("wildcardPolicy") or "None"),
            tls=_tls(spec["tls"]) if spec.get("tls") is not None else None,
            has_headers=bool((spec.get("httpHeaders") or {}).get("actions")),
            labels=_pairs(meta.get("labels")),
            annotations=tuple(
                (name, _beginning(text))
                for name, text in _pairs(meta.get("annotations"))
                if name.startswith(ROUTERS)
            ),
            created=meta.get("creationTimestamp") or "",
            deleting="deletionTimestamp" in meta,
            flaw=flaw,
            ingress=ingress_text(status.get("ingress") or ()),
        )

    @property
    def essence(self) -> Self:
        """The Route as far as it decides about its routes."""
        return dataclasses.replace(self, resource_version="", ingress="")


ROUTERS = (HAPROXY, ROUTER)


def ingress_text(ingress: Sequence[Json]) -> str:
    """Return ``status.ingress`` as text for comparisons; empty if there is none."""
    return json.dumps(list(ingress), sort_keys=True) if ingress else ""


def _target(item: Json) -> RouteTarget:
    weight = item.get("weight")
    return RouteTarget(
        kind=sys.intern(item.get("kind") or SERVICE),
        name=item.get("name") or "",
        weight=DEFAULT_WEIGHT if weight is None else weight,
    )


def _tls(item: Json) -> RouteTLS:
    return RouteTLS(
        termination=sys.intern(item.get("termination") or "edge"),
        insecure=sys.intern(item.get("insecureEdgeTerminationPolicy") or "None"),
        certificate=_bounded(item.get("certificate")),
        authorities=_bounded(item.get("caCertificate")),
        key=_bounded(item.get("key")),
        secret=(item.get("externalCertificate") or {}).get("name") or "",
        destination=_bounded(item.get("destinationCACertificate")),
    )


def _bounded(text: str | None) -> str:
    return TOO_LONG if len(text or "") > LONGEST else (text or "").strip()


def _beginning(text: str) -> str:
    """Return what is kept of an annotation's value: no value that means something is longer."""
    return text if len(text) <= LONGEST_VALUE else text.strip()[:LONGEST_VALUE]


def _pairs(items: Json | None) -> tuple[tuple[str, str], ...]:
    return tuple((sys.intern(name), str(text)) for name, text in sorted((items or {}).items()))
