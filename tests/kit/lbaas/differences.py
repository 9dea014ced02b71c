"""How far a found load balancer is from what it is to be, in calls: told without the plan."""

from dataclasses import replace

from kuryr_k8s.model.load_balancer import ERROR
from tests.kit.lbaas.octavia_model import LIMITS

PLACE = ("vip_subnet_id", "vip_network_id", "vip_port_id")
CHOSEN = ("flavor_id", "availability_zone")


def like(wanted, found):
    """None in what is wanted is anything."""
    return wanted is None or wanted == found


def differences(desired, found):
    """Calls that are needed at the most. 0: it is as it is to be."""
    if found is None or desired is None:
        return int(found is not desired)
    if found.provider == "ovn":
        desired = replace(desired, pools=tuple(hashed(pool) for pool in desired.pools))
    if found.provisioning_status == ERROR or not _same_frame(desired, found):
        return 2
    listeners = {
        listener.listener.key: listener for listener in found.listeners if not _broken(listener)
    }
    pools = [pool for pool in found.pools if not _broken(pool)]
    wanted = {listener.key: listener for listener in desired.listeners}
    kept = _kept(desired, listeners, pools, found.provider)
    broken = [part for part in (*found.listeners, *found.pools) if _broken(part)]
    broken += [pool for pool in pools if pool.health_monitor_status == ERROR]
    groups = found.vip_sg_ids if desired.vip_sg_ids is None else desired.vip_sg_ids
    calls = int(set(groups) != set(found.vip_sg_ids))
    calls += len(broken) + len(pools) - len(kept) + len(listeners.keys() - wanted.keys())
    for pool in desired.pools:
        new = 1 + bool(pool.members) + bool(pool.health_monitor)
        anew = found.provider == "ovn"
        calls += _pool(pool, kept[pool.name], anew) if pool.name in kept else new
    for key, listener in wanted.items():
        calls += key not in listeners or _listener(listener, listeners[key], kept)
    return calls + _circles(wanted, listeners, kept)


def hashed(pool):
    """As a provider has it that knows no weights, and affinity only as a hash of addresses."""
    members = tuple(member for member in pool.members if member.weight)
    if pool.persistence is not None:
        pool = replace(pool, lb_algorithm="SOURCE_IP", persistence=None, persistence_timeout=None)
    return replace(pool, members=members)


def _broken(found):
    return found.provisioning_status == ERROR


def _same_frame(desired, found):
    subnets = {vip.subnet_id for vip in found.additional_vips}
    further = not desired.additional_vips or set(desired.additional_vips) == subnets
    return further and all(
        like(getattr(desired, name), getattr(found, name))
        for name in ("provider", "vip_address", "project_id", *PLACE, *CHOSEN)
    )


def _kept(desired, listeners, pools, provider):
    """By name; of two that would do, the one in its place. With ovn, algorithms do not change."""
    kept = {}
    for wanted in desired.pools:
        front = next(
            (listener.key for listener in desired.listeners if listener.pool == wanted.name), None
        )
        place = listeners[front].pool_id if front in listeners else None
        alike = [
            pool
            for pool in pools
            if (pool.pool.name, pool.pool.protocol) == (wanted.name, wanted.protocol)
            and (provider != "ovn" or _decides(pool, wanted, pools, desired))
        ]
        if alike:
            kept[wanted.name] = min(
                alike, key=lambda pool, place=place: (pool.id != place, pool.id)
            )
    return kept


def _decides(pool, wanted, pools, desired):
    """With ovn: it has the algorithm, and no later one that is to go has another."""
    asked = {(each.name, each.protocol, each.lb_algorithm) for each in desired.pools}
    later = [
        other.pool
        for other in pools
        if other.id != pool.id
        and other.pool.protocol == wanted.protocol
        and other.created_at >= pool.created_at
    ]
    return pool.pool.lb_algorithm == wanted.lb_algorithm and not any(
        other.lb_algorithm != wanted.lb_algorithm
        and (other.name, other.protocol, other.lb_algorithm) not in asked
        for other in later
    )


def _pool(wanted, found, anew):
    there = {member.key: member for member in found.pool.members}
    members = {member.key: member for member in wanted.members}
    unlike = (
        there.keys() != members.keys()
        or ERROR in found.member_statuses.values()
        or any(
            member.weight != there[key].weight or not like(member.subnet_id, there[key].subnet_id)
            for key, member in members.items()
        )
    )
    settings = (
        wanted.lb_algorithm == found.pool.lb_algorithm
        and wanted.persistence == found.pool.persistence
        and like(wanted.persistence_timeout, found.pool.persistence_timeout)
        and wanted.tls_enabled == found.pool.tls_enabled
        and wanted.ca_tls_container_ref == found.pool.ca_tls_container_ref
        and not set(wanted.tags) - set(found.pool.tags)
    )
    return unlike + (not settings) + _monitor(wanted.health_monitor, found, anew)


def _monitor(wanted, found, anew):
    """One in ERROR is counted among what is broken, and is none.

    :param anew: it is not updated.
    """
    there = found.pool.health_monitor if found.health_monitor_status != ERROR else None
    if wanted is None or there is None or wanted.type != there.type:
        return (there is not None) + (wanted is not None)
    return (1 + anew) * (wanted != there)


def _listener(wanted, found, kept):
    own = kept.get(wanted.pool)
    return not (
        own is not None
        and own.id == found.pool_id
        and all(like(getattr(wanted, name), getattr(found.listener, name)) for name in LIMITS)
        and like(wanted.default_tls_container_ref, found.listener.default_tls_container_ref)
        and like(wanted.tls_ciphers, found.listener.tls_ciphers)
        and like(wanted.tls_versions or None, found.listener.tls_versions)
        and wanted.sni_container_refs == found.listener.sni_container_refs
        and wanted.client_authentication == found.listener.client_authentication
        and wanted.client_ca_tls_container_ref == found.listener.client_ca_tls_container_ref
        and wanted.client_crl_container_ref == found.listener.client_crl_container_ref
        and set(wanted.allowed_cidrs) == set(found.listener.allowed_cidrs)
        and wanted.insert_headers == found.listener.insert_headers
        and not set(wanted.tags) - set(found.listener.tags)
    )


def _circles(wanted, listeners, kept):
    """Rings of listeners that have each other's pools: one of each must go for a while."""
    wanter = {
        kept[listener.pool].id: key for key, listener in wanted.items() if listener.pool in kept
    }
    follows = {
        key: wanter[listeners[key].pool_id]
        for key in wanted.keys() & listeners.keys()
        if listeners[key].pool_id in wanter
    }
    rings = set()
    for start in follows:
        ring = []
        key = start
        while key in follows and key not in ring:
            ring.append(key)
            key = follows[key]
        if key == start and len(ring) > 1:
            rings.add(frozenset(ring))
    return len(rings)
