"""Neutron's HTTP: routes, bodies, status codes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from aiohttp import web

from tests.kit.fakes.faults import BREAK, Answer, Break

from . import errors
from .floating_ips import FloatingIPs
from .kinds import FLOATING_IP, KINDS, PORT, ROUTER, TRUNK, Kind
from .listing import Listing, select
from .policy import Context, Policy
from .ports import Ports
from .resources import Resources
from .routers import Interfaces, Routers
from .store import Store
from .trunks import Subports, Trunks

Json = dict[str, Any]

# With ML2/OVN the list never names tag-ports-during-bulk-creation, whether its driver is loaded
# (tags in the body of a create are kept) or not (they are dropped in silence).
EXTENSIONS = (
    "address-group", "address-scope", "agent", "allowed-address-pairs", "availability_zone",
    "binding", "binding-extended", "default-subnetpools", "dns-domain-ports",
    "dns-integration", "empty-string-filtering", "ext-gw-mode", "external-net",
    "extra_dhcp_opt", "filter-validation", "ip-substring-filtering", "multi-provider",
    "net-mtu", "net-mtu-writable", "pagination", "port-mac-address-regenerate",
    "port-resource-request", "port-security", "project-id", "provider", "qos", "quota_details",
    "quotas", "rbac-policies", "rbac-security-groups", "revision-if-match", "router",
    "security-group", "security-groups-normalized-cidr", "sorting",
    "standard-attr-description", "standard-attr-revisions", "standard-attr-tag",
    "standard-attr-timestamp", "stateful-security-group", "subnet-external-network",
    "subnet-service-types", "tag-creation", "trunk", "trunk-details",
)  # fmt: skip
_REVISION = re.compile(r"revision_number=(\d+)")


class NeutronAPI:
    """All that answers below /v2.0; `context_of` says who makes a request, or refuses it."""

    def __init__(self, store: Store, context_of: Callable[[web.Request], Context]) -> None:
        self.extensions = set(EXTENSIONS)
        self.tags_at_creation = True
        self.store = store
        self._context_of = context_of
        self._policy = Policy(store)
        self._ports = Ports(store, self._policy)
        self._trunks = Trunks(store, self._policy)
        self._routers = Routers(store, self._policy, self._ports)
        self._floating_ips = FloatingIPs(store, self._policy, self._ports, self._routers)
        self._resources = Resources(store, self._policy)
        self.listing = Listing(store, self._policy)

    def routes(self) -> list[web.RouteDef]:
        """Every route of Neutron but those of tags and quotas."""
        result = [
            web.get("/", self._versions),
            web.get("/v2.0/", self._index),
            web.get("/v2.0/extensions", self._extensions),
            web.get("/v2.0/extensions/{id}", self._extension),
        ]
        for kind in KINDS:
            result += [
                web.get(kind.path, partial(self._list, kind)),
                web.post(kind.path, partial(self._create, kind)),
                web.get(kind.path + "/{id}", partial(self._show, kind)),
                web.put(kind.path + "/{id}", partial(self._update, kind)),
                web.delete(kind.path + "/{id}", partial(self._delete, kind)),
            ]
        find = partial(self.find, kind=TRUNK)
        result += Subports(self._trunks, self._policy, find, _check_revision).routes()
        return [*result, *Interfaces(self._routers, self._policy, self.find).routes()]

    def add_trunk(self, context: Context, port: Json) -> Json:
        """A trunk on a new port with these attributes."""
        parent = self._ports.create(context, _with_project(port, context))
        return self._trunks.create(context, _with_project({"port_id": parent["id"]}, context))

    def add_router(self, context: Context, external_id: str, subnet_ids: Iterable[str]) -> Json:
        """A router from subnets to an external network."""
        body = {"external_gateway_info": {"network_id": external_id}}
        router = self._routers.create(context, _with_project(body, context))
        self.join(router, subnet_ids)
        return router

    def join(self, router: Json, subnet_ids: Iterable[str]) -> None:
        """Let a router lead into these subnets, too."""
        for subnet_id in subnet_ids:
            self._routers.add_interface(router, subnet_id, as_gateway=False)

    def add_floating_ip(self, context: Context, body: Json) -> Json:
        """One that somebody else makes."""
        return self._floating_ips.create(context, _with_project(body, context))

    def remove_floating_ip(self, floating_ip_id: str) -> None:
        """Delete one by hand."""
        self._floating_ips.delete(self.store.floatingips[floating_ip_id])

    def add_port(self, context: Context, port: Json) -> Json:
        """A port that another service makes."""
        return self._ports.create(context, _with_project(port, context))

    def remove_port(self, port_id: str) -> None:
        """Delete a port that another service made, if it is there."""
        if port_id in self.store.ports:
            self._ports.delete(self.store.ports[port_id])

    def find(self, request: web.Request, kind: Kind) -> tuple[Context, Json]:
        """Who asks, and the resource of the path; 404 if they do not see it."""
        context = self._context_of(request)
        resource = self.store.get(kind.name, request.match_info["id"])
        if not self._policy.sees(context, kind.name, resource):
            found_by_plugin = context.privileged
            raise errors.hidden() if found_by_plugin else errors.missing(kind.name, resource["id"])
        return context, resource

    def check_tags(self, context: Context, kind: Kind, resource: Json) -> None:
        """Refuse who may not change the tags of the resource."""
        self._policy.check_tags(context, kind.name, resource)

    async def _versions(self, request: web.Request) -> web.Response:
        link = {"rel": "self", "href": f"{request.url.origin()}/v2.0/"}
        version = {"id": "v2.0", "status": "CURRENT", "links": [link]}
        return web.json_response({"versions": [version]})

    async def _index(self, request: web.Request) -> web.Response:
        self._context_of(request)
        return web.json_response({"resources": []})

    async def _extensions(self, request: web.Request) -> web.Response:
        self._context_of(request)
        listed = [_extension_body(alias) for alias in sorted(self.extensions)]
        return web.json_response({"extensions": listed})

    async def _extension(self, request: web.Request) -> web.Response:
        self._context_of(request)
        alias = request.match_info["id"]
        if alias not in self.extensions:
            message = f"Extension with alias {alias} does not exist"
            raise Answer(404, "ExtensionNotFound", message)
        return web.json_response({"extension": _extension_body(alias)})

    async def _list(self, kind: Kind, request: web.Request) -> web.Response:
        context = self._context_of(request)
        return web.json_response(self.listing.answer(context, kind, request.url))

    async def _show(self, kind: Kind, request: web.Request) -> web.Response:
        context, resource = self.find(request, kind)
        view = self._policy.view(context, kind.name, resource)
        fields = set(request.query.getall("fields", []))
        return web.json_response({kind.name: select(view, fields)})

    async def _create(self, kind: Kind, request: web.Request) -> web.Response:
        context = self._context_of(request)
        body = await _read(request)
        if kind.plural in body:
            broken = request.get(BREAK)
            made = self._bulk(context, kind, body[kind.plural], broken)
            return web.json_response({kind.plural: made}, status=201)
        resource = self._make(context, kind, _of_body(body, kind))
        view = self._policy.view(context, kind.name, resource)
        return web.json_response({kind.name: view}, status=201)

    def _bulk(
        self, context: Context, kind: Kind, items: list[Json], broken: Break | None
    ) -> list[Json]:
        """All of them or, if one is refused, none; if it is to break, some."""
        made: list[Json] = []
        try:
            for item in items:
                made.append(self._make(context, kind, item))  # noqa: PERF401
        except Answer:
            for resource in made:
                self._remove(kind, resource)
            raise
        if broken is not None:
            self._break(broken, made)
        return [self._policy.view(context, kind.name, resource) for resource in made]

    def _break(self, broken: Break, ports: list[Json]) -> None:
        rest = ports[broken.made :]
        kept = rest[1 : 1 + broken.half_made]
        for port in kept:
            self._ports.unbind(port)
        for port in rest:
            if port not in kept:
                self._ports.delete(port)
        raise broken.answer

    def _make(self, context: Context, kind: Kind, item: Json) -> Json:
        item = _with_project(item, context)
        if kind is TRUNK:
            return self._trunks.create(context, item)
        if kind is ROUTER:
            return self._routers.create(context, item)
        if kind is FLOATING_IP:
            return self._floating_ips.create(context, item)
        if kind is not PORT:
            return self._resources.create(context, kind, item)
        if not self.tags_at_creation:
            item.pop("tags", None)
        return self._ports.create(context, item)

    async def _update(self, kind: Kind, request: web.Request) -> web.Response:
        changes = _of_body(await _read(request), kind)
        context, resource = self.find(request, kind)
        _check_revision(request, resource)
        if kind is PORT:
            self._ports.update(resource, context, changes)
        elif kind is FLOATING_IP:
            self._floating_ips.update(context, resource, changes)
        else:
            self._resources.update(context, kind, resource, changes)
        view = self._policy.view(context, kind.name, resource)
        return web.json_response({kind.name: view})

    async def _delete(self, kind: Kind, request: web.Request) -> web.Response:
        context, resource = self.find(request, kind)
        self._policy.check_change(context, kind.name, resource, "delete")
        _check_revision(request, resource)
        self._remove(kind, resource)
        return web.Response(status=204)

    def _remove(self, kind: Kind, resource: Json) -> None:
        if kind is PORT:
            self._ports.delete(resource)
        elif kind is TRUNK:
            self._trunks.delete(resource)
        elif kind is ROUTER:
            self._routers.delete(resource)
        elif kind is FLOATING_IP:
            self._floating_ips.delete(resource)
        else:
            self._resources.delete(kind, resource)


async def _read(request: web.Request) -> Json:
    try:
        body = await request.json()
    except ValueError:
        raise errors.malformed("The server could not comply with the request") from None
    return body if isinstance(body, dict) else {}


def _of_body(body: Json, kind: Kind) -> Json:
    if kind.name not in body:
        raise errors.malformed(f"Unable to find '{kind.name}' in request body")
    return dict(body[kind.name])


def _with_project(item: Json, context: Context) -> Json:
    given = {item[name] for name in ("project_id", "tenant_id") if item.get(name)}
    if len(given) > 1:
        raise errors.malformed("'project_id' and 'tenant_id' do not match")
    project = given.pop() if given else context.project_id
    return item | {"project_id": project, "tenant_id": project}


def _check_revision(request: web.Request, resource: Json) -> None:
    found = _REVISION.search(request.headers.get("If-Match", ""))
    if found and int(found[1]) != resource["revision_number"]:
        raise errors.revision_mismatch(int(found[1]), resource["revision_number"])


def _extension_body(alias: str) -> Json:
    return {"alias": alias, "name": alias, "description": "", "updated": "", "links": []}
