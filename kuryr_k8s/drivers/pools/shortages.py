"""Pools that wait for what is used up: a quota, addresses, VLAN ids, or Neutron's time.

However many pools wait for one thing, one of them tries, and not more often than every few
seconds. When it succeeds, or a port is gone, others follow: each that succeeds brings along two.
Pools for which Pods wait go first, in the order in which they were refused. A pool that was not
refused itself may always try: none is held up by what is wrong with another. One that fails for
another reason, or has to wait for something else, leaves the queue: the next one tries.
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import PoolKey
from kuryr_k8s.drivers.pools.resources import FREED, Kind, Resource, lacking, resources_of

FOLLOWERS = 2  # pools that try after another one has succeeded


@dataclass(slots=True)
class Shortage:
    """The pools that wait for one thing.

    :param resource: the thing.
    :param failure: the last refusal.
    :param until: when the next pool may try; minus infinity: all may.
    :param awaited: the pools for which Pods wait, in the order in which they were refused.
    :param others: the other pools, which are to be filled for Pods to come.
    :param trying: those of the pools that were asked to try and have not done so yet.
    :param probing: the pool whose attempt has begun the pause.
    :param missing: ports that Pods wait for, and that no pool has given up so far.
    """

    resource: Resource
    failure: errors.CloudError
    until: float = -math.inf
    awaited: dict[PoolKey, None] = field(default_factory=dict)
    others: dict[PoolKey, None] = field(default_factory=dict)
    trying: set[PoolKey] = field(default_factory=set)
    probing: PoolKey | None = None
    missing: int = 0

    def __contains__(self, key: PoolKey) -> bool:
        return key in self.awaited or key in self.others

    def add(self, key: PoolKey, *, awaited: bool) -> None:
        """Put a pool into its queue, where it stays if it is there already."""
        mine, other = (self.awaited, self.others) if awaited else (self.others, self.awaited)
        other.pop(key, None)
        mine.setdefault(key)

    def discard(self, key: PoolKey) -> None:
        """Take a pool out of its queue."""
        self.awaited.pop(key, None)
        self.others.pop(key, None)
        self.trying.discard(key)

    def first(self, count: int) -> list[PoolKey]:
        """List the pools that are to try next."""
        queue = chain(self.awaited, self.others)
        return list(islice((key for key in queue if key not in self.trying), count))

    def is_first(self, key: PoolKey) -> bool:
        """Return whether the pool is the next one to try."""
        return self.first(1) == [key]


class ShortageMet(NamedTuple):
    """A shortage that a pool met when it tried.

    :param is_first: it is the first one since the last pause, or its attempt has begun the pause.
    """

    shortage: Shortage
    is_first: bool


class Shortages:
    """All that is used up at present.

    :param now: the time in seconds.
    :param pause: seconds between two attempts of pools that wait for the same thing.
    :param widened: adds to a key the subnets that stand in for its own: pools wait for an address
        of any of them.
    """

    def __init__(
        self,
        now: Callable[[], float],
        pause: float,
        widened: Callable[[PoolKey], PoolKey] = lambda key: key,
    ) -> None:
        self._now = now
        self._pause = pause
        self._widened = widened
        self._of: dict[Resource, Shortage] = {}

    def refused(
        self, key: PoolKey, failure: errors.CloudError, *, awaited: bool
    ) -> list[ShortageMet]:
        """Note why a pool's creation failed.

        :param awaited: Pods wait for the pool.
        :returns: what is used up; nothing if the failure is another one.
        """
        met = []
        for resource in self.used_up(failure, key):
            shortage = self._of.setdefault(resource, Shortage(resource, failure))
            shortage.failure = failure
            shortage.add(key, awaited=awaited)
            is_first = not self.left(shortage) or shortage.probing == key
            if is_first:
                shortage.probing = None
                shortage.until = self._now() + self._pause
            met.append(ShortageMet(shortage, is_first))
        return met

    def used_up(self, failure: BaseException, key: PoolKey) -> tuple[Resource, ...]:
        """List what is used up, as the failure of a pool's creation tells."""
        return lacking(failure, self._widened(key))

    def turn(self, key: PoolKey) -> Shortage | None:
        """Let a pool try, unless one that waits for the same thing was refused just now.

        :returns: what the pool waits for; None: it may try.
        """
        waiting = [shortage for shortage in self._shared(key) if key in shortage]
        for shortage in waiting:
            if self.left(shortage):
                return shortage
        for shortage in waiting:
            if shortage.until > -math.inf:
                shortage.until, shortage.probing = self._now() + self._pause, key
        return None

    def give_way(self, key: PoolKey) -> Shortage | None:
        """Let a pool for which no Pod waits wait for what Pods of other pools wait for.

        :returns: what that is; None: they wait for nothing that this pool's ports take up.
        """
        for shortage in self._freed(key):
            if key in shortage.awaited:
                shortage.add(key, awaited=False)  # its Pods are gone
            if shortage.awaited:
                shortage.add(key, awaited=False)
                return shortage
        return None

    def tried(self, key: PoolKey) -> None:
        """Note that a pool has tried, however that ended."""
        for shortage in self._shared(key):
            shortage.trying.discard(key)

    def want(self, key: PoolKey) -> float | None:
        """Note that Pods wait for a pool that was refused; what is left to others is for them.

        :returns: seconds until it may try; None: it was not refused, or that is noted already.
        """
        delays = []
        for resource in self._resources_of(key):
            shortage = self._of.get(resource)
            if shortage is None or key not in shortage.others:
                continue
            if resource.kind is Kind.UNRESERVED:
                shortage.discard(key)
                delays.append(0.0)
            else:
                shortage.add(key, awaited=True)
                delays.append(self.left(shortage))
        return max(delays, default=None)

    def relieved(self, key: PoolKey, count: int = FOLLOWERS) -> list[PoolKey]:
        """Note that a port of the pool was made, or is gone: there may be room for more.

        :returns: the pools that are to try now.
        """
        following: dict[PoolKey, None] = {}
        for shortage in self._shared(key):
            shortage.until = -math.inf
            followers = shortage.first(count)
            shortage.trying.update(followers)
            following |= dict.fromkeys(followers)
        return list(following)

    def leave(self, key: PoolKey, lacked: Collection[Resource] = ()) -> dict[PoolKey, float]:
        """Note that a pool wants no port any more, or lacks nothing but this.

        :returns: the pools whose turn it is then, and the seconds until they may try.
        """
        turns: dict[PoolKey, float] = {}
        for resource in self._resources_of(key):
            shortage = self._of.get(resource)
            if shortage is not None and key in shortage and resource not in lacked:
                shortage.discard(key)
                turns |= dict.fromkeys(shortage.first(1), self.left(shortage))
                if not (shortage.awaited or shortage.others):
                    del self._of[resource]
        return turns

    def is_awaited(self, key: PoolKey) -> bool:
        """Return whether Pods wait for what is free when a port of this pool is gone."""
        return any(shortage.awaited for shortage in self._freed(key))

    def take_missing(self, key: PoolKey) -> bool:
        """Return whether Pods of other pools miss a port of this one, and count it as found."""
        short = [shortage for shortage in self._shared(key) if shortage.missing > 0]
        for shortage in short:
            shortage.missing -= 1
        return bool(short)

    def left(self, shortage: Shortage) -> float:
        """Return the seconds until the next pool may try."""
        return max(0.0, shortage.until - self._now())

    def _freed(self, key: PoolKey) -> Iterator[Shortage]:
        """List what is used up of all that the deletion of a port of the pool gives back."""
        return (shortage for shortage in self._shared(key) if shortage.resource.kind in FREED)

    def _shared(self, key: PoolKey) -> Iterator[Shortage]:
        """List what is used up of all that the pool's ports take up."""
        resources = self._resources_of(key)
        return (self._of[resource] for resource in resources if resource in self._of)

    def _resources_of(self, key: PoolKey) -> tuple[Resource, ...]:
        return resources_of(self._widened(key))
