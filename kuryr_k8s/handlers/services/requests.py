"""Requests to the LBaaS driver, and what has come of them: for each Service and owner.

What changes within a second is one change. What the provider refuses is left out, if the rest can
be had: so an annotation that the provider cannot follow takes nobody's ClusterIP away. Octavia
also answers 400 where Neutron did not answer it, and 403 just after its start. So what Octavia
does not call impossible is asked again soon, and nothing is left out for a single such answer.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import LBaaSDriver, OthersAtWork, PortTaken
from kuryr_k8s.engine.clock import Clock
from kuryr_k8s.handlers.services.reconcile import Outcome, ServedPort
from kuryr_k8s.handlers.services.refusals import Refusal, shape_of, without_refused
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.load_balancer import FoundLoadBalancer, LoadBalancer
from kuryr_k8s.model.owner import Owner
from kuryr_k8s.model.service import Service

PACE = 1.0  # seconds between two changes of one load balancer, at least
LAYERS = {"HTTP": "TCP", "TERMINATED_HTTPS": "TCP"}  # listener's protocol → the Service port's


@dataclass(slots=True)
class _Asked:
    """Request to the driver, since when it stands, and whether it has been met.

    :param served: what was so last, but for the members; None if nothing was yet.
    """

    desired: LoadBalancer
    at: float
    into: str | None = None
    done: bool = False
    served: LoadBalancer | None = None


class Requests:
    """Requests of all Services.

    :param wake: called with the Service's key when a request that had to wait can go on.
    :param changed: called when a load balancer that matched its desired state no longer does.
    """

    def __init__(
        self,
        lbaas: LBaaSDriver,
        clock: Clock,
        wake: Callable[[Key], None],
        changed: Callable[[Service], Awaitable[None]],
    ) -> None:
        self._lbaas = lbaas
        self._clock = clock
        self._changed = changed
        self._asked: dict[Key, dict[Owner, _Asked]] = {}
        self._refusals: dict[Owner, Refusal] = {}
        self._keys: dict[str, Key] = {}  # by the uid of the Service
        self._uids: defaultdict[Key, set[str]] = defaultdict(set)
        self.wake = wake
        lbaas.subscribe(self._owner_woken)

    def owners(self, key: Key) -> list[Owner]:
        """Return the owners whose load balancers this process has asked for."""
        return list(self._asked.get(key, ()))

    def since(self, key: Key, owner: Owner) -> float:
        """Return when the last change was asked for."""
        return self._asked[key][owner].at

    async def ensure(
        self,
        service: Service,
        owner: Owner,
        desired: LoadBalancer,
        plain: LoadBalancer | None = None,
        into: str | None = None,
    ) -> Outcome:
        """Return the load balancer, or what of it the provider can do and others leave free.

        :param plain: what to have if nothing less can be had; its algorithm replaces one that is
            refused.
        :param into: id of the load balancer of another owner in which all of it is to be.
        :raises errors.Wait: Octavia is at work; or there was a change less than a second ago.
        """
        shape, before = shape_of(desired), self._refusals.get(owner)
        if plain is not None and shape_of(plain) == shape:
            plain = None
        refusal = await self._standing_refusal(owner, desired, plain, into)
        if refusal is None:
            try:
                outcome = await self._ask(service, owner, desired, into)
            except errors.BadRequest as error:
                asked = self._asked[_key(service)][owner]
                asked.at = -PACE  # what is asked for next is no further change
                if asked.served == shape:
                    raise  # the members, or something that passes: the rest was accepted before
                now = self._clock.now()
                again = before is not None and before.concerns(shape, into, now)
                certain = isinstance(error, errors.Unsupported) or (again and plain is not None)
                refusal = Refusal(shape, now, (error,), into, certain)
                self._refusals[owner] = refusal
                if not certain:
                    raise
            else:
                self._refusals.pop(owner, None)
                return outcome
        return await self._ask_for_less(service, owner, desired, refusal, plain)

    async def follow(
        self, key: Key, owner: Owner, wanted: Callable[[FoundLoadBalancer], LoadBalancer]
    ) -> list[FoundLoadBalancer]:
        """Have only the members follow of what the owner has; see :meth:`LBaaSDriver.follow`.

        :raises errors.Wait: Octavia is at work.
        """
        self._note(key, owner)
        asked = self._asked.get(key, {}).get(owner)
        if asked is not None:
            asked.done = False  # what it is not any more, it is not by others
        return await self._lbaas.follow(owner, wanted)

    async def _standing_refusal(
        self, owner: Owner, desired: LoadBalancer, plain: LoadBalancer | None, into: str | None
    ) -> Refusal | None:
        """Return the refusal that need not be heard again.

        :returns: None if the load balancer is to be asked for. One that exists is, if nothing less
            can be asked for: in all that is not refused, above all its members, it follows.
        """
        refusal = self._refusals.get(owner)
        if refusal is None or not refusal.certain:
            return None
        if not refusal.concerns(shape_of(desired), into, self._clock.now()):
            return None
        can_be_less = plain is not None or without_refused(desired, refusal.answers) is not None
        if can_be_less or refusal.limits:
            return refusal
        exists = into is not None or await self._lbaas.last_seen(owner) is not None
        return None if exists else refusal

    async def _ask_for_less(
        self,
        service: Service,
        owner: Owner,
        desired: LoadBalancer,
        refusal: Refusal,
        plain: LoadBalancer | None,
    ) -> Outcome:
        """Return the load balancer without what is refused."""
        less = without_refused(desired, refusal.answers, plain) or plain
        while less is not None:
            try:
                outcome = await self._ask(service, owner, less, refusal.into)
            except errors.BadRequest as error:
                asked = self._asked[_key(service)][owner]
                if asked.served == shape_of(less):
                    raise
                answers = (*refusal.answers, error)
                fewer = without_refused(desired, answers, plain)
                if fewer is None and plain in (None, less):
                    raise
                asked.at = -PACE
                refusal = dataclasses.replace(refusal, answers=answers)
                self._refusals[owner] = refusal
                less = fewer or plain
            else:
                return _without(desired, less, refusal, outcome)
        raise refusal.answers[-1]

    async def is_shared(self, key: Key, owner: Owner) -> bool:
        """Return whether others have parts in the owner's load balancer.

        If so, the Service is looked at again when they have changed it.
        """
        self._note(key, owner)
        return await self._lbaas.is_shared(owner)

    async def release(self, key: Key, owner: Owner, *, refused: bool = False) -> None:
        """Remove what was made for the owner; return when it is gone.

        :param refused: it is still asked for; that it cannot be had is remembered.
        :raises errors.Wait: Octavia is at work on it.
        """
        self._note(key, owner)
        await self._lbaas.release(owner)
        refusal = self._refusals.get(owner)
        self.forget(key, owner)
        if refused and refusal is not None:
            self._refusals[owner] = refusal

    def forget(self, key: Key, owner: Owner) -> None:
        """Forget what was asked for the owner."""
        self._refusals.pop(owner, None)
        asked = self._asked.get(key, {})
        asked.pop(owner, None)
        if not asked:
            self._asked.pop(key, None)

    def finish(self, key: Key) -> None:
        """Wake the Service no more: nothing is asked for it."""
        for uid in self._uids.pop(key, ()):
            self._keys.pop(uid, None)

    def _note(self, key: Key, owner: Owner) -> None:
        self._keys[owner.uid] = key
        self._uids[key].add(owner.uid)

    def _owner_woken(self, owner: Owner) -> None:
        key = self._keys.get(owner.uid)
        if key is not None:
            self.wake(key)

    async def _ask(
        self, service: Service, owner: Owner, desired: LoadBalancer, into: str | None
    ) -> Outcome:
        """Ask the driver, at most once a second for a change.

        :raises PortTaken: others have all of the ports.
        """
        key, now = _key(service), self._clock.now()
        self._note(key, owner)
        requests = self._asked.setdefault(key, {})
        asked = requests.get(owner)
        if asked is None or (asked.desired, asked.into) != (desired, into):
            if asked is not None and now - asked.at < PACE:
                raise errors.Wait(f"Service {key} changes often", delay=asked.at + PACE - now)
            served = asked.served if asked is not None and asked.into == into else None
            requests[owner] = asked = _Asked(desired, now, into, served=served)
        try:
            if into is None:
                outcome = Outcome(await self._lbaas.ensure(owner, desired))
            else:
                outcome = Outcome(await self._lbaas.attach(owner, into, desired))
        except OthersAtWork:
            raise
        except errors.Wait:
            if asked.done:
                asked.done = False
                await self._changed(service)
            raise
        except PortTaken as taken:
            if len(taken.ports) == len(desired.listeners):
                raise
            refused = {
                _served_port(port): f"the port is taken {by}" for port, by in taken.ports.items()
            }
            outcome = Outcome(taken.found, refused)
        asked.done, asked.served = True, shape_of(asked.desired)
        return outcome


def _without(
    desired: LoadBalancer, less: LoadBalancer, refusal: Refusal, outcome: Outcome
) -> Outcome:
    """Return the outcome, with what was left out of it."""
    text = "; ".join(error.brief for error in refusal.answers)
    kept = {listener.key for listener in less.listeners}
    left_out = [each.key for each in desired.listeners if each.key not in kept]
    refused = {_served_port(front): text for front in left_out}
    return Outcome(outcome.found, {**outcome.refused, **refused}, note=None if left_out else text)


def _key(service: Service) -> Key:
    return Key(service.namespace, service.name)


def _served_port(front: tuple[str, int]) -> ServedPort:
    """Return the Service's port that a listener is for."""
    protocol, port = front
    return ServedPort(LAYERS.get(protocol, protocol), port)
