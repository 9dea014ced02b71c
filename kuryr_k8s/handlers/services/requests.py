"""What the LBaaS driver was asked for, and what came of it: for each Service and owner.

What changes within a second is one change. What the provider refuses is left out, if the rest can
be had: so an annotation that it cannot do takes nobody's ClusterIP away. Octavia also answers 400
where Neutron did not answer it, and 403 just after its start: so what it does not say to be
impossible is asked again soon, and nothing is left out for one such answer.
"""

import asyncio
import dataclasses
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import LBaaSDriver, OthersAtWork, PortTaken
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.load_balancer import FoundLoadBalancer, LoadBalancer
from kuryr_k8s.model.owner import Owner
from kuryr_k8s.model.service import Service

PACE = 1.0  # seconds between two changes of one load balancer, at least
TRY_AGAIN = 600.0  # seconds until what was refused is asked for again
LAYERS = {"HTTP": "TCP", "TERMINATED_HTTPS": "TCP"}  # listener's protocol → the Service port's


class ServedPort(NamedTuple):
    """A port of the Service."""

    protocol: str
    port: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """:param refused: ports that have no listener, and what Octavia says.
    :param note: what else it refused.
    """

    found: FoundLoadBalancer
    refused: Mapping[ServedPort, str] = field(default_factory=dict)
    note: str | None = None


