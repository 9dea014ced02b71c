"""Faults do what they are called, seen through the SDK and through the state of the cloud."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openstack
import pytest
from keystoneauth1 import exceptions as ksa
from yarl import URL

from tests.kit.fakes import FakeCloud, Hang, answer, cut, delay, garble, lose_reply, make_some

Json = dict[str, Any]

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")


class Client:
    """The cluster's user; calls are in threads."""

    def __init__(self, cloud: FakeCloud, network: Json) -> None:
        self.connection = openstack.connect(**cloud.connect_options())
        self.network_id = network["id"]

    async def create(self, **attributes: Any) -> Any:
        body = {"port": {"network_id": self.network_id, **attributes}}
        return await self.request("POST", "/ports", json=body)

    async def request(self, method: str, path: str, **arguments: Any) -> Any:
        def send() -> Any:
            network = self.connection.network
            return network.request(path, method, raise_exc=False, connect_retries=0, **arguments)

        return await asyncio.to_thread(send)


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    async with FakeCloud(hosts=["node-1"]) as cloud:
        yield cloud


@pytest.fixture
async def client(cloud: FakeCloud) -> AsyncIterator[Client]:
    client = Client(cloud, cloud.add_network("pods", "10.0.0.0/24"))
    assert (await client.request("GET", "/ports")).status_code == 200
    cloud.calls.clear()
    yield client
    client.connection.close()


@pytest.mark.parametrize(
    ("action", "made"),
    [pytest.param(cut(), 1, id="cut"), pytest.param(lose_reply(), 2, id="reply lost")],
)
async def test_a_broken_connection_hides_whether_the_port_was_made(
    cloud: FakeCloud, client: Client, action: Any, made: int
) -> None:
    cloud.faults.at_write(2, action)
    assert (await client.create()).status_code == 201
    with pytest.raises(ksa.ConnectFailure):
        await client.create()
    assert len(cloud.ports) == made
    assert cloud.faults.writes == [("POST", "/v2.0/ports")] * 2


async def test_an_error_is_answered_as_often_as_said(cloud: FakeCloud, client: Client) -> None:
    rule = cloud.faults.add(
        method="POST", path="/ports$", times=2, action=answer(503, retry_after=2)
    )
    for _ in range(2):
        reply = await client.create()
        assert (reply.status_code, reply.headers["Retry-After"]) == (503, "2")
        assert reply.json()["NeutronError"]["type"] == "ServiceUnavailable"
        assert reply.headers["x-openstack-request-id"].startswith("req-")
    assert (await client.create()).status_code == 201
    assert rule.hits == 2


async def test_an_error_after_the_work_leaves_the_work_done(
    cloud: FakeCloud, client: Client
) -> None:
    cloud.faults.add(method="POST", action=answer(504, applied=True))
    assert (await client.create()).status_code == 504
    assert len(cloud.ports) == 1


async def test_a_bulk_request_breaks_in_the_middle(cloud: FakeCloud, client: Client) -> None:
    cloud.faults.add(method="POST", path="/ports$", action=make_some(7, half_made=1))
    item = {"network_id": client.network_id, "binding:host_id": "node-1", "tags": ["ours"]}
    body = {"ports": [item | {"name": str(number)} for number in range(10)]}
    reply = await client.request("POST", "/ports", json=body)
    assert (reply.status_code, reply.json()["NeutronError"]["type"]) == (
        500,
        "HTTPInternalServerError",
    )
    ports = {port["name"]: port["binding:vif_type"] for port in cloud.ports_tagged("ours")}
    assert ports == {str(number): "ovs" for number in range(7)} | {"8": "unbound"}
    assert len(cloud.ports) == 8
    assert (await client.request("POST", "/ports", json=body)).status_code == 201


async def test_too_many_requests_are_told_when_to_come_again(
    cloud: FakeCloud, client: Client
) -> None:
    cloud.faults.add(method="PUT", action=answer(429, retry_after=7))
    port = (await client.create()).json()["port"]
    reply = await client.request("PUT", f"/ports/{port['id']}", json={"port": {"name": "x"}})
    assert (reply.status_code, reply.headers["Retry-After"]) == (429, "7")
    assert cloud.ports[port["id"]]["name"] == ""


async def test_half_a_document_comes_with_the_right_status(
    cloud: FakeCloud, client: Client
) -> None:
    cloud.faults.add(method="POST", action=garble())
    reply = await client.create()
    assert reply.status_code == 201
    with pytest.raises(ValueError, match="Expecting value"):
        reply.json()


async def test_a_request_is_held_until_it_is_released(cloud: FakeCloud, client: Client) -> None:
    hang = Hang()
    cloud.faults.add(method="POST", action=hang)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(client.create(name="held"))
        await hang.reached.wait()
        assert cloud.ports == {}
        hang.release()
        await cloud.wait_for(lambda: len(cloud.ports) == 1)
    assert task.result().status_code == 201


async def test_a_delayed_request_is_applied_later(cloud: FakeCloud, client: Client) -> None:
    cloud.faults.add(method="POST", action=delay(0.05))
    assert (await client.create()).status_code == 201


async def test_a_request_has_come_when_all_of_it_has(cloud: FakeCloud, client: Client) -> None:
    url = URL(cloud.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"POST /v2.0/ports HTTP/1.1\r\nHost: cloud\r\nContent-Length: 2\r\n\r\n")
    await client.request("GET", "/ports")  # comes after it
    assert cloud.calls.count("POST", "/v2.0/ports") == 0
    writer.write(b"{}")
    assert b"401" in await reader.readline()
    assert cloud.calls.count("POST", "/v2.0/ports") == 1
    writer.close()
    await writer.wait_closed()


async def test_a_client_logs_in_again_when_its_token_has_expired(
    cloud: FakeCloud, client: Client
) -> None:
    cloud.expire_tokens()
    assert (await client.create()).status_code == 201
    assert cloud.calls.by_kind() == {
        ("POST", "/v2.0/ports"): 2,
        ("POST", "/v3/auth/tokens"): 1,
    }


async def test_a_wrong_password_is_refused(cloud: FakeCloud) -> None:
    options = cloud.connect_options()
    options["auth"]["password"] = "wrong"
    connection = openstack.connect(**options)
    with pytest.raises(ksa.Unauthorized):
        await asyncio.to_thread(_token, connection)
    connection.close()


async def test_an_application_credential_logs_in(cloud: FakeCloud) -> None:
    credential = cloud.add_application_credential(cloud.kuryr)
    connection = openstack.connect(
        auth_type="v3applicationcredential",
        auth={"auth_url": cloud.auth()["auth_url"], **credential},
        load_yaml_config=False,
        load_envvars=False,
    )
    assert await asyncio.to_thread(_token, connection)
    connection.close()


async def test_tags_at_creation_are_dropped_in_silence_where_they_are_not_kept(
    cloud: FakeCloud, client: Client
) -> None:
    cloud.keep_tags_at_creation(on=False)
    assert (await client.create(tags=["ours"])).json()["port"]["tags"] == []
    assert cloud.ports_tagged("ours") == []


async def test_a_status_is_set_and_waited_for(cloud: FakeCloud, client: Client) -> None:
    port = (await client.create(**{"binding:host_id": "node-1"})).json()["port"]
    async with asyncio.TaskGroup() as group:
        group.create_task(cloud.wait_for(lambda: cloud.ports[port["id"]]["status"] == "ACTIVE"))
        cloud.set_status(port["id"], "ACTIVE")
    assert cloud.ports[port["id"]]["revision_number"] > port["revision_number"]


def _token(connection: Any) -> Any:
    return connection.session.get_token()
