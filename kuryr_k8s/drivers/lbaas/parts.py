"""Whose the parts of a load balancer are that several owners share. Pure.

Each sees its own listeners and pools, by their tags. Those without an owner's tag are the load
balancer's owner's: made by hand, or before they had any. In one that is nobody's here they are
its operator's.
"""

import dataclasses
import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import PortTaken
from kuryr_k8s.drivers.lbaas import tags as lb_tags
from kuryr_k8s.model.load_balancer import FoundListener, FoundLoadBalancer, Listener, LoadBalancer

# No listeners and no pools; what else a load balancer is, does not matter where this is used.
NOTHING = LoadBalancer(
    name="", project_id="", vip_subnet_id=None, vip_address=None, provider=None, tags=()
)
OWN_TRANSPORT = ("UDP", "SCTP")  # everything else is carried by TCP


class NobodyConnects(errors.Refused):
    """None of the source ranges that are asked for is of the family of the VIP."""

    def __init__(self, ranges: Iterable[str], family: str) -> None:
        super().__init__(
            f"none of loadBalancerSourceRanges ({', '.join(ranges)}) is {family}, as the load "
            "balancer's address is: nobody could connect"
        )


class StillShared(errors.Refused):
    """It cannot go while others have listeners on it."""

    reason = "KuryrLoadBalancerShared"


class Taken(NamedTuple):
    """A listener that is wanted, and the one of somebody else that has its port."""

    wanted: Listener
    by: FoundListener


def divide(whole: FoundLoadBalancer, owner: str) -> tuple[FoundLoadBalancer, FoundLoadBalancer]:
    """The load balancer with what is the owner's in it, and with what is not."""

    def part(*, of_owner: bool) -> FoundLoadBalancer:
        return dataclasses.replace(
            whole,
            listeners=tuple(
                one
                for one in whole.listeners
                if is_of(owner, whole.tags, one.listener.tags) == of_owner
            ),
            pools=tuple(
                one for one in whole.pools if is_of(owner, whole.tags, one.pool.tags) == of_owner
            ),
        )

    return part(of_owner=True), part(of_owner=False)


def is_of(owner: str, whole: Iterable[str], part: Iterable[str]) -> bool:
    """Whether a part with these tags, of a load balancer with those, is the owner's."""
    whose = lb_tags.owner_of(part)
    return whose == owner or (not whose and lb_tags.owner_of(whole) == owner)


def taken_of(wanted: Iterable[Listener], others: Iterable[FoundListener]) -> list[Taken]:
    """The listeners that cannot be made: Octavia has no two of the same transport and port."""
    there = {_place(one.listener): one for one in others}
    return [Taken(one, there[_place(one)]) for one in wanted if _place(one) in there]


def port_taken(found: FoundLoadBalancer, taken: Iterable[Taken]) -> PortTaken:
    """The error that tells of them."""
    return PortTaken(
        found,
        {one.wanted.key: f"by listener {one.by.listener.name or one.by.id}" for one in taken},
    )


def without(desired: LoadBalancer, taken: Iterable[Taken]) -> LoadBalancer:
    """What can be had all the same."""
    going = {one.wanted.key for one in taken}
    loose = {one.wanted.pool for one in taken}
    return dataclasses.replace(
        desired,
        listeners=tuple(one for one in desired.listeners if one.key not in going),
        pools=tuple(one for one in desired.pools if one.name not in loose),
    )


def for_vip(desired: LoadBalancer, address: str) -> LoadBalancer:
    """With source ranges of the family of this VIP alone.

    :raises NobodyConnects: a listener with some has none of it.
    """
    version = ipaddress.ip_address(address).version

    def narrowed(one: Listener) -> Listener:
        ranges = one.allowed_cidrs
        own = tuple(cidr for cidr in ranges if ipaddress.ip_network(cidr).version == version)
        if ranges and not own:
            raise NobodyConnects(ranges, f"IPv{version}")
        return dataclasses.replace(one, allowed_cidrs=own)

    return dataclasses.replace(
        desired, listeners=tuple(narrowed(one) for one in desired.listeners)
    )


def _place(listener: Listener) -> tuple[str, int]:
    transport = listener.protocol if listener.protocol in OWN_TRANSPORT else "TCP"
    return transport, listener.port
