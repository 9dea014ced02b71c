"""Octavia's HTTP: routes, bodies, status codes, and who may do what."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp import web

from tests.kit.fakes.neutron.api import NeutronAPI
from tests.kit.fakes.neutron.policy import Context

from . import errors, listing, providers
from .balancers import Balancers
from .changes import Changes
from .kinds import (
    HEALTH_MONITOR,
    L7POLICY,
    L7RULE,
    LISTENER,
    LOAD_BALANCER,
    MEMBER,
    POOL,
    Kind,
)
from .monitors import Monitors
from .parts import Parts
from .policies import Policies
from .progress import Progress
from .store import Store
from .views import Views

Json = dict[str, Any]
ROOT = "/load-balancer"


class OctaviaAPI:
    """All that answers below /load-balancer, and what tests do to it.

    :param context_of: says who makes a request, or refuses it.
    """

    def __init__(
        self,
        neutron: NeutronAPI,
        context_of: Callable[[web.Request], Context],
        notify: Callable[[], None],
    ) -> None:
        self.newest = 30  # the API's version is 2.30
        self.max_limit = 1000  # Octavia's pagination_max_limit
        self.max_body = 114688  # [oslo_middleware] max_request_body_size
        self.store = Store()
        self._context_of = context_of
        self._views = Views(self.store)
        self._balancers = Balancers(
            self.store, neutron, self._check_quota, newest=lambda: self.newest
        )
        self.progress = Progress(self.store, self._balancers.discard, notify)
        changes = Changes(self.store, self.progress)
        self._parts = Parts(self.store, changes, self._check_quota, neutron.store.subnets)
        self._monitors = Monitors(self.store, changes, self._check_quota)
        self._policies = Policies(self.store, changes, self._check_quota)

    def routes(self) -> list[web.RouteDef]:
        """Every route; the SDK takes v2.0 unasked, and the list of versions says v2."""
        versions = [web.get(ROOT, self._versions), web.get(f"{ROOT}/", self._versions)]
        return [*versions, *self._routes(f"{ROOT}/v2.0/lbaas"), *self._routes(f"{ROOT}/v2/lbaas")]

    def _routes(self, base: str) -> list[web.RouteDef]:
        members = f"{base}/pools/{{pool_id}}/members"
        rules = f"{base}/l7policies/{{policy_id}}/rules"
        result = [
            web.get(f"{base}/providers", self._providers),
            web.put(f"{base}/quotas/{{id}}", self._set_quota),
            web.delete(f"{base}/quotas/{{id}}", self._forget_quota),
            web.get(f"{base}/loadbalancers/{{id}}/status", self._status),
            web.get(members, self._list_members),
            web.put(members, self._set_members),
            web.post(members, self._create_member),
            web.get(f"{members}/{{id}}", partial(self._show, MEMBER)),
            web.delete(f"{members}/{{id}}", partial(self._delete, MEMBER)),
            web.get(rules, self._list_rules),
            web.post(rules, self._create_rule),
            web.put(f"{rules}/{{id}}", partial(self._update, L7RULE)),
            web.delete(f"{rules}/{{id}}", partial(self._delete, L7RULE)),
        ]
        for kind in (LOAD_BALANCER, LISTENER, POOL, HEALTH_MONITOR, L7POLICY):
            path = f"{base}/{kind.plural}"
            result += [
                web.get(path, partial(self._list, kind)),
                web.post(path, partial(self._create, kind)),
                web.get(f"{path}/{{id}}", partial(self._show, kind)),
                web.put(f"{path}/{{id}}", partial(self._update, kind)),
                web.delete(f"{path}/{{id}}", partial(self._delete, kind)),
            ]
        return result

    # What tests look at and do.

    def tree(self, load_balancer_id: str) -> Json:
        """What the load balancer is and has, in the same order always, without ids."""
        return self._views.tree(self.store.of(LOAD_BALANCER)[load_balancer_id])

    def set_error(self, resource_id: str, *, forwards: bool = False) -> None:
        """A load balancer, or anything in one, fails; nothing else of it does.

        With `forwards`, only the control plane has failed.
        """
        part = self.store.part(resource_id)
        assert part is not None
        self.store.set_status(part, "ERROR")
        if not forwards:
            part["operating_status"] = "ERROR"

    def recover(self, address: str) -> None:
        """A member answers its health monitor at last, under all of its ports."""
        self.progress.unhealthy.discard(address)
        for member in self.store.of(MEMBER).values():
            if member["address"] == address and member["operating_status"] == "OFFLINE":
                member["operating_status"] = "ONLINE"

    def remove(self, resource_id: str) -> None:
        """A load balancer (with its port), or anything in one, vanishes."""
        self._balancers.discard(resource_id)

    def strand(self, load_balancer_id: str, *, immutable: bool) -> None:
        """A load balancer vanishes, with its port; what is in it stays, perhaps for ever."""
        self._balancers.strand(load_balancer_id, immutable=immutable)

    def set_quota(self, project_id: str, **limits: int) -> None:
        """How many of «loadbalancer», «listener», «pool», … it may have; -1: any number."""
        self.store.quotas.setdefault(project_id, {}).update(limits)

    # Answering.

    def check_size(self, body: bytes) -> None:
        """Refuse a request that is too large; that comes before all else."""
        if len(body) > self.max_body:
            raise errors.too_large()

    async def _versions(self, request: web.Request) -> web.Response:
        link = {"rel": "self", "href": f"{request.url.origin()}{ROOT}/v2"}
        versions = [
            {"id": f"v2.{minor}", "updated": "2025-02-26T00:00:00Z", "links": [link]}
            | {"status": "CURRENT" if minor == self.newest else "SUPPORTED"}
            for minor in range(self.newest + 1)
        ]
        return web.json_response({"versions": versions})

    async def _providers(self, request: web.Request) -> web.Response:
        self._context_of(request)
        listed = [{"name": a, "description": b} for a, b in providers.PROVIDERS.items()]
        return web.json_response({"providers": listed})

    async def _list(self, kind: Kind, request: web.Request) -> web.Response:
        context = self._context_of(request)
        asked = request.query.get("project_id")
        if not context.is_admin:
            _check(context, asked or context.project_id, "reader")
            asked = context.project_id
        owner = request.query.get("loadbalancer_id")
        some = self.store.parts(kind, owner) if owner else self.store.of(kind).values()
        mine = (resource for resource in some if asked in (None, resource["project_id"]))
        found = listing.select(kind, mine, request.query)
        return self._page(kind, found, request)

    async def _list_members(self, request: web.Request) -> web.Response:
        pool = self._pool_above(request, "reader")
        found = listing.select(MEMBER, self.store.members(pool["id"]), request.query)
        return self._page(MEMBER, found, request)

    def _page(self, kind: Kind, found: list[Json], request: web.Request) -> web.Response:
        some, links = listing.page(found, request.url, self.max_limit)
        fields = request.query.getall("fields", [])
        shown = [listing.cut(self._views.show(kind, resource), fields) for resource in some]
        return web.json_response({kind.plural: shown, f"{kind.plural}_links": links})

    async def _show(self, kind: Kind, request: web.Request) -> web.Response:
        shown = self._views.show(kind, self._find(request, kind, "reader"))
        fields = request.query.getall("fields", [])
        return web.json_response({kind.name: listing.cut(shown, fields)})

    async def _status(self, request: web.Request) -> web.Response:
        load_balancer = self._find(request, LOAD_BALANCER, "reader")
        tree = {"loadbalancer": self._views.statuses(load_balancer)}
        return web.json_response({"statuses": tree})

    async def _create(self, kind: Kind, request: web.Request) -> web.Response:
        context, body = self._context_of(request), await _body(request, kind)
        if kind is LOAD_BALANCER:
            body.setdefault("project_id", body.get("tenant_id") or context.project_id)
            _check(context, body["project_id"], "member")
            made = self._balancers.create(body, self.progress)
            return web.json_response({kind.name: self._views.full(made)}, status=201)
        create = {
            LISTENER.name: self._parts.create_listener,
            POOL.name: self._parts.create_pool,
            HEALTH_MONITOR.name: self._monitors.create,
            L7POLICY.name: self._policies.create,
        }[kind.name]
        made = create(body, lambda project_id: _check(context, project_id, "member"))
        return web.json_response({kind.name: self._views.show(kind, made)}, status=201)

    async def _update(self, kind: Kind, request: web.Request) -> web.Response:
        changes = await _body(request, kind)
        resource = self._find(request, kind, "member")
        if kind is LOAD_BALANCER:
            self._balancers.update(resource, changes, self.progress)
        elif kind is LISTENER:
            self._parts.update_listener(resource, changes)
        elif kind is POOL:
            self._parts.update_pool(resource, changes)
        elif kind is L7POLICY:
            self._policies.update(resource, changes)
        elif kind is L7RULE:
            self._policies.update_rule(resource, changes)
        else:
            self._monitors.update(resource, changes)
        return web.json_response({kind.name: self._views.show(kind, resource)})

    async def _delete(self, kind: Kind, request: web.Request) -> web.Response:
        resource = self._find(request, kind, "member")
        if kind is LOAD_BALANCER:
            cascade = request.query.get("cascade", "").lower() in ("true", "1")
            self._balancers.delete(resource, self.progress, cascade=cascade)
        elif kind is LISTENER:
            self._parts.delete_listener(resource)
        elif kind is POOL:
            self._parts.delete_pool(resource)
        elif kind is MEMBER:
            self._parts.delete_member(resource)
        elif kind is L7POLICY:
            self._policies.delete(resource)
        elif kind is L7RULE:
            self._policies.delete_rule(resource)
        else:
            self._monitors.delete(resource)
        return web.Response(status=204)

    async def _set_members(self, request: web.Request) -> web.Response:
        bodies = (await request.json())["members"]
        pool = self._pool_above(request, "member")
        additive = request.query.get("additive_only", "").lower() in ("true", "1")
        self._parts.set_members(pool, bodies, additive=additive)
        return web.Response(status=202)

    async def _create_member(self, request: web.Request) -> web.Response:
        body = await _body(request, MEMBER)
        made = self._parts.create_member(self._pool_above(request, "member"), body)
        return web.json_response({MEMBER.name: self._views.show(MEMBER, made)}, status=201)

    async def _list_rules(self, request: web.Request) -> web.Response:
        policy = self._find(request, L7POLICY, "reader", "policy_id")
        found = listing.select(L7RULE, self.store.rules(policy["id"]), request.query)
        return self._page(L7RULE, found, request)

    async def _create_rule(self, request: web.Request) -> web.Response:
        body = await _body(request, L7RULE)
        policy = self._find(request, L7POLICY, "member", "policy_id")
        made = self._policies.create_rule(policy, body)
        return web.json_response({L7RULE.name: self._views.show(L7RULE, made)}, status=201)

    async def _set_quota(self, request: web.Request) -> web.Response:
        self._check_admin(request)
        project_id = request.match_info["id"]
        self.set_quota(project_id, **(await request.json())["quota"])
        return web.json_response({"quota": self.store.quotas[project_id]}, status=202)

    async def _forget_quota(self, request: web.Request) -> web.Response:
        self._check_admin(request)
        self.store.quotas.pop(request.match_info["id"], None)
        return web.Response(status=202)

    def _check_admin(self, request: web.Request) -> None:
        if not self._context_of(request).is_admin:
            raise errors.forbidden()

    def _check_quota(self, kind: Kind, project_id: str, more: int) -> None:
        limit = self.store.quotas.get(project_id, {}).get(kind.name, -1)
        if limit >= 0 and self.store.count(kind, project_id) + more > limit:
            raise errors.over_quota(kind.title)

    def _pool_above(self, request: web.Request, role: str) -> Json:
        """The pool that members are asked for below."""
        pool_id = request.match_info["pool_id"]
        if pool_id not in self.store.of(POOL):
            raise errors.missing_above(POOL.title, pool_id)
        return self._find(request, POOL, role, "pool_id")

    def _find(self, request: web.Request, kind: Kind, role: str, name: str = "id") -> Json:
        """The resource of the path; 403 for those who may not."""
        context = self._context_of(request)
        resource = self.store.get(kind, request.match_info[name])
        _check(context, resource["project_id"], role)
        return resource


def _check(context: Context, project_id: str, role: str) -> None:
    """`service` is worth nothing here, and other projects' are not hidden, but forbidden."""
    if not (context.is_admin or context.owns({"project_id": project_id}, role)):
        raise errors.forbidden()


async def _body(request: web.Request, kind: Kind) -> Json:
    try:
        return dict((await request.json())[kind.name])
    except (KeyError, TypeError, ValueError):
        raise errors.bad_input(kind.name, "None", "Mandatory field missing.") from None
