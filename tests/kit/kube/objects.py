"""Manifests of what tests need."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]

_PLURALS = {
    "Endpoints": "endpoints", "Ingress": "ingresses", "NetworkPolicy": "networkpolicies",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "NetworkAttachmentDefinition": "network-attachment-definitions",
    "RuntimeClass": "runtimeclasses", "IngressClass": "ingressclasses",
}  # fmt: skip
_OF_CLUSTER = {
    "Namespace", "Node", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "KuryrPortPool",
    "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ResourceSlice",
    "RuntimeClass", "IngressClass", "L7Router",
}  # fmt: skip


def path_of(obj: Json) -> str:
    """The path of an object, by its kind and name; the collection's if it has no name."""
    group, kind, metadata = obj["apiVersion"], obj["kind"], obj.get("metadata", {})
    parts = ["/apis" if "/" in group else "/api", group]
    if kind not in _OF_CLUSTER:
        parts += ["namespaces", metadata["namespace"]]
    parts.append(_PLURALS.get(kind, f"{kind.lower()}s"))
    return "/".join([*parts, *([metadata["name"]] if "name" in metadata else [])])


def make_neutron_port(
    name: str, namespace: str, *, labels: dict[str, str] | None = None, **spec: Any
) -> Json:
    """A NeutronPort."""
    return {
        "apiVersion": "openstack.org/v1",
        "kind": "NeutronPort",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": spec,
    }


def make_neutron_port_pool(
    name: str, namespace: str, *, labels: dict[str, str] | None = None, **spec: Any
) -> Json:
    """A NeutronPortPool whose NeutronPorts have these labels."""
    template = spec.setdefault("template", {})
    template["metadata"] = {"labels": labels or {}}
    return {
        "apiVersion": "openstack.org/v1",
        "kind": "NeutronPortPool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def make_pod(
    name: str,
    namespace: str = "default",
    *,
    node: str | None = None,
    host_network: bool = False,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A Pod that the server accepts; with `node` it is scheduled from its birth."""
    container = {"name": "main", "image": "example.invalid/nothing:1"}
    body = {"containers": [container], "terminationGracePeriodSeconds": 0, **spec}
    if node is not None:
        body["nodeName"] = node
    if host_network:
        body["hostNetwork"] = True
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | {"annotations": annotations or {}, "labels": labels or {}},
        "spec": body,
    }


def make_network_attachment(
    name: str,
    namespace: str | None = None,
    *,
    kuryr: Json | None = None,
    config: Json | None = None,
) -> Json:
    """A NetworkAttachmentDefinition, in that namespace or in the one that kubectl is told.

    `kuryr` is what it says of Neutron; `config` is the configuration of its plugin.
    """
    annotations = {} if kuryr is None else {"openstack.org/kuryr-config": json.dumps(kuryr)}
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": metadata | {"annotations": annotations},
    } | ({"spec": {"config": json.dumps(config)}} if config is not None else {})


def make_node(
    name: str,
    *,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    addresses: tuple[str, ...] = (),
) -> Json:
    """A Node that says it is ready."""
    metadata = {"name": name, "annotations": annotations or {}, "labels": labels or {}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "status": {
            "addresses": [{"type": "InternalIP", "address": address} for address in addresses],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def make_namespace(name: str, **metadata: Any) -> Json:
    """A Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}


def make_binding(pod: Json, node: str) -> Json:
    """What the scheduler POSTs to the Pod's subresource `binding`."""
    metadata = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def make_service(
    name: str,
    *ports: tuple[Any, ...],
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A Service with a selector; ports are (name, number) or (name, number, protocol)."""
    body = {"selector": {"app": name}, "ports": [_port(*port) for port in ports], **spec}
    metadata = {"name": name, "namespace": namespace}
    metadata |= {"labels": labels or {}, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": body}


def make_ingress(
    name: str,
    *rules: Json,
    namespace: str = "default",
    class_name: str | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    """An Ingress; rules are of :func:`ingress_rule`."""
    metadata = {"name": name, "namespace": namespace, "annotations": annotations or {}}
    body = {"rules": list(rules), **spec} if rules else spec
    if class_name is not None:
        body |= {"ingressClassName": class_name}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": metadata,
        "spec": body,
    }


def ingress_rule(host: str, *paths: tuple[str, str, Any]) -> Json:
    """A rule; paths are (type, path, backend)."""
    rule: Json = {"host": host} if host else {}
    if paths:
        rule["http"] = {
            "paths": [
                {"pathType": kind, "path": path, "backend": backend}
                for kind, path, backend in paths
            ]
        }
    return rule


def ingress_rules(rules: Iterable[Any]) -> list[Json]:
    """Rules from (host, (type, path, service)…), each to port 80 of the service."""
    return [
        ingress_rule(host, *((kind, path, ingress_backend(to, 80)) for kind, path, to in paths))
        for host, *paths in rules
    ]


def ingress_backend(service: str, port: int | str) -> Json:
    """A backend; the port is its number or its name."""
    named = {"number": port} if isinstance(port, int) else {"name": port}
    return {"service": {"name": service, "port": named}}


def make_l7_router(name: str, **spec: Any) -> Json:
    """An L7Router."""
    return {
        "apiVersion": "openstack.org/v1",
        "kind": "L7Router",
        "metadata": {"name": name},
        "spec": spec,
    }


def make_ingress_class(
    name: str, controller: str, *, is_default: bool = False, parameters: Json | None = None
) -> Json:
    """An IngressClass."""
    marks = {"ingressclass.kubernetes.io/is-default-class": "true"} if is_default else {}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IngressClass",
        "metadata": {"name": name, "annotations": marks},
        "spec": {"controller": controller, "parameters": parameters},
    }


def make_endpoints(name: str, namespace: str = "default") -> Json:
    """Endpoints without addresses."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata}


def make_endpointslice(
    name: str,
    service: str,
    endpoints: tuple[Any, ...],
    ports: list[tuple[Any, ...]],
    *,
    namespace: str = "default",
    family: str = "IPv4",
) -> Json:
    """A slice of the Service; endpoints are addresses of Pods that are ready, or (address,
    conditions), or (address, conditions, Pod)."""
    named = [
        endpoint if isinstance(endpoint, tuple) else (endpoint, {"ready": True})
        for endpoint in endpoints
    ]
    labels = {"kubernetes.io/service-name": service}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "addressType": family,
        "ports": [_port(*port) for port in ports],
        "endpoints": [
            {
                "addresses": [address],
                "conditions": conditions,
                "targetRef": _reference(address, *pod),
            }
            for address, conditions, *pod in named
        ],
    }


def _reference(address: str, pod: Json | None = None) -> Json:
    """What an endpoint says of its Pod."""
    if pod is None:
        return {"kind": "Pod", "name": f"pod-{address.replace(':', '-')}"}
    metadata = pod["metadata"]
    return {"kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}


def _port(name: str | None, number: int, protocol: str = "TCP") -> Json:
    port = {"port": number, "protocol": protocol}
    return port | {"name": name} if name else port
