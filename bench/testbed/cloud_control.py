"""The benchmark's side of the fake cloud's process."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import aiohttp

from bench.testbed.forwarding import State

Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A call of Neutron or Octavia.

    :param answered: on this machine's time.monotonic().
    :param rows: objects in the answer to a list.
    """

    method: str
    what: str
    query: str
    answered: float
    rows: int = 0


class CloudControl:
    """A client of the fake cloud: sets its delays, reports plugged ports, reads its calls."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}"

    async def facts(self, *, within: float = 30.0) -> Json:
        """Wait until the cloud serves; return its addresses and the ids of what is in it."""
        async with asyncio.timeout(within):
            while True:
                try:
                    answer: Json = await self._ask("GET", "/facts")
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.05)
                else:
                    return answer

    async def set_delays(
        self,
        latency: float,
        per_port: float = 0.0,
        *,
        pending: float = 0.0,
        one_by_one: bool = False,
    ) -> None:
        """Set how long the cloud takes, in seconds.

        :param latency: for every call.
        :param per_port: added to a creation for each of its ports.
        :param pending: for which a change of a load balancer stays PENDING after the answer.
        :param one_by_one: changes wait for those before them, whichever load balancer they are of.
        """
        body = {
            "latency": latency,
            "per_port": per_port,
            "pending": pending,
            "one_by_one": one_by_one,
        }
        await self._ask("PUT", "/delays", body)

    async def add_extension(self, alias: str) -> None:
        """Add an extension to Neutron's list."""
        await self._ask("PUT", "/extension", {"alias": alias})

    async def set_quota(self, ports: int) -> None:
        """Set how many ports the project may have; -1: without limit."""
        await self._ask("PUT", "/quota", {"ports": ports})

    async def set_outage(self, status: int) -> None:
        """Have Neutron and Octavia answer every call with this status; 0: serve again."""
        await self._ask("PUT", "/outage", {"status": status})

    async def plug(self, ports: list[str], after: float) -> None:
        """Report ports as plugged on their node; they become ACTIVE in `after` seconds."""
        await self._ask("PUT", "/plugged", {"ports": ports, "after": after})

    async def unplug(self, ports: list[str]) -> None:
        """Report ports as unplugged from their node."""
        await self._ask("PUT", "/unplugged", {"ports": ports})

    async def calls(self) -> list[Call]:
        """Return the calls of Neutron and Octavia since they were last cleared."""
        return [Call(**call) for call in await self._ask("GET", "/calls")]

    async def clear_calls(self) -> None:
        """Clear the list of calls."""
        await self._ask("DELETE", "/calls")

    async def ports(self, host: str = "") -> int:
        """Count the ports, all or those bound to a host."""
        return sum(host in ("", bound_to) for bound_to in await self._ask("GET", "/ports"))

    async def load_balancers(self, namespace: str) -> int:
        """Count the load balancers of the Services of a namespace, by their names."""
        return int(await self._ask("GET", f"/load-balancers?namespace={namespace}"))

    async def follow_forwarding(self, *, on: bool = True) -> None:
        """Begin a log of the members to which load balancers forward, or end it."""
        await self._ask("PUT", "/forwarding", {"on": on})

    async def forwarding(self) -> list[State]:
        """Return the log of the members to which load balancers forward."""
        return [State(**state) for state in await self._ask("GET", "/forwarding")]

    async def remove_load_balancers(self, name: str) -> None:
        """Remove all load balancers of this name, with their ports."""
        await self._ask("DELETE", f"/load-balancers?name={name}")

    async def remove_ports(self) -> None:
        """Delete all ports through Neutron's API."""
        facts = await self.facts()
        ports_url = f"{facts['url']}/v2.0/ports"
        headers = {"X-Auth-Token": await login(self._session, facts["neutron"])}
        async with self._session.get(f"{ports_url}?fields=id", headers=headers) as response:
            ports = (await response.json())["ports"]
        for port in ports:
            url = f"{ports_url}/{port['id']}"
            async with self._session.delete(url, headers=headers) as response:
                response.raise_for_status()

    async def _ask(self, method: str, path: str, body: Json | None = None) -> Any:
        async with self._session.request(method, self._url + path, json=body) as response:
            response.raise_for_status()
            return await response.json()


async def login(session: aiohttp.ClientSession, options: Json) -> str:
    """Return a token of Keystone for the options of a section [neutron]."""
    user = {"name": options["username"], "password": options["password"]}
    identity = {
        "methods": ["password"],
        "password": {"user": user | {"domain": {"id": options["user_domain_id"]}}},
    }
    url = f"{options['auth_url']}/auth/tokens"
    async with session.post(url, json={"auth": {"identity": identity}}) as response:
        response.raise_for_status()
        return str(response.headers["X-Subject-Token"])


def count_by_kind(calls: Iterable[Call]) -> Counter[str]:
    """Count the calls of each method and kind of path."""
    return Counter(f"{call.method} {call.what}" for call in calls)
