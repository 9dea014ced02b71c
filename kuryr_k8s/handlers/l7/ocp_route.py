"""The handler of OpenShift's Routes: which of them are ours, what they claim, and their status.

https://docs.openshift.com/container-platform/latest/networking/routes/route-configuration.html
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from kuryr_k8s import errors
from kuryr_k8s.handlers.base import Handler, HandlerContext, Watch
from kuryr_k8s.handlers.lag import written
from kuryr_k8s.handlers.routing import ClaimCache, Verdict, check_router_enabled
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import ROUTES, Key
from kuryr_k8s.model.ocp_route import GENERATED, OCPRoute, ingress_text
from kuryr_k8s.model.ocp_route_claims import (
    INVALID,
    KIND,
    NOT_ADMITTED,
    claim_of,
    host_of,
    is_generated,
)
from kuryr_k8s.model.ocp_route_status import Admission, entries
from kuryr_k8s.model.routes import Claim, Refusal

PARTLY = "PartlyServed"


class Unserved(errors.Refused):
    """Something that a Route asks for is not served."""

    reason = "KuryrRouteUnserved"


class OCPRouteHandler(Handler):
    """Tells the L7 router what Routes claim, and Routes what has become of that."""

    kind: ClassVar[str] = KIND

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        check_router_enabled("ocp_route", context.conf)
        options = context.conf.l7_router
        self._domain: str = options.route_domain
        self._canonical_hostname: str = options.route_canonical_hostname
        self._selected = _labels(options.route_labels)
        self._with_tls: bool = options.tls
        self._with_wildcards: bool = options.route_wildcards
        self._routing = context.routing
        self._routes = context.informers.of(ROUTES)
        self._claims = ClaimCache()
        self._routing.add_source(self)

    def watches(self) -> Sequence[Watch[Any]]:
        return (Watch(self._routes, self._route_changed),)

    def _route_changed(
        self, key: Key, old: OCPRoute | None, new: OCPRoute | None
    ) -> Iterable[Key]:
        if (old and old.essence) != (new and new.essence):
            self._routing.changed()
        if old is not None and (new is None or new.uid != old.uid):
            self._claims.forget(old.uid)
        return (key,)

    def claims(self) -> Iterator[Claim]:
        """Yield what all Routes of ours claim."""
        for route in self._routes.values():
            if self._is_ours(route) and not route.deleting:
                yield self._claim_of(route)

    async def claimants(self) -> set[str]:
        """Return the uids of all Routes of ours, by a live list."""
        try:
            listed = await self._context.kube.list_views(ROUTES)
        except errors.KubeNotFound:  # the cluster does not know Routes any more
            return set()
        return {each.uid for each in listed if not each.deleting and self._is_ours(each)}

    def address_changed(self) -> None:
        """Do nothing: no address stands in the status of a Route."""

    def _is_ours(self, route: OCPRoute) -> bool:
        return self._selected.issubset(route.labels)

    def _claim_of(self, route: OCPRoute) -> Claim:
        return self._claims.claim(
            route.uid,
            route.essence,
            lambda: claim_of(
                route,
                domain=self._domain,
                with_tls=self._with_tls,
                with_wildcards=self._with_wildcards,
            ),
        )

    async def reconcile(self, key: Key) -> float | None:
        route = self._routes.get(key)
        if route is None or route.deleting:
            return None
        if not self._is_ours(route) or self._routing.is_released:
            await self._write(key, route, None)
            return None
        if is_generated(route, self._domain) and self._claim_of(route).refusal is None:
            route = await self._choose_host(key, route)
        claim = self._claim_of(route)
        admission = self._admission(route, claim, self._routing.verdict(claim))
        if admission is not None:
            await self._write(key, route, admission)
            if admission.message:
                raise Unserved(admission.message)
        return None

    def _admission(
        self, route: OCPRoute, claim: Claim, verdict: Verdict | None
    ) -> Admission | None:
        """Return what to say of a Route; None if that is not known yet."""
        common = Admission(
            host=host_of(route, self._domain),
            wildcard_policy=route.wildcard_policy,
            is_admitted=False,
            canonical_hostname=self._canonical_hostname,
        )
        if verdict is not None and verdict.version != claim.version:
            verdict = None  # it is of what the Route said before
        refusal = claim.refusal or _refusal(verdict)
        if refusal is not None:
            return dataclasses.replace(common, reason=refusal.reason, message=refusal.message)
        if verdict is None or not verdict.is_served:
            return None
        problems = "; ".join((*claim.problems, *verdict.problems))
        return dataclasses.replace(
            common, is_admitted=True, reason=PARTLY if problems else "", message=problems
        )

    async def _choose_host(self, key: Key, route: OCPRoute) -> OCPRoute:
        """Write the host of a Route into it, as OpenShift's API server does."""
        patch = {
            "metadata": {
                "uid": route.uid,
                "resourceVersion": route.resource_version,
                "annotations": {GENERATED: "true"},
            },
            "spec": {"host": host_of(route, self._domain)},
        }
        patched = self._context.kube.merge_patch(ROUTES, key, patch)
        answer = await written(patched, self._routes, f"Route {key}")
        return OCPRoute.read(answer) if answer is not None else route

    async def _write(self, key: Key, route: OCPRoute, admission: Admission | None) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        wanted = entries(route.ingress, admission, now)
        if ingress_text(wanted) == route.ingress:
            return
        patched = self._context.kube.patch_status_of(ROUTES, key, route, {"ingress": wanted})
        await written(patched, self._routes, f"Route {key}")

    def about(self, key: Key) -> Reference | None:
        route = self._routes.get(key)
        return Reference.of(ROUTES, route) if route is not None else None


def _refusal(verdict: Verdict | None) -> Refusal | None:
    """Return why the router does not serve a Route; None if it does, or may yet."""
    if verdict is None:
        return None
    if verdict.refusal is not None:
        return verdict.refusal
    if verdict.has_no_routes:
        return Refusal(NOT_ADMITTED, "; ".join(verdict.problems))
    if verdict.is_closed:
        return Refusal(INVALID, "; ".join(verdict.problems))
    return None


def _labels(text: str) -> set[tuple[str, str]]:
    """Return the labels that an option names."""
    pairs = (each.partition("=") for each in text.split(",") if each)
    return {(name, value) for name, _, value in pairs}
