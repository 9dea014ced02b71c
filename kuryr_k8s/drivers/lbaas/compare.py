"""Comparison of what Octavia has with what is wanted, part by part. Pure.

Where None is wanted, Octavia chooses by itself; names are for people. Addresses are compared by
value, as IPv6 has many spellings.
"""

import ipaddress
from collections.abc import Sequence

from kuryr_k8s.cloud.mark import clusters_on
from kuryr_k8s.drivers.lbaas.ownership import set_fields
from kuryr_k8s.model.load_balancer import (
    CLIENT_CERTIFICATES,
    ERROR,
    HTTP,
    LISTENER_LIMITS,
    FoundLoadBalancer,
    FoundPool,
    Listener,
    LoadBalancer,
    Member,
    Pool,
)

# of a load balancer, set at its creation; None if Octavia chooses
CHOSEN_ONCE = (
    "provider",
    "vip_subnet_id",
    "vip_network_id",
    "vip_port_id",
    "flavor_id",
    "availability_zone",
)


def differs(wanted: LoadBalancer, found: FoundLoadBalancer) -> bool:
    """Return whether they differ in what cannot be changed after the creation."""
    return (
        wanted.project_id != found.project_id
        or not _same_values(wanted, found, CHOSEN_ONCE)
        or not _has_vips_in(wanted.additional_vips, found)
        or (
            wanted.vip_address is not None
            and ipaddress.ip_address(wanted.vip_address) != ipaddress.ip_address(found.vip_address)
        )
    )


def _has_vips_in(subnets: Sequence[str], found: FoundLoadBalancer) -> bool:
    return not subnets or set(subnets) == {vip.subnet_id for vip in found.additional_vips}


def same_groups(wanted: LoadBalancer, found: FoundLoadBalancer) -> bool:
    """Return whether the VIP has the security groups that it should have."""
    return wanted.vip_sg_ids is None or set(wanted.vip_sg_ids) == set(found.vip_sg_ids)


def same_listener(wanted: Listener, found: Listener) -> bool:
    """Return whether the listeners are equal, but for their identity (protocol, port) and pool."""
    return (
        _same_values(wanted, found, LISTENER_LIMITS)
        and _networks(wanted.allowed_cidrs) == _networks(found.allowed_cidrs)
        and set(wanted.insert_headers) == set(found.insert_headers)
        and same_certificates(wanted, found)
        and set(wanted.tls_versions or found.tls_versions) == set(found.tls_versions)
        and all(getattr(wanted, name) == getattr(found, name) for name in CLIENT_CERTIFICATES)
        and _has_tags(wanted.tags, found.tags)
        and set_fields(wanted.tags) == set_fields(found.tags)
    )


def same_certificates(wanted: Listener, found: Listener) -> bool:
    """Return whether clients are shown the same certificates."""
    return wanted.default_tls_container_ref in (None, found.default_tls_container_ref) and set(
        wanted.sni_container_refs
    ) == set(found.sni_container_refs)


def same_pool(wanted: Pool, found: Pool) -> bool:
    """Return whether the pools are equal, but for their identity, members and health monitor.

    Their identity is name and protocol.
    """
    return (
        wanted.lb_algorithm == found.lb_algorithm
        and wanted.persistence == found.persistence
        and wanted.persistence_timeout in (None, found.persistence_timeout)
        and same_tls(wanted, found)
        and _has_tags(wanted.tags, found.tags)
    )


def same_tls(wanted: Pool, found: Pool) -> bool:
    """Return whether members get requests over TLS, or not, and are verified by the same CAs."""
    return wanted.protocol != HTTP or (wanted.tls_enabled, wanted.ca_tls_container_ref) == (
        found.tls_enabled,
        found.ca_tls_container_ref,
    )


def _has_tags(wanted: Sequence[str], found: Sequence[str]) -> bool:
    """Return whether the found part has the wanted tags.

    The mark of the cluster does not count: parts that an earlier version made are recognized by
    their load balancer's mark, or by their owner. Each call would hold up the whole of it.
    """
    return {tag for tag in wanted if not clusters_on((tag,))} <= set(found)


def lacks_mark(wanted: LoadBalancer, found: FoundLoadBalancer) -> bool:
    """Return whether the load balancer was made by a version that knew no marks of clusters."""
    return bool(clusters_on(wanted.tags)) and not clusters_on(found.tags)


def united(wanted: Sequence[str], found: Sequence[str]) -> tuple[str, ...]:
    """Return the tags to send with a change: it removes those that it does not name.

    Tags of people stay.
    """
    outdated = set_fields(found)
    return tuple(dict.fromkeys((*wanted, *(tag for tag in found if tag not in outdated))))


def same_members(wanted: tuple[Member, ...], found: FoundPool) -> bool:
    """Return whether the pool has exactly these members, in any order."""
    existing = {member.key.value: member for member in found.pool.members}
    if existing.keys() != {member.key.value for member in wanted}:
        return False
    return all(_same_member(member, existing[member.key.value]) for member in wanted)


def added_members(wanted: tuple[Member, ...], found: FoundPool) -> tuple[Member, ...]:
    """Return the members that a pool lacks if it has others, and nothing else of it differs.

    Where each member of a large pool is sent, the provider works on each of them.
    """
    existing = {member.key.value for member in found.pool.members}
    kept = tuple(member for member in wanted if member.key.value in existing)
    if not kept or ERROR in found.member_statuses.values() or not same_members(kept, found):
        return ()
    return tuple(member for member in wanted if member.key.value not in existing)


def only_loses_drained(wanted: tuple[Member, ...], found: FoundPool) -> bool:
    """Return whether a pool differs only by members that get no new connections any more."""
    existing = {member.key.value: member for member in found.pool.members}
    kept = [(member, existing.pop(member.key.value, None)) for member in wanted]
    same = all(there is not None and _same_member(member, there) for member, there in kept)
    return same and bool(existing) and not any(each.weight for each in existing.values())


def _same_values(
    wanted: Listener | LoadBalancer, found: Listener | FoundLoadBalancer, names: Sequence[str]
) -> bool:
    return all(getattr(wanted, name) in (None, getattr(found, name)) for name in names)


def _same_member(wanted: Member, found: Member) -> bool:
    return wanted.weight == found.weight and wanted.subnet_id in (None, found.subnet_id)


def _networks(cidrs: tuple[str, ...]) -> frozenset[object]:
    return frozenset(ipaddress.ip_network(cidr, strict=False) for cidr in cidrs)
