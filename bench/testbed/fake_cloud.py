"""Keystone, Neutron and Octavia as a process: `python -m bench.testbed.fake_cloud PORT HOSTS`.

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

from tests.kit.fakes.cloud import FakeCloud
from tests.kit.fakes.faults import Proceed

Json = dict[str, Any]
METHODS = ("GET", "POST", "PUT", "DELETE")
# subnets: all of it, the gateway, and what Neutron gives away by itself
SERVICES = (
    ("10.96.0.0/15", "10.97.0.1", "10.97.0.2", "10.97.255.254"),
    ("fd96::/64", "fd96::1:1", "fd96::1:2", "fd96::1:ffff"),
)


@dataclass(frozen=True)
class Call:
    """One call of Neutron or Octavia; `answered` is on this machine's time.monotonic()."""

    method: str
    what: str
    query: str
    answered: float


class Journal:
    """Notes all calls but Keystone's when they are answered; an action of the fake's faults."""

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


class Wires:
    """What is plugged on nodes becomes ACTIVE after a while, and DOWN again once it is not."""

    def __init__(self, cloud: FakeCloud) -> None:
        self._cloud = cloud
        self._due: dict[str, asyncio.TimerHandle] = {}

    def plug(self, ports: list[str], after: float) -> None:
        """The data plane reports them ACTIVE in `after` seconds."""
        loop = asyncio.get_running_loop()
        for port_id in ports:
            self._due[port_id] = loop.call_later(after, self._report, port_id, "ACTIVE")

    def unplug(self, ports: list[str]) -> None:
        """They are DOWN."""
        for port_id in ports:
            due = self._due.pop(port_id, None)
            if due is not None:
                due.cancel()
            self._report(port_id, "DOWN")

    def _report(self, port_id: str, status: str) -> None:
        if port_id in self._cloud.ports:
            self._cloud.set_status(port_id, status)


async def serve(port: int, hosts: int) -> None:
    """Serve until killed; the cloud has a network for Pods with both address families, and one
    for Services, whose gateway and allocation pool are outside of the range of ClusterIPs.

    Its hosts are called as the nodes are.
    """
    journal = Journal()
    async with FakeCloud(hosts=[f"node{number}" for number in range(hosts)]) as cloud:
        wires = Wires(cloud)
        cloud.keep_tags_at_creation(on=True)  # as with ML2's tag_ports_during_bulk_creation
        cloud.faults.add(action=journal, times=None)
        network = cloud.add_network("pods", "10.64.0.0/14", "fd64::/64", mtu=1442)
        group = cloud.add_security_group("pods")
        services = cloud.add_network("services")
        for cidr, gateway, first, last in SERVICES:
            pools = [{"start": first, "end": last}]
            cloud.add_subnet(services["id"], cidr, gateway_ip=gateway, allocation_pools=pools)
        facts = {
            "url": cloud.url,
            "neutron": cloud.neutron_options(),
            "project": cloud.project_id,
            "network": network["id"],
            "subnets": network["subnets"],
            "group": group["id"],
            "service_subnets": services["subnets"],
        }

        async def tell(_request: web.Request) -> web.Response:
            return web.json_response(facts)

        async def dial(request: web.Request) -> web.Response:
            body = await request.json()
            cloud.latency = dict.fromkeys(METHODS, body["latency"])
            cloud.latency_per_port = body["per_port"]
            cloud.octavia_pending = body["pending"]
            return web.json_response({})

        async def announce(request: web.Request) -> web.Response:
            cloud.switch_extension((await request.json())["alias"], on=True)
            return web.json_response({})

        async def plug(request: web.Request) -> web.Response:
            body = await request.json()
            wires.plug(body["ports"], body["after"])
            return web.json_response({})

        async def unplug(request: web.Request) -> web.Response:
            wires.unplug((await request.json())["ports"])
            return web.json_response({})

        async def calls(_request: web.Request) -> web.Response:
            return web.json_response([vars(call) for call in journal.calls])

        async def forget(_request: web.Request) -> web.Response:
            journal.calls.clear()
            cloud.calls.clear()
            return web.json_response({})

        async def remove_balancers(request: web.Request) -> web.Response:
            name = request.query["name"]
            for one in tuple(cloud.load_balancers.values()):
                if one["name"] == name:
                    cloud.octavia.remove(one["id"])
            return web.json_response({})

        async def hosts_of_ports(_request: web.Request) -> web.Response:
            return web.json_response([port["binding:host_id"] for port in cloud.ports.values()])

        app = web.Application()
        app.add_routes(
            [
                web.get("/facts", tell),
                web.put("/latency", dial),
                web.put("/extension", announce),
                web.put("/plugged", plug),
                web.put("/unplugged", unplug),
                web.get("/calls", calls),
                web.delete("/calls", forget),
                web.get("/ports", hosts_of_ports),
                web.delete("/balancers", remove_balancers),
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

    async def dial(self, latency: float, per_port: float = 0.0, *, pending: float = 0.0) -> None:
        """Every call takes `latency` seconds, a creation `per_port` more for each of its ports,
        and a change of a load balancer `pending` seconds more, after its answer."""
        body = {"latency": latency, "per_port": per_port, "pending": pending}
        await self._ask("PUT", "/latency", body)

    async def announce(self, alias: str) -> None:
        """Have an extension in Neutron's list."""
        await self._ask("PUT", "/extension", {"alias": alias})

    async def plug(self, ports: list[str], after: float) -> None:
        """A node has plugged these ports: they become ACTIVE in `after` seconds."""
        await self._ask("PUT", "/plugged", {"ports": ports, "after": after})

    async def unplug(self, ports: list[str]) -> None:
        """They have left their node."""
        await self._ask("PUT", "/unplugged", {"ports": ports})

    async def calls(self) -> list[Call]:
        """Calls of Neutron and Octavia since they were forgotten."""
        return [Call(**call) for call in await self._ask("GET", "/calls")]

    async def forget_calls(self) -> None:
        await self._ask("DELETE", "/calls")

    async def ports(self, host: str = "") -> int:
        """How many ports there are, all or those bound to a host."""
        return sum(host in ("", one) for one in await self._ask("GET", "/ports"))

    async def remove_balancers(self, name: str) -> None:
        """All load balancers of this name vanish, with their ports."""
        await self._ask("DELETE", f"/balancers?name={name}")

    async def remove_ports(self) -> None:
        """Delete all of them, as somebody with a client would."""
        facts = await self.facts()
        url = f"{facts['url']}/v2.0/ports"
        headers = {"X-Auth-Token": await login(self._session, facts["neutron"])}
        async with self._session.get(f"{url}?fields=id", headers=headers) as response:
            found = (await response.json())["ports"]
        for port in found:
            one = f"{url}/{port['id']}"
            async with self._session.delete(one, headers=headers) as response:
                response.raise_for_status()

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
