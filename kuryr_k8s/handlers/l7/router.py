"""The handler of L7 routers: what all objects claim of a router becomes that router.

There is the cluster's own router, and one for each L7Router. Nobody deletes them but people: a
router is not gone because no Ingress needs it, nor because the controller stops.
"""

import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import FoundL7Router, L7RouterDriver
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.handlers.base import Handler, HandlerContext, Watch
from kuryr_k8s.handlers.l7.backends import Backends, ServicesOfRoutes
from kuryr_k8s.handlers.l7.desired import Router, backends_of, desired, secrets_of
from kuryr_k8s.handlers.l7.lost import Named, check_gone
from kuryr_k8s.handlers.l7.own_router import OwnRouter
from kuryr_k8s.handlers.l7.router_objects import RouterObjects
from kuryr_k8s.handlers.l7.tls import Division, divide, without_tls
from kuryr_k8s.handlers.l7.tls_secrets import TLSSecrets
from kuryr_k8s.handlers.l7.verdicts import RoutesMetric, counts_of, verdict_on
from kuryr_k8s.handlers.lag import LAG
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import ENDPOINTSLICES, SERVICES, TLSSECRETS, Key
from kuryr_k8s.model.l7router import L7RouterObject
from kuryr_k8s.model.owner import Owner
from kuryr_k8s.model.pod import Node
from kuryr_k8s.model.routes import OWN_ROUTER, Backend, Claim, Split
from kuryr_k8s.model.tls_secret import TLSSecret

LOG = logging.getLogger(__name__)
OWN = Key("", OWN_ROUTER)


class _Needs:
    """Hold the backends and certificates that a router needs, as they were looked at last.

    :param secrets: None if there is no TLS.
    """

    def __init__(self, backends: Backends, secrets: TLSSecrets | None) -> None:
        self.backends = backends
        self.secrets = secrets
        self.claimants: dict[str, str] | None = None  # kinds of those that had routes, by uid
        self._backends: dict[str, Backend | Split] = {}  # by the names of their pools
        self.counts: dict[str, int] = {}  # of routes, by their states

    def lost(self, router: Router, claims: Sequence[Claim]) -> set[Named]:
        """Return what pools and certificates were made of, and the caches lack now."""
        backends = self.followed(backends_of(router, claims))
        secrets = self.secrets.lost(secrets_of(router, claims)) if self.secrets else []
        return {
            *((SERVICES, key) for key in self.backends.lost(backends)),
            *((ENDPOINTSLICES, key) for key in self.backends.lost_slices(backends)),
            *((TLSSECRETS, key) for key in secrets),
        }

    def followed(self, wanted: Iterable[Backend | Split]) -> list[Backend | Split]:
        """Return the backends that are wanted, and those that were, to which policies may lead.

        The members of the latter change as well.
        """
        self._backends |= {str(each): each for each in wanted}
        return list(self._backends.values())

    def forget_but(self, pools: Collection[str]) -> None:
        """Forget all backends but those of these pools."""
        self._backends = {name: each for name, each in self._backends.items() if name in pools}


