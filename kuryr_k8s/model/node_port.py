"""What the nodes' daemons read of Services: where to lead connections to node ports."""

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from kuryr_k8s.model.service import Service
from kuryr_k8s.model.service_class import Classes, is_handled

# Asked of the API server, so that a node hears of no others: only these types have node ports.
WITH_NODE_PORTS = {"fieldSelector": "spec.type!=ClusterIP,spec.type!=ExternalName"}


class NodePort(NamedTuple):
    """Connections to ``port`` of a node go to ``target`` of ``address``, a ClusterIP.

    :param protocol: TCP, UDP or SCTP.
    """

    protocol: str
    port: int
    address: str
    target: int

    @property
    def version(self) -> int:
        """Of IP."""
        return 6 if ":" in self.address else 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAtNodes:
    """A Service, cut down to what a node answers of it.

    :param node_ports: one for each port and ClusterIP; empty where the Service is not ours.
    :param health_check_port: where balancers ask a node about the Service, else None.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    node_ports: tuple[NodePort, ...]
    health_check_port: int | None

    @classmethod
    def read(cls, item: dict[str, Any], classes: Classes) -> Self:
        service = Service.read(item)
        ours = is_handled(service, classes)
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
