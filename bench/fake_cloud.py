"""Keystone and Neutron as a process of their own: `python -m bench.fake_cloud PORT`.

Beside the cloud it serves, on PORT, what the benchmark needs: where the cloud is, how long its
calls take, and which calls came when.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from tests.fakes.cloud import FakeCloud
from tests.fakes.faults import Proceed

Json = dict[str, Any]
METHODS = ("GET", "POST", "PUT", "DELETE")


@dataclass(frozen=True)
class Call:
    """One call of Neutron; `answered` is on the clock time.monotonic() of this machine."""

    method: str
    what: str
    query: str
    answered: float


class Journal:
    """Notes all calls of Neutron when they are answered; an action of the fake's faults."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def __call__(self, request: web.Request, proceed: Proceed) -> web.StreamResponse:
        try:
            return await proceed()
        finally:
            route = request.match_info.route.resource
            what = route.canonical if route is not None else request.path
            if not what.startswith("/v3"):
                call = Call(request.method, what, request.query_string, time.monotonic())
                self.calls.append(call)


async def serve(port: int, hosts: int) -> None:
    """Serve until killed; the cloud has a network for Pods with both address families."""
    journal = Journal()
    async with FakeCloud(hosts=[f"host{number}" for number in range(hosts)]) as cloud:
        cloud.keep_tags_at_creation(on=True)  # as with ML2's tag_ports_during_bulk_creation
        cloud.faults.add(action=journal, times=None)
        network = cloud.add_network("pods", "10.64.0.0/14", "fd64::/64", mtu=1442)
        group = cloud.add_security_group("pods")
        facts = {
            "url": cloud.url,
            "neutron": cloud.neutron_options(),
            "project": cloud.project_id,
            "network": network["id"],
            "subnets": network["subnets"],
            "group": group["id"],
        }

        async def tell(_request: web.Request) -> web.Response:
            return web.json_response(facts)

        async def dial(request: web.Request) -> web.Response:
            body = await request.json()
            cloud.latency = dict.fromkeys(METHODS, body["latency"])
            cloud.latency_per_port = body["per_port"]
            return web.json_response({})

        async def calls(_request: web.Request) -> web.Response:
            return web.json_response([vars(call) for call in journal.calls])

        async def forget(_request: web.Request) -> web.Response:
            journal.calls.clear()
            cloud.calls.clear()
            return web.json_response({})

        async def count(_request: web.Request) -> web.Response:
            return web.json_response(len(cloud.ports))

        app = web.Application()
        app.add_routes(
            [
                web.get("/facts", tell),
                web.put("/latency", dial),
                web.get("/calls", calls),
                web.delete("/calls", forget),
                web.get("/ports", count),
            ]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


class CloudControl:
    """The benchmark's side of it."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}"

    async def facts(self, *, within: float = 30.0) -> Json:
        """Where the cloud is and what is in it, once it is there."""
        async with asyncio.timeout(within):
            while True:
                try:
                    answer: Json = await self._ask("GET", "/facts")
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.05)
                else:
                    return answer

    async def dial(self, latency: float, per_port: float = 0.0) -> None:
        """Every call takes `latency` seconds, a creation `per_port` more for each of its ports."""
        await self._ask("PUT", "/latency", {"latency": latency, "per_port": per_port})

    async def calls(self) -> list[Call]:
        """Calls of Neutron since they were forgotten."""
        return [Call(**call) for call in await self._ask("GET", "/calls")]

    async def forget_calls(self) -> None:
        await self._ask("DELETE", "/calls")

    async def ports(self) -> int:
        """How many ports there are."""
        return int(await self._ask("GET", "/ports"))

    async def _ask(self, method: str, path: str, body: Json | None = None) -> Any:
        async with self._session.request(method, self._url + path, json=body) as response:
            response.raise_for_status()
            return await response.json()


async def login(session: aiohttp.ClientSession, options: Json) -> str:
    """A token of Keystone for the options of a section [neutron]."""
    user = {"name": options["username"], "password": options["password"]}
    identity = {
        "methods": ["password"],
        "password": {"user": user | {"domain": {"id": options["user_domain_id"]}}},
    }
    url = f"{options['auth_url']}/auth/tokens"
    async with session.post(url, json={"auth": {"identity": identity}}) as response:
        response.raise_for_status()
        return str(response.headers["X-Subject-Token"])


def by_kind(calls: list[Call]) -> Counter[str]:
    """How many calls of each method and kind of path."""
    return Counter(f"{call.method} {call.what}" for call in calls)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