class L7RouterHandler(Handler):
    """Keeps the L7 routers, and publishes their states."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._driver = context.drivers[L7RouterDriver]
        self._routing = context.routing
        self._own = OwnRouter(context)
        self._objects = RouterObjects(context)
        self._services = ServicesOfRoutes(context, self._leading_to)
        self._has_tls: bool = context.conf.l7_router.tls
        self._needs: dict[Key, _Needs] = {}
        self._strays: set[Owner] = set()  # routers that nobody wanted at the last review
        self._leaving: set[Owner] = set()  # those that are being removed
        self._driver.subscribe(self._can_go_on)
        self._routing.subscribe(self._claims_changed)
        self._reviews: WorkQueue[str] = WorkQueue(context.clock, cap=context.patience.sweep_retry)
        self._reviews.add_after("", context.conf.neutron_defaults.sweep_interval)

    # -- what there is to do

    def watches(self) -> Sequence[Watch[Any]]:
        secrets = self._context.informers.of(TLSSECRETS) if self._has_tls else None
        return (
            Watch(self._own.nodes, self._of_node),
            Watch(self._objects.cache, self._of_object),
            *self._services.watches(),
            *((Watch(secrets, self._of_secret),) if secrets is not None else ()),
        )

    def _of_node(self, _key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
        """Return the own router's key where a Node is new, or has lost its annotation."""
        is_other = new is not None and (old is None or old.uid != new.uid)
        return (OWN,) if is_other or self._own.has_lost(new) else ()

    def _of_object(
        self, key: Key, old: L7RouterObject | None, new: L7RouterObject | None
    ) -> Iterable[Key]:
        return (key,) if _essence(old) != _essence(new) else ()

    def _of_secret(
        self, key: Key, _old: TLSSecret | None, _new: TLSSecret | None
    ) -> Iterable[Key]:
        return [
            router
            for router, needs in self._needs.items()
            if needs.secrets is not None and key in needs.secrets.named
        ]

    def _leading_to(self, services: AbstractSet[Key]) -> Iterable[Key]:
        return [router for router, needs in self._needs.items() if needs.backends.named & services]

    def _can_go_on(self, owner: Owner) -> None:
        if owner in self._leaving:
            self._reviews.add("")
        else:
            self.queue.wake(self._objects.owners().get(owner, OWN))

    def _claims_changed(self) -> None:
        for key in self._keys():
            self.queue.add(key)

    def _keys(self) -> Iterator[Key]:
        yield OWN
        yield from self._objects.keys()

    def collectors(self) -> Sequence[Collector]:
        return (
            RoutesMetric(lambda: {key.name: each.counts for key, each in self._needs.items()}),
        )

    def loops(self) -> Sequence[Controller[Any]]:
        """Return the loop that now and then looks at what others have changed."""
        return (
            Controller(
                "l7-router-review",
                self._review,
                queue=self._reviews,
                workers=1,
                observe=self._context.observe,
                patience=self._context.patience,
            ),
        )

    async def _review(self, _name: str) -> float:
        """Have the routers compared with what the cloud has.

        :returns: seconds until the next time.
        """
        owners = await self._driver.review()
        self._own.doubt()
        for key in self._keys():
            self.queue.revisit(key)
        await self._remove_strays(owners)
        return float(self._context.conf.neutron_defaults.sweep_interval)

    async def _remove_strays(self, owners: Iterable[Owner]) -> None:
        """Remove the routers whose L7Routers are gone, though our finalizer held them.

        They were seen without one at the review before as well, and a live list has none. Their
        certificates go when their load balancers are gone, which are in no list any more then.
        """
        known = {self._own.router().owner, *self._objects.owners()}
        before, self._strays = self._strays, {each for each in owners if each not in known}
        if confirmed := (before & self._strays) - self._leaving:
            live = await self._objects.live_owners()
            for owner in confirmed - live:
                LOG.warning("router %s belongs to no L7Router; it is removed", owner)
                self._leaving.add(owner)
        for owner in tuple(self._leaving):
            await self._driver.release(owner)
            self._leaving.discard(owner)

    # -- one router

    async def reconcile(self, key: Key) -> float | None:
        router = self._own.router() if key == OWN else self._objects.router(key)
        if router is None:
            self._needs.pop(key, None)
            self._routing.publish(key.name, self._routing.claims(key.name), {}, "")
            return None
        needs = self._needs.get(key)
        if needs is None:
            needs = self._needs[key] = self._new_needs()
        claims = self._routing.claims(router.name)
        if router.is_leaving:
            await self._release(key, router, claims)
            return None
        if key != OWN:
            await self._objects.hold(key)
        await self._check_lost(needs, router, claims)
        division = self._divided(needs, router, claims)
        backends = backends_of(router, claims)
        pools = needs.backends.pools(needs.followed(backends))
        project_id = self._context.conf.neutron_defaults.project
        wanted = desired(router, project_id, division, backends, pools)
        try:
            state = await self._driver.ensure(wanted)
        except errors.KuryrError as error:
            with contextlib.suppress(errors.KuryrError):
                before = await self._driver.state(wanted)
                if before is not None:
                    needs.forget_but({each.pool.name for each in before.found.pools})
                    self._report(needs, router, claims, division, before)
                await self._publish(router, before, error)
            if not isinstance(error, errors.Wait):
                # many users wait for it: what one of them cannot have holds up nobody for long
                self.queue.add_after(key, self._context.patience.refused)
            raise
        needs.forget_but({str(each) for each in backends})
        self._report(needs, router, claims, division, state)
        problem = self._problem(needs, router, division)
        await self._publish(router, state, problem)
        if problem is not None:
            raise problem
        return needs.backends.until_reported()

    def _new_needs(self) -> _Needs:
        context = self._context
        secrets = TLSSecrets(context) if self._has_tls else None
        return _Needs(Backends(context, self._services), secrets)

    async def _release(self, key: Key, router: Router, claims: Sequence[Claim]) -> None:
        """Remove a router, and what was published of it."""
        await self._driver.release(router.owner)
        self._routing.publish(router.name, claims, {}, "")
        if key == OWN:
            await self._own.retract()
        else:
            await self._objects.let_go(key, router.owner)
        self._needs.pop(key, None)

    async def _check_lost(self, needs: _Needs, router: Router, claims: Sequence[Claim]) -> None:
        """Make sure that nothing loses its routes because a cache lacks it.

        :raises errors.Wait: an object exists that the caches do not show.
        """
        await self._check_claimants(needs, claims)
        gone: set[Named] = set()
        # after each answer once more: what follows goes by the caches as they are then
        while lost := needs.lost(router, claims) - gone:
            await check_gone(self._context.kube, lost)
            gone |= lost

    async def _check_claimants(self, needs: _Needs, claims: Sequence[Claim]) -> None:
        """Make sure that whoever had routes, and claims none any more, is gone.

        :raises errors.Wait: an object exists that the caches do not show.
        """
        found = {claim.uid: claim.kind for claim in claims}
        before = needs.claimants
        if before is None or before.keys() - found:
            kinds = None if before is None else {before[uid] for uid in before.keys() - found}
            live = await self._routing.claimants(kinds)
            # who is new did not have routes; at the first time, nor who came while we asked
            had_routes = live if before is None else live & before.keys()
            lost = had_routes - found.keys() - self._routing.uids()
            if lost:
                raise errors.Wait(
                    f"the caches lag behind {len(lost)} objects that claim routes", delay=LAG
                )
        needs.claimants = found

    def _divided(self, needs: _Needs, router: Router, claims: Sequence[Claim]) -> Division:
        """Return what is served in plain HTTP and what over TLS."""
        if needs.secrets is None:
            return without_tls(claims)
        needs.secrets.follow(secrets_of(router, claims))
        return divide(claims, needs.secrets.certificate, router.spec.default_certificate)

    def _problem(self, needs: _Needs, router: Router, division: Division) -> errors.Refused | None:
        """Return why the router is not as its operator asks for; None if it is."""
        backend, secret = router.spec.default_backend, router.spec.default_certificate
        if backend is not None and (problem := needs.backends.problem(backend)):
            return errors.Refused(f"{_option(router, 'backend')}: {problem}")
        if secret is not None and needs.secrets is None:
            return errors.Refused(f"{_option(router, 'certificate')}: it needs [l7_router] tls")
        if division.default_problem:
            return errors.Refused(f"{_option(router, 'certificate')}: {division.default_problem}")
        return None

    def _report(
        self,
        needs: _Needs,
        router: Router,
        claims: Sequence[Claim],
        division: Division,
        state: FoundL7Router,
    ) -> None:
        """Report what has become of claims: to their objects, and in the metric."""
        verdicts = {
            claim.uid: verdict_on(claim, needs.backends, division, state) for claim in claims
        }
        self._routing.publish(router.name, claims, verdicts, state.address)
        needs.counts = counts_of(claims, division, state)

    async def _publish(
        self, router: Router, state: FoundL7Router | None, problem: errors.KuryrError | None
    ) -> None:
        """Write where a router is."""
        if router.name != OWN_ROUTER:
            await self._objects.publish(router, state, problem)
        elif state is not None:
            await self._own.publish(state)

    def about(self, key: Key) -> Reference | None:
        return self._own.about() if key == OWN else self._objects.about(key)


def _essence(found: L7RouterObject | None) -> object:
    """Return what decides about a router; its status does not."""
    return found and (found.uid, found.generation, found.deleting, found.finalizers)


def _option(router: Router, what: str) -> str:
    """Return where an operator has asked for a default backend or certificate."""
    if router.name == OWN_ROUTER:
        return f"[l7_router] default_{what}"
    return f"spec.default{what.capitalize()}"
