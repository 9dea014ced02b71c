"""What a load balancer is to be, and what one is found to be in Octavia.

Names are those of the Octavia API v2: https://docs.openstack.org/api-ref/load-balancer/v2/
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

ACTIVE = "ACTIVE"
ERROR = "ERROR"
DELETED = "DELETED"
# fields of a listener; where None is wanted, Octavia has a default of its own
TIMEOUTS = (
    "timeout_client_data",
    "timeout_member_data",
    "timeout_member_connect",
    "timeout_tcp_inspect",
)
LISTENER_LIMITS = (*TIMEOUTS, "connection_limit", "default_tls_container_ref")


class Address(NamedTuple):
    """Identity of a member within its pool: Octavia has no two of the same."""

    address: str
    port: int


class Front(NamedTuple):
    """Identity of a listener within its load balancer."""

    protocol: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """:param subnet_id: where it is reached; None: from the VIP's subnet, through the router.
    :param weight: 0 gets no new connections, and keeps those it has.
    """

    address: str
    port: int
    name: str = ""
    subnet_id: str | None = None
    weight: int = 1

    @property
    def key(self) -> Address:
        return Address(self.address, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthMonitor:
    """How Octavia asks members whether they are well. A pool has one at the most.

    :param type: TCP, UDP-CONNECT, SCTP, HTTP, ...
    :param delay: seconds between two questions.
    :param timeout: seconds for an answer, not more than ``delay``.
    :param max_retries: good answers until a member is ONLINE, 1 to 10.
    :param max_retries_down: bad answers until it is in ERROR, 1 to 10.
    """

    type: str
    delay: int
    timeout: int
    max_retries: int
    max_retries_down: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """:param name: its identity within its load balancer.
    :param persistence: SOURCE_IP, or None; the timeout is in seconds.
    :param tags: all of them are on it.
    """

    name: str
    protocol: str
    lb_algorithm: str
    persistence: str | None = None
    persistence_timeout: int | None = None
    members: tuple[Member, ...] = ()
    health_monitor: HealthMonitor | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """:param pool: name of the pool that gets what comes in.
    :param timeout_client_data: milliseconds, as all timeouts; None: as Octavia has it.
    :param allowed_cidrs: who may connect; empty: everybody.
    :param connection_limit: -1: none; None: as Octavia has it.
    :param insert_headers: names of headers that it adds (X-Forwarded-For, ...), sorted.
    :param default_tls_container_ref: of its certificate, with TERMINATED_HTTPS.
    :param tags: all of them are on it.
    """

    name: str
    protocol: str
    port: int
    pool: str
    timeout_client_data: int | None = None
    timeout_member_data: int | None = None
    timeout_member_connect: int | None = None
    timeout_tcp_inspect: int | None = None
    allowed_cidrs: tuple[str, ...] = ()
    connection_limit: int | None = None
    insert_headers: tuple[str, ...] = ()
    default_tls_container_ref: str | None = None
    tags: tuple[str, ...] = ()

    @property
    def key(self) -> Front:
        return Front(self.protocol, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancer:
    """A load balancer as it is to be. No two listeners have the same key, nor two pools the same
    name, nor two members of a pool the same key; each listener has a pool of its own.

    :param vip_subnet_id: None: Octavia chooses one of ``vip_network_id``, or it is the port's.
    :param vip_network_id: instead of a subnet; ``vip_port_id``: an existing port, instead of both.
    :param vip_address: None: any of the subnet.
    :param provider: None: Octavia's default.
    :param flavor_id: as ``availability_zone``, chosen at its making; None: Octavia's default.
    :param tags: all of them are on it, and by them it is found.
    """

    name: str
    project_id: str
    vip_subnet_id: str | None
    vip_address: str | None
    provider: str | None
    namespace: str = ""
    tags: tuple[str, ...] = ()
    listeners: tuple[Listener, ...] = ()
    pools: tuple[Pool, ...] = ()
    vip_network_id: str | None = None
    vip_port_id: str | None = None
    flavor_id: str | None = None
    availability_zone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPool:
    """A pool in Octavia. ``pool.members`` are those that it has.

    :param health_monitor_status: its provisioning status; None: there is no monitor.
    """

    id: str
    provisioning_status: str
    pool: Pool
    member_statuses: Mapping[Address, str] = field(default_factory=dict)
    member_ids: Mapping[Address, str] = field(default_factory=dict)
    health_monitor_id: str | None = None
    health_monitor_status: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundListener:
    """A listener in Octavia. ``pool_id``: of its default pool, if it has one."""

    id: str
    provisioning_status: str
    listener: Listener
    pool_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLoadBalancer:
    """A load balancer in Octavia with all that it has.

    :param flavor_id: as ``availability_zone``, what was chosen at its making; None: nothing was.
    """

    id: str
    name: str
    project_id: str
    provider: str
    vip_address: str
    vip_subnet_id: str
    vip_port_id: str
    provisioning_status: str
    operating_status: str
    tags: tuple[str, ...]
    listeners: tuple[FoundListener, ...] = ()
    pools: tuple[FoundPool, ...] = ()
    vip_network_id: str = ""
    flavor_id: str | None = None
    availability_zone: str | None = None

    def statuses(self) -> set[str]:
        """The provisioning statuses of the whole tree."""
        return {
            self.provisioning_status,
            *(one.provisioning_status for one in self.listeners),
            *(one.provisioning_status for one in self.pools),
            *(status for one in self.pools for status in one.member_statuses.values()),
            *(status for one in self.pools if (status := one.health_monitor_status)),
        }

    def is_pending(self) -> bool:
        """Whether Octavia is at work on any of it: any change would be answered 409."""
        return any(status.startswith("PENDING") for status in self.statuses())
