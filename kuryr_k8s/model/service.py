"""Views of Services, EndpointSlices and Endpoints for the caches."""

import hashlib
import ipaddress
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from kuryr_k8s.model import annotations, service_annotations
from kuryr_k8s.model.annotations import annotation

Json = dict[str, Any]
CLUSTER_IP = "ClusterIP"
EXTERNAL_NAME = "ExternalName"
LOAD_BALANCER = "LoadBalancer"
HEADLESS = "None"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePort:
    """A port of a Service.

    :param target_port: a number or a name, as text; the slices know the numbers.
    :param node_port: the port at every node; None if there is none.
    """

    name: str
    protocol: str
    port: int
    target_port: str
    node_port: int | None = None

    @classmethod
    def read(cls, item: Json) -> Self:
        return cls(
            name=sys.intern(item.get("name") or ""),
            protocol=sys.intern(item.get("protocol") or "TCP"),
            port=item["port"],
            target_port=str(item.get("targetPort") or item["port"]),
            node_port=item.get("nodePort"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition (metav1.Condition), ours or another controller's."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str
    observed_generation: int | None = None

    @classmethod
    def read(cls, item: Json) -> Self:
        return cls(
            type=item["type"],
            status=item["status"],
            reason=item.get("reason") or "",
            message=item.get("message") or "",
            last_transition_time=item.get("lastTransitionTime") or "",
            observed_generation=item.get("observedGeneration"),
        )

    def to_json(self) -> Json:
        found = {
            "type": self.type,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": self.last_transition_time,
            "observedGeneration": self.observed_generation,
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A Service, reduced to what decides about its load balancer.

    :param cluster_ips: canonical, in the order of ``ip_families``; empty where there are none.
    :param session_timeout: seconds of ``sessionAffinity: ClientIP``, else None.
    :param selector: labels of the Pods that it selects; empty if it selects none.
    :param traffic_local: ``internalTrafficPolicy: Local``.
    :param of_others: its labels say that it is not ours to serve.
    :param annotations: those in ``service_annotations.NAMES``: of users, and our answers.
    :param lbaas_spec: the annotation's text, like ``lbaas_spec_version``.
    :param lbaas_state: digest of the state annotations, see :func:`digest`.
    :param ingress: the ingress of its status, as :func:`ingress_text` returns it.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    type: str
    cluster_ips: tuple[str, ...]
    ip_families: tuple[str, ...]
    headless: bool
    ports: tuple[ServicePort, ...]
    selector: tuple[tuple[str, str], ...]
    session_timeout: int | None
    publish_not_ready_addresses: bool
    load_balancer_class: str | None
    load_balancer_ip: str | None
    source_ranges: tuple[str, ...]
    external_ips: tuple[str, ...]
    traffic_local: bool
    traffic_distribution: str | None
    of_others: bool
    deleting: bool
    finalizers: tuple[str, ...]
    annotations: tuple[tuple[str, str], ...]
    lbaas_spec: str | None
    lbaas_spec_version: str | None
    lbaas_state: str | None
    ingress: str
    conditions: tuple[Condition, ...]

    @classmethod
    def read(cls, item: Json) -> Self:
        meta, spec, status = item["metadata"], item["spec"], item.get("status") or {}
        addresses = spec.get("clusterIPs") or [spec.get("clusterIP") or ""]
        labels = meta.get("labels") or {}
        affine = spec.get("sessionAffinity") == "ClientIP"
        client_ip = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        return cls(
            namespace=sys.intern(meta["namespace"]),
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            type=sys.intern(spec.get("type") or CLUSTER_IP),
            cluster_ips=tuple(
                canonical(address) for address in addresses if address not in ("", HEADLESS)
            ),
            ip_families=tuple(map(sys.intern, spec.get("ipFamilies") or ())),
            headless=HEADLESS in addresses,
            ports=tuple(ServicePort.read(port) for port in spec.get("ports") or ()),
            selector=tuple(sorted((spec.get("selector") or {}).items())),
            session_timeout=client_ip.get("timeoutSeconds") if affine else None,
            publish_not_ready_addresses=bool(spec.get("publishNotReadyAddresses")),
            load_balancer_class=spec.get("loadBalancerClass"),
            load_balancer_ip=spec.get("loadBalancerIP") or None,
            source_ranges=tuple(spec.get("loadBalancerSourceRanges") or ()),
            external_ips=tuple(spec.get("externalIPs") or ()),
            traffic_local=spec.get("internalTrafficPolicy") == "Local",
            traffic_distribution=spec.get("trafficDistribution"),
            of_others=_is_of_others(labels),
            deleting="deletionTimestamp" in meta,
            finalizers=tuple(map(sys.intern, meta.get("finalizers") or ())),
            annotations=tuple(
                (sys.intern(name), str(text))
                for name, text in sorted((meta.get("annotations") or {}).items())
                if name in service_annotations.NAMES
            ),
            lbaas_spec=annotation(item, annotations.LBAAS_SPEC),
            lbaas_spec_version=annotation(item, annotations.LBAAS_SPEC_VERSION),
            lbaas_state=_state_digest(item),
            ingress=ingress_text((status.get("loadBalancer") or {}).get("ingress") or ()),
            conditions=tuple(map(Condition.read, status.get("conditions") or ())),
        )

    @property
    def has_selector(self) -> bool:
        """Return whether Kubernetes makes its slices."""
        return bool(self.selector)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPort:
    """A port of an EndpointSlice."""

    name: str
    protocol: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint.

    :param address: the first one, canonical; to Kubernetes, all of an endpoint are the same.
    :param pod: name of its Pod, in the slice's namespace; None if it is no Pod.
    :param pod_uid: the uid of a Pod that is not Ready: its gate may be ours to decide.
    """

    address: str
    ready: bool
    serving: bool
    terminating: bool
    pod: str | None
    node: str | None
    pod_uid: str | None = None

    @classmethod
    def read(cls, item: Json) -> Self:
        """Read an endpoint; conditions that are missing are as the API defines them."""
        conditions = item.get("conditions") or {}
        target = item.get("targetRef") or {}
        node = item.get("nodeName")
        ready, serving = conditions.get("ready"), conditions.get("serving")
        serving = (ready is not False) if serving is None else serving
        is_pod = target.get("kind") == "Pod"
        return cls(
            address=canonical(item["addresses"][0]),
            ready=ready is not False,
            serving=serving,
            terminating=bool(conditions.get("terminating")),
            pod=target.get("name") if is_pod else None,
            node=sys.intern(node) if node else None,
            pod_uid=target.get("uid") if is_pod and not serving else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSlice:
    """A part of a Service's endpoints, of one address family (``IPv4`` or ``IPv6``).

    All endpoints of a slice listen on all of its ports; another slice may have other ports.

    :param of_others: its labels keep it from those who serve ClusterIPs, as a Service's may.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    service: str
    family: str
    ports: tuple[EndpointPort, ...]
    endpoints: tuple[Endpoint, ...]
    of_others: bool = False

    @classmethod
    def read(cls, item: Json) -> Self:
        meta = item["metadata"]
        labels = meta.get("labels") or {}
        family = sys.intern(item["addressType"])
        used = family in ("IPv4", "IPv6")  # else they are names of hosts, which nobody uses
        return cls(
            namespace=sys.intern(meta["namespace"]),
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            service=labels.get(annotations.SERVICE_NAME_LABEL, ""),
            family=family,
            ports=tuple(
                EndpointPort(
                    name=sys.intern(port.get("name") or ""),
                    protocol=sys.intern(port.get("protocol") or "TCP"),
                    port=port["port"],
                )
                for port in item.get("ports") or ()
                if port.get("port")
            ),
            endpoints=tuple(map(Endpoint.read, item.get("endpoints") or ())) if used else (),
            of_others=_is_of_others(labels),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Annotations of a Service's Endpoints; the slices have the addresses."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    lbaas_spec: str | None
    lbaas_spec_version: str | None
    lbaas_state: str | None

    @classmethod
    def read(cls, item: Json) -> Self:
        meta = item["metadata"]
        return cls(
            namespace=sys.intern(meta["namespace"]),
            name=meta["name"],
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            lbaas_spec=annotation(item, annotations.LBAAS_SPEC),
            lbaas_spec_version=annotation(item, annotations.LBAAS_SPEC_VERSION),
            lbaas_state=_state_digest(item),
        )


def _is_of_others(labels: Json) -> bool:
    """Return whether labels keep a Service or a slice from those who serve ClusterIPs."""
    return not labels.keys().isdisjoint((annotations.PROXY_NAME_LABEL, annotations.HEADLESS_LABEL))


def canonical(address: str) -> str:
    """Return the address as OpenStack writes it. Kubernetes has accepted leading zeros."""
    try:
        if ":" not in address:
            address = ".".join(str(int(part)) for part in address.split("."))
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address  # OpenStack will say what is wrong with it


def digest(state: str, cut: str | None) -> str:
    """Return a digest that stands for a state in the caches; the state may be long.

    :param cut: the annotation that says how many members are left out, if any are.
    """
    return hashlib.blake2b(f"{cut or ''} {state}".encode(), digest_size=16).hexdigest()


def ingress_text(ingress: Sequence[Json]) -> str:
    """Return ``status.loadBalancer.ingress`` as text for comparisons; empty if there is none."""
    return json.dumps(list(ingress), sort_keys=True) if ingress else ""


def _state_digest(item: Json) -> str | None:
    state = annotation(item, annotations.LBAAS_STATE)
    cut = annotation(item, annotations.LBAAS_STATE_CUT)
    return None if state is None and cut is None else digest(state or "", cut)