@dataclass(slots=True)
class _Asked:
    """What the driver was asked for, since when, and whether it has said that it is so.

    :param served: what was so last, but for members; None: nothing yet.
    """

    desired: LoadBalancer
    at: float
    into: str | None = None
    done: bool = False
    served: LoadBalancer | None = None


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Of what is not members.

    :param certain: what is refused is left out for a while.
    """

    shape: LoadBalancer
    at: float
    error: errors.BadRequest
    into: str | None
    certain: bool

    def is_of(self, shape: LoadBalancer, into: str | None) -> bool:
        return (self.shape, self.into) == (shape, into) and _now() - self.at < TRY_AGAIN


class Requests:
    """:param wake: called with the Service when what was answered with Wait can go on.
    :param changed: told when what was as it is to be is so no more.
    """

    def __init__(
        self,
        lbaas: LBaaSDriver,
        wake: Callable[[Key], None],
        changed: Callable[[Service], Awaitable[None]],
    ) -> None:
        self._lbaas = lbaas
        self._wake = wake
        self._changed = changed
        self._asked: dict[Key, dict[Owner, _Asked]] = {}  # of each Service, by owner
        self._refusals: dict[Owner, _Refusal] = {}  # by owner
        self._keys: dict[str, Key] = {}  # of Services, by uid
        self._uids: defaultdict[Key, set[str]] = defaultdict(set)
        lbaas.subscribe(self._woken)

    def _note(self, key: Key, owner: Owner) -> None:
        self._keys[owner.uid] = key
        self._uids[key].add(owner.uid)

    def finish(self, key: Key) -> None:
        """Note that nothing is asked for the Service any more."""
        for uid in self._uids.pop(key, ()):
            self._keys.pop(uid, None)

    def _woken(self, owner: Owner) -> None:
        key = self._keys.get(owner.uid)
        if key is not None:
            self._wake(key)

    def owners(self, key: Key) -> list[Owner]:
        """Whose load balancers were asked for in this life of the process."""
        return list(self._asked.get(key, ()))

    def since(self, key: Key, owner: Owner) -> float:
        """When the last change was asked for."""
        return self._asked[key][owner].at

    async def ensure(
        self,
        service: Service,
        owner: Owner,
        desired: LoadBalancer,
        plain: LoadBalancer | None = None,
        into: str | None = None,
    ) -> Outcome:
        """The load balancer; or what of it the provider does, and others leave free.

        :param plain: to be had instead where the provider refuses what is asked for.
        :param into: id of the load balancer of another in which all of it is to be.
        :raises errors.Wait: Octavia is at work; or there was a change less than a second ago.
        """
        shape, refusal = _shape(desired), self._refusals.get(owner)
        if plain is not None and _shape(plain) == shape:
            plain = None
        if refusal is None or not (refusal.certain and refusal.is_of(shape, into)):
            try:
                outcome = await self._ensure(service, owner, desired, into)
            except errors.BadRequest as error:
                asked = self._asked[_key(service)][owner]
                asked.at = -PACE  # the next thing asked for is no other change
                if asked.served == shape:
                    raise  # members, or something that passes: the rest was taken before
                again = refusal is not None and refusal.is_of(shape, into)
                certain = isinstance(error, errors.Unsupported) or (again and plain is not None)
                refusal = _Refusal(shape, _now(), error, into, certain)
                self._refusals[owner] = refusal
                if not certain:
                    raise
            else:
                self._refusals.pop(owner, None)
                return outcome
        less = _without(desired, refusal.error) or plain
        if less is None:
            raise refusal.error
        outcome = await self._ensure(service, owner, less, into)
        kept = {one.key for one in less.listeners}
        refused = {
            _served(one.key): refusal.error.brief
            for one in desired.listeners
            if one.key not in kept
        }
        note = None if refused else refusal.error.brief
        return Outcome(outcome.found, {**outcome.refused, **refused}, note)

    async def is_shared(self, key: Key, owner: Owner) -> bool:
        """Whether others have something in it; where they have, the Service is looked at again
        when they have changed it."""
        self._note(key, owner)
        return await self._lbaas.is_shared(owner)

    def look_again(self, key: Key) -> None:
        self._wake(key)

    async def release(self, key: Key, owner: Owner, *, refused: bool = False) -> None:
        """
        :param refused: it is asked for all the same; that it cannot be had is remembered.
        :raises errors.Wait: Octavia is at work on it.
        """
        self._note(key, owner)
        await self._lbaas.release(owner)
        refusal = self._refusals.get(owner)
        self.forget(key, owner)
        if refused and refusal is not None:
            self._refusals[owner] = refusal

    def forget(self, key: Key, owner: Owner) -> None:
        self._refusals.pop(owner, None)
        asked = self._asked.get(key, {})
        asked.pop(owner, None)
        if not asked:
            self._asked.pop(key, None)

    async def _ensure(
        self, service: Service, owner: Owner, desired: LoadBalancer, into: str | None
    ) -> Outcome:
        """:raises PortTaken: others have all of the ports."""
        key, now = _key(service), _now()
        asked = self._asked.setdefault(key, {})
        self._note(key, owner)
        before = asked.get(owner)
        if before is None or (before.desired, before.into) != (desired, into):
            if before is not None and now - before.at < PACE:
                raise errors.Wait(f"Service {key} changes often", delay=before.at + PACE - now)
            served = before.served if before is not None and before.into == into else None
            asked[owner] = before = _Asked(desired, now, into, served=served)
        try:
            if into is None:
                outcome = Outcome(await self._lbaas.ensure(owner, desired))
            else:
                outcome = Outcome(await self._lbaas.attach(owner, into, desired))
        except OthersAtWork:
            raise
        except errors.Wait:
            if before.done:
                before.done = False
                await self._changed(service)
            raise
        except PortTaken as taken:
            if len(taken.ports) == len(desired.listeners):
                raise
            refused = {
                _served(port): f"the port is taken {by}" for port, by in taken.ports.items()
            }
            outcome = Outcome(taken.found, refused)
        before.done, before.served = True, _shape(before.desired)
        return outcome


def _key(service: Service) -> Key:
    return Key(service.namespace, service.name)


def _served(front: tuple[str, int]) -> ServedPort:
    """The Service's port that a listener is for."""
    protocol, port = front
    return ServedPort(LAYERS.get(protocol, protocol), port)


def _shape(desired: LoadBalancer) -> LoadBalancer:
    """All but the members."""
    pools = tuple(dataclasses.replace(one, members=()) for one in desired.pools)
    return dataclasses.replace(desired, pools=pools)


def _without(desired: LoadBalancer, error: errors.BadRequest) -> LoadBalancer | None:
    """Without the ports of the protocols that the provider does not do; None: nothing would be
    left, or something else is refused."""
    if not isinstance(error, errors.Unsupported) or error.feature != "protocol":
        return None
    pools = {one.name: one.protocol for one in desired.pools}
    kept = tuple(
        one
        for one in desired.listeners
        if not any(
            re.search(rf"\b{protocol}\b", error.brief)
            for protocol in (one.protocol, pools[one.pool])
        )
    )
    if not kept or len(kept) == len(desired.listeners):
        return None
    names = {one.pool for one in kept}
    return dataclasses.replace(
        desired,
        listeners=kept,
        pools=tuple(one for one in desired.pools if one.name in names),
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
