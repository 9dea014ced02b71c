"""The handler of Ingresses: which of them are ours, what they claim of which router, their status.

https://kubernetes.io/docs/concepts/services-networking/ingress/
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from kuryr_k8s import errors
from kuryr_k8s.handlers.base import Handler, HandlerContext, Watch
from kuryr_k8s.handlers.lag import LAG, written
from kuryr_k8s.handlers.routing import ClaimCache, Verdict, check_router_enabled
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import INGRESSCLASSES, INGRESSES, L7ROUTERS, Key
from kuryr_k8s.model.ingress import Ingress, IngressClass
from kuryr_k8s.model.ingress_routes import KIND, claim_of
from kuryr_k8s.model.l7router import L7RouterObject
from kuryr_k8s.model.routes import OWN_ROUTER, Claim
from kuryr_k8s.model.service import ingress_text

Json = dict[str, Any]
CONTROLLER = "openstack.org/kuryr-l7-router"  # spec.controller of our IngressClasses


class Unserved(errors.Refused):
    """Something that an Ingress asks for is not served."""

    reason = "KuryrIngressUnserved"


class IngressHandler(Handler):
    """Tells the L7 router what Ingresses claim, and Ingresses what has become of that."""

    kind: ClassVar[str] = KIND

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        check_router_enabled("ingress", context.conf)
        self._routing = context.routing
        self._ingresses = context.informers.of(INGRESSES)
        self._classes = context.informers.of(INGRESSCLASSES)
        self._routers = context.informers.of(L7ROUTERS)
        self._claims = ClaimCache()
        self._routing.add_source(self)

    def watches(self) -> Sequence[Watch[Any]]:
        return (
            Watch(self._ingresses, self._ingress_changed),
            Watch(self._classes, self._class_changed),
            Watch(self._routers, self._router_changed),
        )

    def _ingress_changed(
        self, key: Key, old: Ingress | None, new: Ingress | None
    ) -> Iterable[Key]:
        if _essence(old) != _essence(new):
            self._routing.changed()
        if old is not None and (new is None or new.uid != old.uid):
            self._claims.forget(old.uid)
        return (key,)

    def _class_changed(
        self, _key: Key, _old: IngressClass | None, _new: IngressClass | None
    ) -> Iterable[Key]:
        self._routing.changed()
        return [Key(each.namespace, each.name) for each in self._ingresses.values()]

    def _router_changed(
        self, key: Key, old: L7RouterObject | None, new: L7RouterObject | None
    ) -> Iterable[Key]:
        """Yield the Ingresses of a router that has come or gone."""
        if old is not None and new is not None and old.uid == new.uid:
            return
        classes = _by_name(self._classes.values())
        for each in self._ingresses.values():
            if _router_of(each, classes) == key.name:
                yield Key(each.namespace, each.name)

    def claims(self) -> Iterator[Claim]:
        """Yield what all Ingresses of ours claim."""
        classes = _by_name(self._classes.values())
        for ingress in self._ingresses.values():
            router = _router_of(ingress, classes)
            if router is not None and not ingress.deleting:
                yield self._claim_of(ingress, router)

    async def claimants(self) -> set[str]:
        """Return the uids of all Ingresses of ours, by live lists."""
        kube = self._context.kube
        listed, classes = await kube.list_views(INGRESSES), await kube.list_views(INGRESSCLASSES)
        named = _by_name(classes)
        return {
            each.uid
            for each in listed
            if not each.deleting and _router_of(each, named) is not None
        }

    def address_changed(self) -> None:
        """Look again at all Ingresses that have an address: it may be a former one of ours."""
        for ingress in self._ingresses.values():
            if ingress.ingress:
                self.queue.add(Key(ingress.namespace, ingress.name))

    def _claim_of(self, ingress: Ingress, router: str) -> Claim:
        return self._claims.claim(
            ingress.uid,
            (ingress.resource_version, router),
            lambda: dataclasses.replace(claim_of(ingress), router=router),
        )

    async def reconcile(self, key: Key) -> float | None:
        ingress = self._ingresses.get(key)
        if ingress is None or ingress.deleting:
            return None
        found = _class_of(ingress, _by_name(self._classes.values()))
        if found is None:
            await self._leave(key, ingress)
            return None
        if not found.is_understood:
            await self._leave(key, ingress)
            raise Unserved(
                f"IngressClass {found.name}: parameters can be an L7Router of openstack.org only"
            )
        claim = self._claim_of(ingress, found.router or OWN_ROUTER)
        if await self._is_missing(claim.router):
            await self._write(key, ingress, ())
            if claim.router == OWN_ROUTER:
                return None
            raise Unserved(f"IngressClass {found.name}: there is no L7Router {claim.router}")
        problems = claim.problems
        verdict = self._routing.verdict(claim)
        if verdict is not None:
            problems = (*problems, *verdict.problems)
            await self._write(key, ingress, _status(verdict))
        if problems:
            raise Unserved("; ".join(problems))
        return None

    async def _is_missing(self, router: str) -> bool:
        """Return whether there is no such router, or none any more."""
        if router == OWN_ROUTER:
            return self._routing.is_released
        key = Key("", router)
        return (
            self._routers.get(key) is None
            and await self._context.kube.find(L7ROUTERS, key) is None
        )

    async def _leave(self, key: Key, ingress: Ingress) -> None:
        """Take the address of a router of ours off an Ingress that is none of ours any more.

        :raises errors.Wait: it is ours, by a class that the cache does not show.
        """
        addresses = self._routing.addresses.values()
        if all(ingress.ingress != ingress_text([{"ip": address}]) for address in addresses):
            return
        classes = await self._context.kube.list_views(INGRESSCLASSES)
        if _router_of(ingress, _by_name(classes)) is not None:
            raise errors.Wait(f"the cache lags behind the class of Ingress {key}", delay=LAG)
        await self._write(key, ingress, ())

    async def _write(self, key: Key, ingress: Ingress, shown: Sequence[Json] | None) -> None:
        if shown is None or ingress_text(shown) == ingress.ingress:
            return
        status = {"loadBalancer": {"ingress": list(shown) or None}}
        patched = self._context.kube.patch_status_of(INGRESSES, key, ingress, status)
        await written(patched, self._ingresses, f"Ingress {key}")

    def about(self, key: Key) -> Reference | None:
        ingress = self._ingresses.get(key)
        return Reference.of(INGRESSES, ingress) if ingress is not None else None


def _status(verdict: Verdict) -> Sequence[Json] | None:
    """Return the ingress of the status; None if it stays as it is."""
    if verdict.has_no_routes:
        return ()
    return ({"ip": verdict.address},) if verdict.is_served else None


def _by_name(classes: Iterable[IngressClass]) -> dict[str, IngressClass]:
    return {each.name: each for each in classes}


def _class_of(ingress: Ingress, classes: Mapping[str, IngressClass]) -> IngressClass | None:
    """Return the class of an Ingress; None if it is not one of ours.

    :param classes: all of them, by their names.
    """
    if ingress.class_name is None:
        defaults = (each for each in classes.values() if each.is_default and _is_ours(each))
        return min(defaults, key=lambda each: each.name, default=None)
    named = classes.get(ingress.class_name)
    return named if named is not None and _is_ours(named) else None


def _router_of(ingress: Ingress, classes: Mapping[str, IngressClass]) -> str | None:
    """Return the name of the router that serves an Ingress; None if none of ours does."""
    found = _class_of(ingress, classes)
    if found is None or not found.is_understood:
        return None
    return found.router or OWN_ROUTER


def _is_ours(found: IngressClass) -> bool:
    return found.controller == CONTROLLER


def _essence(ingress: Ingress | None) -> object:
    """Return what decides about routes."""
    return ingress and (
        ingress.uid,
        ingress.class_name,
        ingress.has_default,
        ingress.default_backend,
        ingress.rules,
        ingress.tls,
        ingress.annotations,
        ingress.deleting,
    )
