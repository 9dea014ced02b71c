"""L7Routers: what they ask for, their finalizer, and their status."""

from collections.abc import Iterator
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import FoundL7Router
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.conditions import new_condition, refused_condition
from kuryr_k8s.handlers.l7.desired import Router
from kuryr_k8s.handlers.lag import LAG, written
from kuryr_k8s.k8s.events import REPORTED_AT_ONCE, Reference
from kuryr_k8s.k8s.resources import L7ROUTERS, Key
from kuryr_k8s.model.condition import READY, Condition
from kuryr_k8s.model.l7router import FINALIZER, L7RouterObject
from kuryr_k8s.model.owner import Owner, Role

Json = dict[str, Any]
PREFIX = "kuryr-l7-router-"  # of the names of load balancers


class RouterObjects:
    """The L7Routers: a finalizer holds each until its load balancer is gone."""

    def __init__(self, context: HandlerContext) -> None:
        self._kube = context.kube
        self.cache = context.informers.of(L7ROUTERS)

    def keys(self) -> Iterator[Key]:
        """Yield the keys of all L7Routers."""
        for each in self.cache.values():
            yield Key("", each.name)

    def owners(self) -> dict[Owner, Key]:
        """Return the keys of all L7Routers by the owners of their load balancers."""
        return {_owner_of(each): Key("", each.name) for each in self.cache.values()}

    async def live_owners(self) -> set[Owner]:
        """Return the owners of the load balancers of all L7Routers, by a live list."""
        return {_owner_of(each) for each in await self._kube.list_views(L7ROUTERS)}

    def router(self, key: Key) -> Router | None:
        """Return what an L7Router asks for; None if there is none, or we have let it go."""
        found = self.cache.get(key)
        if found is None or (found.deleting and FINALIZER not in found.finalizers):
            return None
        return Router(
            name=found.name,
            owner=_owner_of(found),
            load_balancer=f"{PREFIX}{found.name}",
            spec=found.spec,
            former_vip_address=found.vip_address,
            is_leaving=found.deleting,
            generation=found.generation,
        )

    def about(self, key: Key) -> Reference | None:
        """Return the object on which people look for problems."""
        found = self.cache.get(key)
        return Reference.of(L7ROUTERS, found) if found is not None else None

    async def hold(self, key: Key) -> None:
        """Add our finalizer, before there is anything that it guards.

        :raises errors.Wait: the L7Router has changed, or is gone.
        """
        found = self.cache.get(key)
        if found is None or FINALIZER in found.finalizers:
            return
        meta = {
            "uid": found.uid,
            "resourceVersion": found.resource_version,
            "finalizers": [*found.finalizers, FINALIZER],
        }
        try:
            answer = await self._kube.merge_patch(L7ROUTERS, key, {"metadata": meta})
        except (errors.KubeConflict, errors.KubeNotFound) as error:
            raise errors.Wait(f"the cache lags behind L7Router {key}", delay=LAG) from error
        self.cache.learn(answer)

    async def let_go(self, key: Key, owner: Owner) -> None:
        """Remove our finalizer: the load balancer is gone."""
        found = self.cache.get(key)
        if found is None or _owner_of(found) != owner:
            return
        answer = await self._kube.remove_finalizers(
            L7ROUTERS, key, FINALIZER, uid=found.uid, known=found.finalizers
        )
        if answer is not None:
            self.cache.learn(answer)

    async def publish(
        self, router: Router, state: FoundL7Router | None, problem: errors.KuryrError | None
    ) -> None:
        """Write the status.

        :param state: None if the load balancer has not been ACTIVE yet.
        :param problem: why the router is not as it is asked for; None if it is.
        :raises errors.Wait: the L7Router has changed meanwhile.
        """
        key = Key("", router.name)
        found = self.cache.get(key)
        if found is None or _owner_of(found) != router.owner or found.deleting:
            return
        if found.generation != router.generation:
            raise errors.Wait(f"L7Router {key} has changed meanwhile", delay=LAG)
        status = dict(found.shown) | _status_of(state)
        ready = _ready(found, problem)
        status["observedGeneration"] = ready.generation
        wanted = {name: text for name, text in status.items() if text is not None}
        if dict(found.shown) == wanted and not ready.says_more_than(found.ready):
            return
        status["conditions"] = [ready.follows(found.ready).to_json(READY)]
        patched = self._kube.patch_status_of(L7ROUTERS, key, found, status)
        await written(patched, self.cache, f"L7Router {key}")


def _owner_of(found: L7RouterObject) -> Owner:
    return Owner(found.uid, Role.L7_ROUTER)


def _status_of(state: FoundL7Router | None) -> Json:
    """Return the fields that say where a router is; nothing of one that is not known."""
    if state is None:
        return {}
    return {
        "address": state.address,
        "vipAddress": state.found.vip_address,
        "floatingIP": state.floating_ip,
        "loadBalancerID": state.found.id,
        "provider": state.found.provider,
    }


def _ready(found: L7RouterObject, problem: errors.KuryrError | None) -> Condition:
    """Return the condition; as it was, where a problem may pass by itself."""
    if problem is None:
        return new_condition(found.generation, READY)
    if isinstance(problem, REPORTED_AT_ONCE):
        return refused_condition(found.generation, problem)
    if found.ready is not None:
        return found.ready
    return new_condition(found.generation, "Pending", "its load balancer is not as desired yet")
