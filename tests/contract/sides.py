"""The two clouds that every case runs on, behind one face.

Cases speak raw JSON through openstacksdk's adapter, as the product does. Whatever is created
through a `Side` is removed at its end, last things first.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import openstack
from openstack.connection import Connection

from lab.suite.cloud_remains import mark
from tests.kit.fakes import FakeCloud

Json = dict[str, Any]
PENDING = 0.1  # seconds that a change of a load balancer takes on the fake
BALANCERS_PORTS = ("ovn-lb-", "octavia-lb-")


@dataclass(frozen=True)
class Reply:
    """What came back: `body` is empty where `text` is no JSON."""

    status: int
    body: Json
    text: str
    headers: Mapping[str, str]

    @property
    def error(self) -> Json:
        """Neutron's error, whose type and message clients look at."""
        found: Json = self.body["NeutronError"]
        return found

    @property
    def fault(self) -> tuple[int, str]:
        """The status, and the words of Octavia."""
        return self.status, self.body["faultstring"]


@dataclass
class Neutron:
    """Neutron (or another service) as one user; what it makes is noted in `made`, for removal."""

    connection: Connection
    project_id: str
    made: list[str]
    service: str = "network"

    async def get(self, path: str, **params: Any) -> Reply:
        """GET; a parameter with a list is repeated."""
        return await self._request("GET", path, params=params)

    async def post(self, path: str, body: Json) -> Reply:
        """POST; what it creates is removed in the end."""
        reply = await self._request("POST", path, json=body)
        for value in reply.body.values() if reply.status == 201 else ():
            items = value if isinstance(value, list) else [value]
            self.made.extend(f"{path}/{item['id']}" for item in items)
        return reply

    async def put(self, path: str, body: Json, **headers: str) -> Reply:
        """PUT; headers by their names with underscores."""
        return await self._request("PUT", path, json=body, headers=_named(headers))

    async def delete(self, path: str, **headers: str) -> Reply:
        """DELETE; headers as with PUT."""
        return await self._request("DELETE", path, headers=_named(headers))

    async def create(self, kind: str, **attributes: Any) -> Json:
        """A resource that must come to be."""
        reply = await self.post(f"/{kind.replace('_', '-')}s", {kind: attributes})
        assert reply.status == 201, reply.body
        found: Json = reply.body[kind]
        return found

    async def _request(self, method: str, path: str, **arguments: Any) -> Reply:
        def send() -> Any:
            """`connection.network` itself asks Keystone, so it belongs into the thread too."""
            api = getattr(self.connection, self.service)
            return api.request(path, method, raise_exc=False, **arguments)

        response = await asyncio.to_thread(send)
        is_json = response.headers.get("Content-Type", "").startswith("application/json")
        body = response.json() if response.content and is_json else {}
        return Reply(response.status_code, body, response.text, response.headers)


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass
class Side:
    """One of the clouds, as the cluster's user, as another project's, and as the admin."""

    kuryr: Neutron
    admin: Neutron
    stranger: Neutron
    host: str
    fake: FakeCloud | None = None
    mark: str = field(default_factory=mark)

    async def network(self, *cidrs: str, owner: Neutron | None = None, **attributes: Any) -> Json:
        """A network with subnets, of the cluster's project if not said."""
        project_id = (owner or self.kuryr).project_id
        network = await self.admin.create(
            "network", name=self.mark, project_id=project_id, **attributes
        )
        for cidr in cidrs:
            await self.subnet(network["id"], cidr)
        return (await self.admin.get(f"/networks/{network['id']}")).body["network"]

    async def subnet(self, network_id: str, cidr: str, **attributes: Any) -> Json:
        """A subnet as namespaces and pools of Pods have them: no DHCP."""
        network = (await self.admin.get(f"/networks/{network_id}")).body["network"]
        return await self.admin.create(
            "subnet",
            name=self.mark,
            network_id=network_id,
            project_id=network["project_id"],
            ip_version=6 if ":" in cidr else 4,
            cidr=cidr,
            **{"enable_dhcp": False, **attributes},
        )

    @property
    def tries(self) -> int:
        """How often to begin what a real cloud, on a busy machine, may have ended before it is
        looked at. On the fake it can be held."""
        return 5 if self.fake is None else 1

    @contextmanager
    def held(self) -> Iterator[None]:
        """On the fake, changes of load balancers that begin meanwhile end when this does; a real
        one takes its time."""
        if self.fake is None:
            yield
            return
        self.fake.octavia_pending = math.inf
        try:
            yield
        finally:
            self.fake.octavia_pending = PENDING
            for balancer_id in list(self.fake.load_balancers):
                self.fake.octavia.progress.finish(balancer_id)

    async def clean(self) -> None:
        """Remove everything, trunks and then last things first: a subport is not deleted."""
        made = self.admin.made[::-1]
        await self._remove_balancers_ports()
        for path in sorted(made, key=lambda path: not path.startswith("/trunks/")):
            reply = await self.admin.delete(path)
            assert reply.status in (204, 404), (path, reply.body)

    async def _remove_balancers_ports(self) -> None:
        """Octavia's own ports in networks of ours hold the subnets: it leaves those of ovn's
        monitors, and VIPs' of creations that it refused."""
        networks = (path for path in self.admin.made if path.startswith("/networks/"))
        for path in tuple(networks):
            network = path.rpartition("/")[2]
            for port in (await self.admin.get("/ports", network_id=network)).body["ports"]:
                if port["name"].startswith(BALANCERS_PORTS):
                    await self.admin.delete(f"/ports/{port['id']}")


@asynccontextmanager
async def fake_side() -> AsyncIterator[Side]:
    """The fake, which starts empty."""
    async with FakeCloud(hosts=["node-1"]) as cloud:
        cloud.octavia_pending = PENDING
        tenant = cloud.add_user("tenant2", cloud.add_project("tenant2"))
        made: list[str] = []
        users = (cloud.kuryr, cloud.admin, tenant)
        connections = [openstack.connect(**cloud.connect_options(user)) for user in users]
        clients = [
            Neutron(connection, user.project_id, made)
            for connection, user in zip(connections, users, strict=True)
        ]
        try:
            yield Side(*clients, host="node-1", fake=cloud)
        finally:
            for connection in connections:
                connection.close()


@asynccontextmanager
async def real_side(lab: Any, connections: dict[str, Connection]) -> AsyncIterator[Side]:
    """The lab's Neutron; what was made is removed."""
    made: list[str] = []
    clients = [
        Neutron(connections[name], connections[name].current_project_id, made)
        for name in ("kuryr", "lab", "tenant2")
    ]
    side = Side(*clients, host=next(iter(lab.nodes.values())).chassis)
    try:
        yield side
    finally:
        await side.clean()
