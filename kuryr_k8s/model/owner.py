"""Owners of load balancers and of public addresses."""

import enum
from dataclasses import dataclass


class Role(enum.StrEnum):
    """Uses of a load balancer, or of a public address, for its owner."""

    FIRST = "first"  # serves the first ClusterIP; also the role of the Service's public address
    SECOND = "second"  # serves the second ClusterIP of a dual-stack Service
    EXTERNAL = "external"  # has a VIP that is not a ClusterIP
    EXTERNAL_SECOND = "external-second"  # has such a VIP of the other address family
    SHARED = "shared"  # listeners and pools in the load balancer of another owner
    POD = "pod"  # the owner is a Pod, and has a public address
    NEUTRON_PORT = "neutron-port"  # the owner is a NeutronPort, and has a public address
    L7_ROUTER = "l7-router"  # the owner is an L7 router, by default the cluster's own


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """Owner of one load balancer, of parts of another one, or of a public address.

    :param uid: the Service's, the NeutronPort's or the L7Router's, or the Pod's identity; of the
        cluster's own L7 router, the cluster's.
    """

    uid: str
    role: Role = Role.FIRST

    @property
    def is_service(self) -> bool:
        """True if the owner is a Service."""
        return self.role not in (Role.POD, Role.NEUTRON_PORT, Role.L7_ROUTER)

    def __str__(self) -> str:
        """Describe the owner in log messages."""
        return self.uid if self.role is Role.FIRST else f"{self.uid} ({self.role})"
