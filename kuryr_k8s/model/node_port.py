"""Node ports of Services, as the nodes' daemons read them."""

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from kuryr_k8s.model.service import EndpointSlice, Service
from kuryr_k8s.model.service_class import is_handled

# The API server sends a node no other Services: only these types have node ports.
WITH_NODE_PORTS = {"fieldSelector": "spec.type!=ClusterIP,spec.type!=ExternalName"}


class NodePort(NamedTuple):
    """A port of every node whose connections are forwarded.

    :param protocol: TCP, UDP or SCTP.
    :param address: the ClusterIP that they are forwarded to.
    :param target: its port.
    """

    protocol: str
    port: int
    address: str
    target: int

    @property
    def version(self) -> int:
        """Return the version of IP."""
        return 6 if ":" in self.address else 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAtNodes:
    """A Service, reduced to what a node does for it.

    :param node_ports: one for each port and ClusterIP; none if the Service is not ours.
    :param health_check_port: the port at which balancers ask a node about the Service, or None.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    node_ports: tuple[NodePort, ...]
    health_check_port: int | None

    @classmethod
    def read(cls, item: dict[str, Any]) -> Self:
        """Read a Service from the API's JSON."""
        service = Service.read(item)
        ours = is_handled(service)
        return cls(
            namespace=service.namespace,
            name=service.name,
            uid=service.uid,
            resource_version=service.resource_version,
            node_ports=tuple(
                NodePort(port.protocol, port.node_port, sys.intern(address), port.port)
                for port in service.ports
                for address in service.cluster_ips
                if ours and port.node_port
            ),
            health_check_port=(item["spec"].get("healthCheckNodePort") or None) if ours else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceAtNodes:
    """An EndpointSlice, reduced to whether any endpoint in it is ready.

    :param service: the name of its Service, in the same namespace.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    service: str
    ready: bool

    @classmethod
    def read(cls, item: dict[str, Any]) -> Self:
        """Read an EndpointSlice from the API's JSON."""
        found = EndpointSlice.read(item)
        return cls(
            namespace=found.namespace,
            name=found.name,
            uid=found.uid,
            resource_version=found.resource_version,
            service=found.service,
            ready=not found.of_others and any(each.ready for each in found.endpoints),
        )
