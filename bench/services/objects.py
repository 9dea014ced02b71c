"""Services of users, and the EndpointSlices and Endpoints of kube-controller-manager."""

from __future__ import annotations

from typing import Any

from tests.kit.kube.objects import make_endpoints, make_endpointslice, make_service

Json = dict[str, Any]
PORT = ("http", 80)
IN_A_SLICE, IN_ENDPOINTS = 100, 1000  # addresses; Kubernetes' controllers write no more


def service(name: str, namespace: str) -> Json:
    """Return a Service with a selector and one port."""
    return make_service(name, PORT, namespace=namespace)


def addresses(number: int) -> tuple[str, ...]:
    """Return the addresses of so many Pods, in the Pods' subnet."""
    return tuple(f"10.64.{1 + i // 200}.{1 + i % 200}" for i in range(number))


def slices_of(name: str, namespace: str, endpoints: int) -> list[Json]:
    """Return the Service's EndpointSlices with so many ready Pods; one at the least."""
    every = addresses(endpoints)
    return [
        make_endpointslice(
            f"{name}-{start // IN_A_SLICE}",
            name,
            every[start : start + IN_A_SLICE],
            [PORT],
            namespace=namespace,
        )
        for start in range(0, max(endpoints, 1), IN_A_SLICE)
    ]


def endpoints_of(name: str, namespace: str, endpoints: int) -> Json:
    """Return the Service's Endpoints with the same Pods, as far as Kubernetes lists them."""
    pods = [
        {
            "ip": address,
            "targetRef": {"kind": "Pod", "name": f"pod-{address}", "namespace": namespace},
        }
        for address in addresses(min(endpoints, IN_ENDPOINTS))
    ]
    subset = {"addresses": pods, "ports": [{"name": PORT[0], "port": PORT[1], "protocol": "TCP"}]}
    return make_endpoints(name, namespace) | {"subsets": [subset]}
