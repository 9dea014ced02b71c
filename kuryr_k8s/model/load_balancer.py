"""Load balancers: their desired state, and their state as found in Octavia.

Names are those of the Octavia API v2: https://docs.openstack.org/api-ref/load-balancer/v2/
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

ACTIVE = "ACTIVE"
ERROR = "ERROR"
DELETED = "DELETED"
SOURCE_IP = "SOURCE_IP"  # an algorithm, and a kind of persistence
HTTP_MONITORS = ("HTTP", "HTTPS")  # types of health monitors that send requests
# Providers that forward by a hash of the addresses, as ovn-octavia-provider 11.0 does:
# * they know no weights: a member of weight 0 would get new connections like any other, and one
#   that is removed keeps those that it has;
# * the persistence SOURCE_IP without a timeout, which is all that Octavia accepts for TCP, has no
#   effect: a client stays with its member if the hash is one of the addresses alone;
# * they apply an algorithm when a pool is created, to all pools of its protocol in the load
#   balancer, and ignore it in changes of the pool;
# * they never report the end of a monitor's update: its listeners stay PENDING_UPDATE.
HASHING = ("ovn",)
# fields of a listener; where None is wanted, Octavia has a default of its own
TIMEOUTS = (
    "timeout_client_data",
    "timeout_member_data",
    "timeout_member_connect",
    "timeout_tcp_inspect",
)
LISTENER_LIMITS = (*TIMEOUTS, "connection_limit", "default_tls_container_ref", "tls_ciphers")
TERMINATED_HTTPS = "TERMINATED_HTTPS"  # the protocol of listeners that terminate TLS
HTTP = "HTTP"  # the protocol of pools whose members may get requests over TLS
# actions of L7 policies
REDIRECT_TO_POOL, REDIRECT_PREFIX, REDIRECT_TO_URL, REJECT = (
    "REDIRECT_TO_POOL",
    "REDIRECT_PREFIX",
    "REDIRECT_TO_URL",
    "REJECT",
)
HOST_NAME, PATH = "HOST_NAME", "PATH"  # types of L7 rules
MOST_RULES = 50  # of an L7 policy
TURNS = (REJECT, REDIRECT_PREFIX, REDIRECT_TO_URL, REDIRECT_TO_POOL)  # as Octavia looks at them
TLS_CHOICES = ("tls_versions", "tls_ciphers")  # Octavia's own where nobody asks
# what clients have to show there
MANDATORY, OPTIONAL, NO_AUTHENTICATION = "MANDATORY", "OPTIONAL", "NONE"
CLIENT_CERTIFICATES = (
    "client_authentication",
    "client_ca_tls_container_ref",
    "client_crl_container_ref",
)


class AdditionalVIP(NamedTuple):
    """A further VIP of a load balancer."""

    subnet_id: str
    address: str


class Address(NamedTuple):
    """Identity of a member within its pool."""

    address: str
    port: int

    @property
    def value(self) -> tuple[bytes, int]:
        """The same for all spellings of an IPv6 address."""
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        return socket.inet_pton(family, self.address), self.port


class Front(NamedTuple):
    """Identity of a listener within its load balancer."""

    protocol: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of a pool.

    :param subnet_id: the subnet in which it is reached; None if it is reached from the VIP's
        subnet, through the router.
    :param weight: 0 for a member that keeps its connections and gets no new ones.
    """

    address: str
    port: int
    name: str = ""
    subnet_id: str | None = None
    weight: int = 1

    @property
    def key(self) -> Address:
        """The member's identity within its pool."""
        return Address(self.address, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthMonitor:
    """Health monitor of a pool, which has one at the most.

    :param type: TCP, UDP-CONNECT, SCTP, HTTP, ...
    :param http_method: like ``url_path`` and ``expected_codes``, given for the types of
        ``HTTP_MONITORS``, and None for others.
    :param expected_codes: ``200``, ``200,202`` or ``200-204``.
    :param delay: seconds between two probes.
    :param timeout: seconds for an answer, not more than ``delay``.
    :param max_retries: successful probes until a member is ONLINE, 1 to 10.
    :param max_retries_down: failed probes until it is in ERROR, 1 to 10.
    """

    type: str
    delay: int
    timeout: int
    max_retries: int
    max_retries_down: int
    http_method: str | None = None
    url_path: str | None = None
    expected_codes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool.

    :param name: its identity within its load balancer.
    :param persistence: SOURCE_IP, HTTP_COOKIE, or None; the timeout is in seconds.
    :param tls_enabled: its members get requests over TLS.
    :param ca_tls_container_ref: the certificates of the CAs that sign its members' ones; None:
        nobody verifies these.
    :param tags: added by the driver.
    """

    name: str
    protocol: str
    lb_algorithm: str
    persistence: str | None = None
    persistence_timeout: int | None = None
    members: tuple[Member, ...] = ()
    health_monitor: HealthMonitor | None = None
    tls_enabled: bool = False
    ca_tls_container_ref: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class L7Rule:
    """A rule of an L7 policy, which tells the requests that it takes.

    :param type: HOST_NAME, PATH, ...
    :param compare_type: REGEX, EQUAL_TO, STARTS_WITH, ENDS_WITH or CONTAINS.
    :param invert: the requests are the others.
    """

    type: str
    compare_type: str
    value: str
    invert: bool = False


class Match(NamedTuple):
    """Identity of an L7 policy within its listener.

    Octavia looks at all policies that reject requests first, then at those that redirect clients,
    then at those that lead to pools.
    """

    action: str
    rules: tuple[L7Rule, ...]  # sorted


EQUAL_TO, REGEX = "EQUAL_TO", "REGEX"  # how values are compared
ANYTHING = L7Rule(PATH, "STARTS_WITH", "/")  # as a policy without rules takes no requests


@dataclass(frozen=True, slots=True, kw_only=True)
class L7Policy:
    """An L7 policy of a listener: what becomes of the requests that all of its rules match.

    :param name: for people.
    :param action: REDIRECT_TO_POOL, REDIRECT_PREFIX or REJECT.
    :param rules: in any order; Octavia passes over a policy that has none.
    :param redirect_pool: the name of the pool.
    :param redirect_prefix: of the URL, before the path and the query that the client has sent.
    :param redirect_http_code: 301, 302, 303, 307 or 308.
    :param host: the host, or with ``*.`` the hosts, whose requests alone its rules match; empty if
        they may match others'. Octavia does not keep it, like ``namespace``.
    :param namespace: whose users want it.
    """

    name: str = ""
    action: str
    rules: tuple[L7Rule, ...]
    redirect_pool: str | None = None
    redirect_prefix: str | None = None
    redirect_http_code: int | None = None
    host: str = field(default="", compare=False)
    namespace: str = field(default="", compare=False)

    @property
    def key(self) -> Match:
        """The policy's identity within its listener."""
        return Match(self.action, tuple(sorted(self.rules)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listener.

    :param pool: name of its default pool; empty if it has none.
    :param policies: its L7 policies in the order of their positions, which is that of ``TURNS``.
    :param timeout_client_data: milliseconds, like all timeouts; None for Octavia's default.
    :param allowed_cidrs: networks that may connect; empty if all may.
    :param connection_limit: -1 for no limit; None for Octavia's default.
    :param insert_headers: names of headers that it adds (X-Forwarded-For, ...), sorted.
    :param default_tls_container_ref: the container of its certificate, with TERMINATED_HTTPS,
        like all of TLS.
    :param sni_container_refs: containers of further certificates, which clients choose by the
        name that they ask for; in any order.
    :param tls_versions: in any order; like ``tls_ciphers``, empty or None for Octavia's choice.
    :param client_authentication: MANDATORY, OPTIONAL or NONE.
    :param client_ca_tls_container_ref: the certificate of those who sign clients' certificates.
    :param client_crl_container_ref: the list of clients' certificates that are revoked.
    :param tags: added by the driver.
    """

    name: str
    protocol: str
    port: int
    pool: str
    policies: tuple[L7Policy, ...] = ()
    timeout_client_data: int | None = None
    timeout_member_data: int | None = None
    timeout_member_connect: int | None = None
    timeout_tcp_inspect: int | None = None
    allowed_cidrs: tuple[str, ...] = ()
    connection_limit: int | None = None
    insert_headers: tuple[str, ...] = ()
    default_tls_container_ref: str | None = None
    sni_container_refs: tuple[str, ...] = ()
    tls_versions: tuple[str, ...] = ()
    tls_ciphers: str | None = None
    client_authentication: str = NO_AUTHENTICATION
    client_ca_tls_container_ref: str | None = None
    client_crl_container_ref: str | None = None
    tags: tuple[str, ...] = ()

    @property
    def key(self) -> Front:
        """The listener's identity within its load balancer."""
        return Front(self.protocol, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancer:
    """Desired state of a load balancer.

    No two listeners have the same key, nor two pools the same name, nor two members of a pool the
    same key, nor two policies of a listener. No pool is the default pool of two listeners.

    :param vip_subnet_id: None if Octavia chooses a subnet of ``vip_network_id``, or if there is a
        ``vip_port_id``.
    :param vip_network_id: replaces a subnet.
    :param vip_port_id: an existing port, which replaces both.
    :param vip_address: None for any address of the subnet.
    :param provider: None for Octavia's default.
    :param additional_vips: subnets of further VIPs, chosen at the creation; empty if there may be
        any.
    :param vip_sg_ids: security groups of the VIP, in any order; None if they may be any.
    :param flavor_id: like ``availability_zone``, chosen at the creation; None for the default.
    :param namespace: namespace of the Service that it is for.
    :param tags: added by the driver, which finds the load balancer by them.
    :param former_pools: pools that are to go; their members count while L7 policies lead to them.
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
    former_pools: tuple[Pool, ...] = ()
    vip_network_id: str | None = None
    vip_port_id: str | None = None
    additional_vips: tuple[str, ...] = ()
    vip_sg_ids: tuple[str, ...] | None = None
    flavor_id: str | None = None
    availability_zone: str | None = None

    def has_members(self) -> bool:
        """Return whether any pool has a member."""
        return any(pool.members for pool in self.pools)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPool:
    """A pool as found in Octavia, with its members.

    :param created_at: as Octavia tells it, to the second: later times are greater.
    :param health_monitor_status: provisioning status of its monitor; None if there is none.
    """

    id: str
    provisioning_status: str
    pool: Pool
    created_at: str = ""
    member_statuses: Mapping[Address, str] = field(default_factory=dict)
    member_ids: Mapping[Address, str] = field(default_factory=dict)
    health_monitor_id: str | None = None
    health_monitor_status: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundL7Policy:
    """An L7 policy as found in Octavia.

    :param is_enabled: Octavia looks at it.
    :param pool_id: where it leads, if that is a pool.
    :param rule_ids: of the rules of ``policy``, in their order.
    :param rule_statuses: provisioning statuses of all rules, also of those that are disabled.
    """

    id: str
    provisioning_status: str
    policy: L7Policy
    is_enabled: bool
    pool_id: str | None = None
    rule_ids: tuple[str, ...] = ()
    rule_statuses: tuple[str, ...] = ()

    def statuses(self) -> set[str]:
        """Return the provisioning statuses of the policy and its rules."""
        return {self.provisioning_status, *self.rule_statuses}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundListener:
    """A listener as found in Octavia.

    :param pool_id: its default pool, if it has one.
    :param policies: in the order of their positions.
    """

    id: str
    provisioning_status: str
    listener: Listener
    pool_id: str | None
    policies: tuple[FoundL7Policy, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLoadBalancer:
    """A load balancer as found in Octavia, with all that it contains.

    :param flavor_id: like ``availability_zone``, chosen at the creation; None if nothing was.
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
    additional_vips: tuple[AdditionalVIP, ...] = ()
    vip_sg_ids: tuple[str, ...] = ()
    flavor_id: str | None = None
    availability_zone: str | None = None

    def vips(self) -> tuple[str, ...]:
        """Return the addresses of all VIPs, the first one first."""
        return (self.vip_address, *(vip.address for vip in self.additional_vips))

    def statuses(self) -> set[str]:
        """Return the provisioning statuses of the load balancer and everything in it."""
        return {
            self.provisioning_status,
            *(listener.provisioning_status for listener in self.listeners),
            *(
                status
                for listener in self.listeners
                for policy in listener.policies
                for status in policy.statuses()
            ),
            *(pool.provisioning_status for pool in self.pools),
            *(status for pool in self.pools for status in pool.member_statuses.values()),
            *(status for pool in self.pools if (status := pool.health_monitor_status)),
        }

    def is_pending(self) -> bool:
        """Return whether Octavia is at work on any part: it would answer any change with 409."""
        return any(status.startswith("PENDING") for status in self.statuses())
