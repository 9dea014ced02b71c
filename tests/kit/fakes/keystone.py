"""A Keystone as far as clients of other services see it: logins, scopes, roles, the catalogue."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from .faults import Answer

Json = dict[str, Any]

DOMAIN = {"id": "default", "name": "Default"}
# What `keystone-manage bootstrap` sets up: a role brings those after it.
_IMPLIED = {"admin": ("manager", "member", "reader"), "manager": ("member", "reader")}
_IMPLIED["member"] = ("reader",)
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


@dataclass
class User:
    """A user with roles in one project, all that a service account has."""

    name: str
    project_id: str
    roles: tuple[str, ...]
    password: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def all_roles(self) -> frozenset[str]:
        """The roles given and those that they imply."""
        return frozenset(self.roles).union(*(_IMPLIED.get(role, ()) for role in self.roles))


@dataclass(frozen=True)
class Token:
    """Who made a request, and until when that holds."""

    user: User
    expires: datetime


class Keystone:
    """Projects, users and tokens by id; `token_seconds` is the life of new tokens."""

    def __init__(self) -> None:
        self.projects: dict[str, str] = {}
        self.users: dict[str, User] = {}
        self.tokens: dict[str, Token] = {}
        self.application_credentials: dict[str, tuple[str, User]] = {}
        self.endpoints: dict[str, str] = {}
        self.url = ""  # of the server, as the endpoints have it
        self.token_seconds = 3600.0

    def routes(self) -> list[web.RouteDef]:
        """The part of the API that logs in."""
        return [
            web.get("/v3", self._version),
            web.get("/v3/", self._version),
            web.post("/v3/auth/tokens", self._login),
            web.get("/v3/auth/tokens", self._validate),
            web.delete("/v3/auth/tokens", self._revoke),
        ]

    def user_of(self, request: web.Request) -> User:
        """Who made the request; an unknown or expired token is answered with 401."""
        token = self.tokens.get(request.headers.get("X-Auth-Token", ""))
        if token is None or token.expires <= datetime.now(UTC):
            raise _unauthorized()
        return token.user

    async def _version(self, request: web.Request) -> web.Response:
        link = {"rel": "self", "href": f"{request.url.origin()}/v3/"}
        version = {"id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z"}
        return web.json_response({"version": version | {"links": [link], "media-types": []}})

    async def _login(self, request: web.Request) -> web.Response:
        auth = (await request.json())["auth"]
        user = self._identify(auth["identity"])
        self._check_scope(user, auth.get("scope"))
        expires = datetime.now(UTC) + timedelta(seconds=self.token_seconds)
        token_id = f"gAAAAA{uuid.uuid4().hex}"
        self.tokens[token_id] = Token(user, expires)
        body = {
            "token": self._token_body(
                user, expires, auth["identity"]["methods"], str(request.url.origin())
            )
        }
        return web.json_response(body, status=201, headers={"X-Subject-Token": token_id})

    async def _validate(self, request: web.Request) -> web.Response:
        self.user_of(request)
        token = self.tokens.get(request.headers.get("X-Subject-Token", ""))
        if token is None or token.expires <= datetime.now(UTC):
            raise Answer(404, "Not Found", "Failed to validate token")
        body = {
            "token": self._token_body(
                token.user, token.expires, ["password"], str(request.url.origin())
            )
        }
        return web.json_response(body)

    async def _revoke(self, request: web.Request) -> web.Response:
        self.user_of(request)
        self.tokens.pop(request.headers.get("X-Subject-Token", ""), None)
        return web.Response(status=204)

    def _identify(self, identity: Json) -> User:
        method = identity["methods"][0]
        asked = identity.get(method, {})
        if method == "password":
            return self._by_password(asked["user"])
        if method == "application_credential":
            secret, user = self.application_credentials.get(asked.get("id", ""), (None, None))
            if user is not None and secret == asked.get("secret"):
                return user
        if method == "token" and asked.get("id") in self.tokens:
            return self.tokens[asked["id"]].user
        raise _unauthorized()

    def _by_password(self, asked: Json) -> User:
        wanted = {asked.get("id"), asked.get("name")}
        for user in self.users.values():
            if wanted & {user.id, user.name} and user.password == asked.get("password"):
                return user
        raise _unauthorized()

    def _check_scope(self, user: User, scope: Any) -> None:
        project = scope.get("project", {}) if isinstance(scope, dict) else {}
        wanted = project.get("id") or project.get("name")
        if wanted not in (None, user.project_id, self.projects[user.project_id]):
            raise _unauthorized()

    def _token_body(self, user: User, expires: datetime, methods: list[str], origin: str) -> Json:
        """`origin` is where the client reaches this server: its wire leads to all services."""
        project = {"id": user.project_id, "name": self.projects[user.project_id], "domain": DOMAIN}
        return {
            "methods": methods,
            "user": {"id": user.id, "name": user.name, "domain": DOMAIN},
            "project": project,
            "roles": [{"id": role, "name": role} for role in sorted(user.all_roles())],
            "catalog": [
                _catalog_entry(kind, url.replace(self.url, origin))
                for kind, url in self.endpoints.items()
            ],
            "expires_at": expires.strftime(_TIME),
            "issued_at": datetime.now(UTC).strftime(_TIME),
            "audit_ids": [uuid.uuid4().hex[:22]],
            "is_domain": False,
        }


def render(fault: Answer) -> Json:
    """The body of an error of Keystone, which keystonemiddleware's 401 has too."""
    title = fault.kind or {401: "Unauthorized", 404: "Not Found"}.get(fault.status, "Error")
    return {"error": {"code": fault.status, "title": title, "message": fault.message or title}}


def _catalog_entry(kind: str, url: str) -> Json:
    endpoints = [
        {"id": uuid.uuid4().hex, "interface": interface, "url": url}
        | {"region": "RegionOne", "region_id": "RegionOne"}
        for interface in ("public", "internal", "admin")
    ]
    return {"id": uuid.uuid4().hex, "type": kind, "name": kind, "endpoints": endpoints}


def _unauthorized() -> Answer:
    return Answer(401, "Unauthorized", "The request you have made requires authentication.")
