"""Load balancers that a Service has outside, beside those of its ClusterIPs.

The first has the role EXTERNAL; that of a dual-stack Service's other family, EXTERNAL_SECOND.
"""

from collections.abc import Mapping

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import LBaaSDriver
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.services.desired import external_of, external_owners_of, family_of
from kuryr_k8s.handlers.services.limits import is_closed, is_limited
from kuryr_k8s.handlers.services.places import Places
from kuryr_k8s.handlers.services.reconcile import Outcome, Place, Reconcile
from kuryr_k8s.handlers.services.refusals import ASKED_BY, NotOffered
from kuryr_k8s.handlers.services.requests import Requests
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.load_balancer import ACTIVE, Address, FoundLoadBalancer
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.service import Service


class ExternalLoadBalancers:
    """The load balancers of all Services outside."""

    def __init__(self, context: HandlerContext, requests: Requests, places: Places) -> None:
        self._requests = requests
        self._lbaas = context.drivers[LBaaSDriver]
        self._places = places

    async def ensure(self, reconcile: Reconcile, *, both: bool) -> list[Outcome]:
        """Return the load balancers with VIPs of their own: the first, and perhaps a second one.

        :param both: a second one is wanted, if there is a place for it.
        """
        owner = reconcile.owner(Role.EXTERNAL)
        namespace, specs = reconcile.service.namespace, reconcile.given.specs
        place, *others = await self._places.of_vips(owner, namespace, reconcile.settings, specs)
        outcomes: list[Outcome] = []
        problem: errors.KuryrError | None = None
        try:
            outcomes.append(await self._ensure_at(reconcile, owner, place))
        except errors.KuryrError as error:
            problem = error  # Octavia can make both at a time
        second = others[0] if both and others else None
        outcomes += await self._ensure_second(reconcile, second)
        reconcile.outside_settled = len(reconcile.further) == (1 if second is None else 2)
        if problem is not None:
            raise problem
        return outcomes

    async def _ensure_second(self, reconcile: Reconcile, place: Place | None) -> list[Outcome]:
        """Return the load balancer of a dual-stack Service's other family, if there is one.

        What is wrong with it holds up nothing else.
        """
        owner = reconcile.owner(Role.EXTERNAL_SECOND)
        try:
            if place is not None:
                return [await self._ensure_at(reconcile, owner, place)]
            await self._requests.release(reconcile.key, owner)
        except errors.KuryrError as error:
            reconcile.problems.append(error)
        found = await self._lbaas.last_seen(owner) if place is not None else None
        return [] if found is None else [Outcome(found)]

    async def _ensure_at(self, reconcile: Reconcile, owner: Owner, place: Place) -> Outcome:
        """Return a load balancer outside; if it was ACTIVE once, also while it is being changed.

        :raises NotOffered: Octavia, or its provider, cannot do what is asked for.
        """
        given, settings = reconcile.given, reconcile.settings
        reconcile.asked.add(owner)
        try:
            outcome = await self._requests.ensure(
                reconcile.service, owner, external_of(given, place, owner.role)
            )
        except errors.Unsupported as error:
            raise NotOffered(
                f"{ASKED_BY.get(error.feature, 'load balancer')}: {error.brief}"
            ) from error
        except errors.Wait as error:
            found = await self._lbaas.last_seen(owner)
            if found is None or (is_limited(settings) and not is_closed(found, settings)):
                raise
            reconcile.problems.append(error)
            return Outcome(found)
        reconcile.further.append(outcome)
        return outcome

    async def exist(self, service: Service) -> bool:
        """Return whether the Service has one, or had one."""
        return any([await self._lbaas.ids_of(owner) for owner in external_owners_of(service)])

    async def with_members(self, reconcile: Reconcile, owner: Owner) -> list[Outcome] | None:
        """Return what the owner has that Octavia was asked for; None if it lacks members."""
        if not (await self._lbaas.ids_of(owner) or await self._lbaas.places_of(owner)):
            return []
        found = await self._lbaas.last_seen(owner)
        if found is None or not _has_members(found, reconcile.inner):
            return None
        return [Outcome(found)]

    async def release(self, key: Key, service: Service) -> None:
        """Remove them.

        :raises errors.Wait: Octavia is at work.
        :raises errors.Refused: one has to stay.
        """
        for owner in reversed(external_owners_of(service)):
            await self._requests.release(key, owner)
            self._places.forget(owner)


def _has_members(found: FoundLoadBalancer, inner: Mapping[str, Outcome]) -> bool:
    """Return whether a load balancer has the members of that of a ClusterIP of its family."""
    family = family_of(found.vip_address)
    alike = [outcome.found for vip, outcome in inner.items() if family_of(vip) == family]
    if not alike or found.statuses() != {ACTIVE}:
        return False
    return all(_members_of(each) <= _members_of(found) for each in alike)


def _members_of(found: FoundLoadBalancer) -> set[Address]:
    return {member.key for pool in found.pools for member in pool.pool.members}
