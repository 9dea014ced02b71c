"""The tags of resources and the quotas of projects."""

from __future__ import annotations

from functools import partial
from typing import Any

from aiohttp import web

from tests.kit.fakes.faults import Answer

from . import errors
from .api import NeutronAPI
from .kinds import FLOATING_IP, KINDS, Kind

Json = dict[str, Any]

_LIMITED = (
    "port",
    "network",
    "subnet",
    "security_group",
    "security_group_rule",
    "rbac_policy",
    "router",
    "floatingip",
)
_MAX_TAGS = 50


class Tags:
    """/v2.0/<collection>/<id>/tags."""

    def __init__(self, api: NeutronAPI) -> None:
        self._api = api

    def routes(self) -> list[web.RouteDef]:
        """For every kind that has tags."""
        result = []
        for kind in KINDS:
            if "tags-any" in kind.attributes:
                path = kind.path + "/{id}/tags"
                result += [
                    web.get(path, partial(self._list, kind)),
                    web.put(path, partial(self._replace, kind)),
                    web.delete(path, partial(self._clear, kind)),
                    web.put(path + "/{tag}", partial(self._add, kind)),
                    web.get(path + "/{tag}", partial(self._has, kind)),
                    web.delete(path + "/{tag}", partial(self._remove, kind)),
                ]
        return result

    async def _list(self, kind: Kind, request: web.Request) -> web.Response:
        resource = self._of_member(kind, request)
        return web.json_response({"tags": resource["tags"]})

    async def _replace(self, kind: Kind, request: web.Request) -> web.Response:
        tags = (await request.json()).get("tags")
        resource = self._of_member(kind, request)
        if not isinstance(tags, list):
            raise errors.invalid_input("Invalid tags body")
        if len(set(tags)) != len(tags):
            listed = ", ".join(tags)
            raise errors.invalid_input(f"Duplicate items in the list: '{listed}'")
        self._set(kind, resource, tags)
        return web.json_response({"tags": resource["tags"]})

    async def _clear(self, kind: Kind, request: web.Request) -> web.Response:
        self._set(kind, self._of_member(kind, request), [])
        return web.Response(status=204)

    async def _add(self, kind: Kind, request: web.Request) -> web.Response:
        resource, tag = self._of_member(kind, request), request.match_info["tag"]
        if tag not in resource["tags"]:
            self._set(kind, resource, [*resource["tags"], tag])
        return web.json_response(None, status=201)

    async def _has(self, kind: Kind, request: web.Request) -> web.Response:
        resource = self._of_member(kind, request)
        self._check_has(resource, request.match_info["tag"])
        return web.Response(status=204)

    async def _remove(self, kind: Kind, request: web.Request) -> web.Response:
        resource, tag = self._of_member(kind, request), request.match_info["tag"]
        self._check_has(resource, tag)
        self._set(kind, resource, [other for other in resource["tags"] if other != tag])
        return web.Response(status=204)

    def _of_member(self, kind: Kind, request: web.Request) -> Json:
        if kind is FLOATING_IP and request.match_info["id"] not in self._api.store.floatingips:
            raise Answer(500)  # so does the real one
        context, resource = self._api.find(request, kind)
        self._api.check_tags(context, kind, resource)
        return resource

    def _set(self, kind: Kind, resource: Json, tags: list[str]) -> None:
        if len(tags) > _MAX_TAGS:
            message = f"The number of tags exceed the per-resource limit of {_MAX_TAGS}"
            raise Answer(400, "BadRequest", f"Bad {kind.plural} request: {message}.")
        self._api.store.change(kind.name, resource, {"tags": list(tags)})

    def _check_has(self, resource: Json, tag: str) -> None:
        if tag not in resource["tags"]:
            raise Answer(404, "TagNotFound", f"Tag {tag} could not be found.")


class Quotas:
    """/v2.0/quotas/<project>; the limits of ports and of floating IPs are enforced."""

    def __init__(self, api: NeutronAPI, context_of: Any) -> None:
        self._api = api
        self._context_of = context_of

    def routes(self) -> list[web.RouteDef]:
        """Show, set, forget, and the details with what is used."""
        return [
            web.get("/v2.0/quotas/{id}", self._show),
            web.put("/v2.0/quotas/{id}", self._set),
            web.delete("/v2.0/quotas/{id}", self._forget),
            web.get("/v2.0/quotas/{id}/details.json", self._details),
            web.get("/v2.0/quotas/{id}/details", self._details),
        ]

    async def _show(self, request: web.Request) -> web.Response:
        context, project = self._context_of(request), request.match_info["id"]
        if not context.is_admin and context.project_id != project:
            raise errors.disallowed("get_quota")
        return web.json_response({"quota": self._limits(project) | {"project_id": project}})

    async def _set(self, request: web.Request) -> web.Response:
        changes = (await request.json())["quota"]
        if not self._context_of(request).is_admin:
            raise errors.disallowed("update_quota")
        project = request.match_info["id"]
        self._api.store.quotas.setdefault(project, {}).update(changes)
        return web.json_response({"quota": self._limits(project) | {"project_id": project}})

    async def _forget(self, request: web.Request) -> web.Response:
        if not self._context_of(request).is_admin:
            raise errors.disallowed("delete_quota")
        self._api.store.quotas.pop(request.match_info["id"], None)
        return web.Response(status=204)

    async def _details(self, request: web.Request) -> web.Response:
        context, project = self._context_of(request), request.match_info["id"]
        if not context.is_admin and context.project_id != project:
            raise errors.not_admin("Only admin is authorized to access quotas for another project")
        store = self._api.store
        details = {
            name: {"limit": limit, "used": store.count(name, project), "reserved": 0}
            for name, limit in self._limits(project).items()
        }
        return web.json_response({"quota": details})

    def _limits(self, project: str) -> dict[str, int]:
        return dict.fromkeys(_LIMITED, -1) | self._api.store.quotas.get(project, {})
