"""Services, as users make them; EndpointSlices and Endpoints, as kube-controller-manager does."""

from __future__ import annotations

from typing import Any

from tests.kit.kube.objects import make_endpoints, make_endpointslice, make_service

Json = dict[str, Any]
PORT = ("http", 80)


def service(name: str, namespace: str) -> Json:
    """One with a selector and one port."""
    return make_service(name, PORT, namespace=namespace)


def addresses(number: int) -> tuple[str, ...]:
    """Of so many Pods, in the Pods' subnet."""
    return tuple(f"10.64.{1 + i // 200}.{1 + i % 200}" for i in range(number))


def slice_of(name: str, namespace: str, endpoints: int) -> Json:
    """The Service's EndpointSlice, with so many Pods that are ready."""
    return make_endpointslice(name, name, addresses(endpoints), [PORT], namespace=namespace)


def endpoints_of(name: str, namespace: str, endpoints: int) -> Json:
    """Endpoints that say the same."""
    some = [
        {"ip": one, "targetRef": {"kind": "Pod", "name": f"pod-{one}", "namespace": namespace}}
        for one in addresses(endpoints)
    ]
    subset = {"addresses": some, "ports": [{"name": PORT[0], "port": PORT[1], "protocol": "TCP"}]}
    return make_endpoints(name, namespace) | {"subsets": [subset]}
