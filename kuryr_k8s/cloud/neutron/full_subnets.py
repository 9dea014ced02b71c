"""The record of subnets without a free address, as far as Neutron's answers show them.

Neutron says on which network it has no address, and not of which subnet (a driver of its IPAM may
say that, too). So a refusal proves that at least one of the subnets that were asked for is full,
and that is what is recorded. Where all others of them are vast, or a port is made in them
afterwards, it is known which one.
"""

import ipaddress
import logging
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

LOG = logging.getLogger(__name__)
PAUSE = 60.0  # seconds until subnets that were refused are tried again
VAST = 2**32  # addresses of a subnet that no cloud has used up


class _Refusal(NamedTuple):
    """The last refusal of a set of subnets.

    :param at: when it came.
    :param until: when the set is tried again.
    """

    at: float
    until: float


class FullSubnets:
    """Sets of subnets of which at least one is full.

    A set stands until a port was made in all of its subnets, or a port of ours in one of them is
    deleted. When it was not confirmed for a while, one attempt shows whether it still holds.

    :param now: the time in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._refused: dict[frozenset[str], _Refusal] = {}
        self._vast: set[str] = set()

    def has_room(self, subnet_ids: Collection[str]) -> bool:
        """Return whether each of these subnets may have a free address, as far as is known."""
        asked, now = frozenset(subnet_ids), self._now()
        return not any(full <= asked and now < last.until for full, last in self._refused.items())

    def is_full(self, subnet_id: str) -> bool:
        """Return whether this very subnet is known to be full."""
        return frozenset((subnet_id,)) in self._refused

    def measure(self, subnet_id: str, pools: Iterable[tuple[str, str]]) -> None:
        """Note a subnet that has too many addresses to become full.

        :param pools: its allocation pools, as pairs (first, last).
        """
        address = ipaddress.ip_address
        size = sum(int(address(last)) - int(address(first)) + 1 for first, last in pools)
        if size >= VAST:
            self._vast.add(subnet_id)
        else:
            self._vast.discard(subnet_id)

    def attempt(self, subnet_ids: Collection[str]) -> None:
        """Note that a port is requested: if it is time to try again, one attempt is for all."""
        asked, now = frozenset(subnet_ids), self._now()
        for full, last in self._refused.items():
            if full <= asked and last.until <= now:
                self._refused[full] = last._replace(until=now + PAUSE)

    def refused(self, subnet_ids: Collection[str], message: str) -> None:
        """Note that Neutron had no address for a single port.

        :param subnet_ids: the subnets that were asked for an address each.
        :param message: Neutron's words; a subnet whose id is in them is the one that is full.
        """
        asked = frozenset(subnet_ids)
        named = frozenset(subnet_id for subnet_id in asked if subnet_id in message)
        suspects = named or asked - self._vast or asked
        if not suspects:
            return
        now = self._now()
        known = [full for full in self._refused if full <= suspects] or [suspects]
        others = {full: last for full, last in self._refused.items() if not suspects <= full}
        self._record(others | dict.fromkeys(known, _Refusal(now, now + PAUSE)))

    def made(self, subnet_ids: Collection[str], asked: float) -> None:
        """Note that a port was made: each of its subnets had a free address.

        :param asked: when the port was requested. What was refused since may be full by now: the
            answers may come in another order than the addresses were given.
        """
        if self._refused:
            made = frozenset(subnet_ids)
            left = {
                full - made if last.at <= asked else full: last
                for full, last in self._refused.items()
            }
            self._record({full: last for full, last in left.items() if full})

    def freed(self, subnet_ids: Collection[str]) -> None:
        """Note that a port was deleted: each of its subnets has a free address."""
        if self._refused:
            left = {
                full: last for full, last in self._refused.items() if full.isdisjoint(subnet_ids)
            }
            self._record(left)

    def _record(self, refused: dict[frozenset[str], _Refusal]) -> None:
        before, after = _single(self._refused), _single(refused)
        self._refused = refused
        for subnet_id in sorted(after - before):
            LOG.warning("subnet %s is full", subnet_id)
        for subnet_id in sorted(before - after):
            LOG.info("subnet %s has free addresses again", subnet_id)


def _single(refused: Iterable[frozenset[str]]) -> set[str]:
    return {subnet_id for full in refused if len(full) == 1 for subnet_id in full}
