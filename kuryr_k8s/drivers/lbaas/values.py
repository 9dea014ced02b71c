"""Whether what Octavia has is what is wanted, part by part. Pure.

None in what is wanted is what Octavia chooses by itself; names are for people. Addresses are
compared as such: IPv6 has many spellings.
"""

import ipaddress
from collections.abc import Sequence

from kuryr_k8s.drivers.lbaas import tags as lb_tags
from kuryr_k8s.model.load_balancer import (
    ERROR,
    FoundLoadBalancer,
    FoundPool,
    Listener,
    LoadBalancer,
    Member,
    Pool,
)

# of a load balancer, given once; None in what is wanted: Octavia chooses
CHOSEN = (
    "provider",
    "vip_subnet_id",
    "vip_network_id",
    "vip_port_id",
    "flavor_id",
    "availability_zone",
)
# of a listener
LIMITS = (
    "timeout_client_data",
    "timeout_member_data",
    "timeout_member_connect",
    "timeout_tcp_inspect",
    "connection_limit",
    "default_tls_container_ref",
)


def differs(wanted: LoadBalancer, found: FoundLoadBalancer) -> bool:
    """Whether they differ in what a load balancer is given once."""
    return (
        wanted.project_id != found.project_id
        or not _same_values(wanted, found, CHOSEN)
        or (
            wanted.vip_address is not None
            and ipaddress.ip_address(wanted.vip_address) != ipaddress.ip_address(found.vip_address)
        )
    )


def same_listener(wanted: Listener, found: Listener) -> bool:
    """Apart from protocol and port, its identity, and from its pool."""
    return (
        _same_values(wanted, found, LIMITS)
        and _networks(wanted.allowed_cidrs) == _networks(found.allowed_cidrs)
        and set(wanted.insert_headers) == set(found.insert_headers)
        and set(wanted.tags) <= set(found.tags)
        and lb_tags.set_fields(wanted.tags) == lb_tags.set_fields(found.tags)
    )


def same_pool(wanted: Pool, found: Pool) -> bool:
    """Apart from name and protocol, its identity, and from its members and health monitor."""
    return (
        wanted.lb_algorithm == found.lb_algorithm
        and wanted.persistence == found.persistence
        and wanted.persistence_timeout in (None, found.persistence_timeout)
        and set(wanted.tags) <= set(found.tags)
    )


def united(wanted: Sequence[str], found: Sequence[str]) -> tuple[str, ...]:
    """Tags for a change, which takes away those that it does not name: others' stay."""
    past = lb_tags.set_fields(found)
    return tuple(dict.fromkeys((*wanted, *(tag for tag in found if tag not in past))))


def same_members(wanted: tuple[Member, ...], found: FoundPool) -> bool:
    """Whether it has these members and no others, in any order, and none of them in ERROR."""
    if ERROR in found.member_statuses.values():
        return False
    there = {_identity(member): member for member in found.pool.members}
    if there.keys() != {_identity(member) for member in wanted}:
        return False
    return all(_same_member(member, there[_identity(member)]) for member in wanted)


def _same_values(
    wanted: Listener | LoadBalancer, found: Listener | FoundLoadBalancer, names: Sequence[str]
) -> bool:
    return all(getattr(wanted, name) in (None, getattr(found, name)) for name in names)


def _same_member(wanted: Member, found: Member) -> bool:
    return wanted.weight == found.weight and wanted.subnet_id in (None, found.subnet_id)


def _identity(member: Member) -> tuple[object, int]:
    return ipaddress.ip_address(member.address), member.port


def _networks(cidrs: tuple[str, ...]) -> frozenset[object]:
    return frozenset(ipaddress.ip_network(cidr, strict=False) for cidr in cidrs)
