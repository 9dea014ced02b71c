"""Keystone: those whose tokens or passwords are worth nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from .sides import Side

Json = dict[str, Any]
UNAUTHORIZED = {
    "code": 401,
    "title": "Unauthorized",
    "message": "The request you have made requires authentication.",
}


async def log_in(side: Side, **changes: str) -> Any:
    """Ask for a token by the password of the cluster's user, with these changes."""
    own = side.kuryr.connection.config.config["auth"] | changes
    user = {"name": own["username"], "password": own["password"], "domain": {"id": "default"}}
    project = {"name": own["project_name"], "domain": {"id": "default"}}
    identity = {"methods": ["password"], "password": {"user": user}}
    body = {"auth": {"identity": identity, "scope": {"project": project}}}
    return await send(side, "POST", f"{own['auth_url']}/auth/tokens", json=body)


async def send(side: Side, method: str, url: str, **arguments: Any) -> Any:
    """Send a request that carries no token of the session."""

    def request() -> Any:
        session = side.kuryr.connection.session
        return session.request(url, method, authenticated=False, raise_exc=False, **arguments)

    return await asyncio.to_thread(request)


@pytest.mark.parametrize(
    ("service", "path"),
    [("network", "/v2.0/ports"), ("load-balancer", "/v2.0/lbaas/loadbalancers")],
)
async def test_a_token_that_was_revoked_is_401(side: Side, service: str, path: str) -> None:
    """Unless the service has seen it before: then a real one trusts it for some minutes."""
    token = (await log_in(side)).headers["X-Subject-Token"]
    connection = side.kuryr.connection
    base = await asyncio.to_thread(connection.endpoint_for, service)
    url = f"{base.removesuffix('/v2.0').rstrip('/')}{path}"
    headers = {"X-Auth-Token": token}
    tokens = f"{connection.config.config['auth']['auth_url']}/auth/tokens"
    revoked = await send(side, "DELETE", tokens, headers=headers | {"X-Subject-Token": token})
    assert revoked.status_code == 204
    reply = await send(side, "GET", url, headers=headers)
    assert reply.status_code == 401
    assert reply.headers["WWW-Authenticate"].startswith("Keystone uri=")
    assert reply.json() == {"error": UNAUTHORIZED}


async def test_a_token_that_nobody_gave_out_is_401(side: Side) -> None:
    base = await asyncio.to_thread(side.kuryr.connection.endpoint_for, "network")
    url = f"{base.removesuffix('/v2.0').rstrip('/')}/v2.0/ports"
    reply = await send(side, "GET", url, headers={"X-Auth-Token": "nonesuch"})
    assert (reply.status_code, reply.json()) == (401, {"error": UNAUTHORIZED})


async def test_a_wrong_password_is_401(side: Side) -> None:
    reply = await log_in(side, password="wrong")
    assert (reply.status_code, reply.json()) == (401, {"error": UNAUTHORIZED})
