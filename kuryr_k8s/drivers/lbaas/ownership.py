"""Ownership of load balancers, and of listeners and pools in shared load balancers. Pure.

Tags record it, and nothing else does. In a shared load balancer each owner sees only its own
listeners and pools. Those without an owner's tag belong to the load balancer's owner: they were
made by hand, or before parts were tagged. In a load balancer of nobody's, they are its operator's.
"""

import dataclasses
import ipaddress
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kuryr_k8s.drivers.base import NobodyConnects, PortTaken
from kuryr_k8s.drivers.base import tags as owner_tags
from kuryr_k8s.model.load_balancer import (
    TIMEOUTS,
    TLS_CHOICES,
    FoundListener,
    FoundLoadBalancer,
    Listener,
    LoadBalancer,
)
from kuryr_k8s.model.owner import Owner

SHARED_TAG = "kuryr-shared"  # on listeners and pools in the load balancer of another owner
FORMERLY_TAG = "kuryr-formerly:"  # followed by an id that the load balancer had before
# Followed by the name of a listener's field that was asked for. Only Octavia knows its default,
# and the field has to go back to that when nobody asks for it any more.
SET_TAG = "kuryr-set:"
# No listeners and no pools, for uses in which the rest of the load balancer does not matter.
NOTHING = LoadBalancer(name="", project_id="", vip_subnet_id=None, vip_address=None, provider=None)
OWN_TRANSPORT = ("UDP", "SCTP")  # TCP carries all other protocols


class Taken(NamedTuple):
    """A listener that cannot be created, and the listener of another owner that has its port."""

    wanted: Listener
    by: FoundListener


def tagged(
    desired: LoadBalancer, owner: Owner, cluster: Sequence[str], *, shared: bool = False
) -> LoadBalancer:
    """Add the tags by which the load balancer, its listeners and its pools are found again.

    :param cluster: ``[neutron_defaults] resource_tags``.
    :param shared: the listeners and pools go into the load balancer of another owner.
    """
    tags = owner_tags.tags_of(cluster, desired.namespace, owner)
    parts = (*tags, SHARED_TAG) if shared else tags
    return dataclasses.replace(
        desired,
        tags=tags,
        listeners=tuple(
            dataclasses.replace(listener, tags=(*parts, *_set_tags(listener)))
            for listener in desired.listeners
        ),
        pools=tuple(dataclasses.replace(pool, tags=parts) for pool in desired.pools),
    )


def _set_tags(listener: Listener) -> Iterable[str]:
    names = (*TIMEOUTS, *TLS_CHOICES)
    return (f"{SET_TAG}{name}" for name in names if getattr(listener, name) not in (None, ()))


def set_fields(tags: Iterable[str]) -> frozenset[str]:
    """Return the tags that name fields of a listener that were asked for."""
    return frozenset(tag for tag in tags if tag.startswith(SET_TAG))


def forgotten(wanted: Iterable[str], found: Iterable[str]) -> frozenset[str]:
    """Return the fields of a listener that were asked for once, and are not any more."""
    return frozenset(tag.removeprefix(SET_TAG) for tag in set_fields(found) - set_fields(wanted))


def former_ids_of(tags: Iterable[str]) -> frozenset[str]:
    """Return the ids that the load balancer had before, as far as other owners named them."""
    named = (tag for tag in tags if tag.startswith(FORMERLY_TAG))
    return frozenset(tag.removeprefix(FORMERLY_TAG) for tag in named)


def divide(whole: FoundLoadBalancer, owner: Owner) -> tuple[FoundLoadBalancer, FoundLoadBalancer]:
    """Return the load balancer with the owner's parts only, and with all other parts only."""

    def part(*, of_owner: bool) -> FoundLoadBalancer:
        return dataclasses.replace(
            whole,
            listeners=tuple(
                found
                for found in whole.listeners
                if owns(owner, whole.tags, found.listener.tags) == of_owner
            ),
            pools=tuple(
                found
                for found in whole.pools
                if owns(owner, whole.tags, found.pool.tags) == of_owner
            ),
        )

    return part(of_owner=True), part(of_owner=False)


def owns(owner: Owner, whole: Iterable[str], part: Iterable[str]) -> bool:
    """Return whether the owner owns a part.

    :param whole: the tags of the load balancer.
    :param part: the tags of its listener or pool.
    """
    named = owner_tags.owner_of(part)
    return named == owner or (named is None and owner_tags.owner_of(whole) == owner)


def find_taken(wanted: Iterable[Listener], others: Iterable[FoundListener]) -> list[Taken]:
    """Find the listeners whose ports others have.

    Octavia has no two listeners of the same transport and port.
    """
    occupied = {_transport_port(found.listener): found for found in others}
    return [
        Taken(listener, occupied[_transport_port(listener)])
        for listener in wanted
        if _transport_port(listener) in occupied
    ]


def port_taken(found: FoundLoadBalancer, taken: Iterable[Taken]) -> PortTaken:
    """Return the error that names the ports and who has them."""
    return PortTaken(
        found,
        {each.wanted.key: f"by listener {each.by.listener.name or each.by.id}" for each in taken},
    )


def without(desired: LoadBalancer, taken: Iterable[Taken]) -> LoadBalancer:
    """Return the load balancer without the listeners that cannot be created."""
    fronts = {each.wanted.key for each in taken}
    pools = {each.wanted.pool for each in taken}
    return dataclasses.replace(
        desired,
        listeners=tuple(each for each in desired.listeners if each.key not in fronts),
        pools=tuple(each for each in desired.pools if each.name not in pools),
    )


def for_vip(desired: LoadBalancer, address: str) -> LoadBalancer:
    """Keep only the source ranges that have the address family of the VIP.

    :raises NobodyConnects: a listener has source ranges, and none is of that family.
    """
    version = ipaddress.ip_address(address).version

    def narrowed(listener: Listener) -> Listener:
        ranges = listener.allowed_cidrs
        fitting = tuple(cidr for cidr in ranges if ipaddress.ip_network(cidr).version == version)
        if ranges and not fitting:
            raise NobodyConnects(ranges, f"IPv{version}")
        return dataclasses.replace(listener, allowed_cidrs=fitting)

    return dataclasses.replace(desired, listeners=tuple(map(narrowed, desired.listeners)))


def _transport_port(listener: Listener) -> tuple[str, int]:
    transport = listener.protocol if listener.protocol in OWN_TRANSPORT else "TCP"
    return transport, listener.port
