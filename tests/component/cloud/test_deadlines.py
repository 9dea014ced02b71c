"""The end of a call: nothing is sent after it, and nobody waits any longer."""

import asyncio
import contextlib
import socket

import pytest
from aiohttp import web

from kuryr_k8s import errors
from kuryr_k8s.cloud import connect
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.cloud.transport import Transport

NAME = "neutron.test"
SECONDS = 1.0  # that a call may take
DEAD = ("127.0.0.2", "127.0.0.3")


@pytest.fixture
def connection(load_conf):
    return connect.connect(load_conf(), connections=1)


@pytest.fixture
def transport(connection):
    adapter = connect.ServiceAdapter(connection, "network")
    transport = Transport(adapter, limit=1, deadline=lambda: SECONDS)
    yield transport
    transport.close()


@pytest.fixture
def neutron(transport):
    return Neutron(transport)


@contextlib.contextmanager
def silent(address, port):
    """Listen, and let nobody connect: the queue is full."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind((address, port))
        server.listen(0)
        for _ in range(3):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex((address, port))
        yield


@pytest.fixture
def resolve(monkeypatch):
    """Give Neutron's name these addresses."""
    real, addresses = socket.getaddrinfo, ["127.0.0.1"]

    def lookup(host, port, *arguments, **named):
        if host != NAME:
            return real(host, port, *arguments, **named)
        return [found for address in addresses for found in real(address, port, *arguments)]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return lambda *new: addresses.__setitem__(slice(None), new)


async def until_threads_end(transport):
    """Wait until nothing of the call is left that could still send it."""
    await asyncio.to_thread(transport._threads.shutdown, wait=True)


async def test_call_is_not_sent_after_its_deadline_though_it_takes_long_to_connect(
    cloud, connection, transport, neutron, resolve
):
    port_number = int(cloud.url.rpartition(":")[2])
    cloud.keystone.endpoints["network"] = f"http://{NAME}:{port_number}"
    port = await neutron.create_port({"network_id": cloud.pods["id"], "device_id": "pod"})
    connection.session.session.close()  # no connection is left from before
    resolve(*DEAD, "127.0.0.1")
    with silent(DEAD[0], port_number), silent(DEAD[1], port_number):
        with pytest.raises(errors.CloudError) as told:
            await neutron.delete_port(port["id"])
        await until_threads_end(transport)
    assert told.value.status == 0
    assert port["id"] in cloud.ports
    assert cloud.calls.count("DELETE") == 0
    assert transport.limit.taken == 0


async def test_answer_that_comes_in_drops_is_not_awaited_after_the_deadline(
    cloud, transport, neutron
):
    port = await neutron.create_port({"network_id": cloud.pods["id"], "device_id": "pod"})
    left = asyncio.Event()

    async def drip(request, proceed):
        await proceed()
        response = web.StreamResponse(headers={"Content-Length": "1000000"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b" ")
                await asyncio.sleep(SECONDS / 10)
        except (ConnectionError, asyncio.CancelledError):
            left.set()
            raise

    cloud.faults.add(method="PUT", path="/ports/", action=drip)
    async with asyncio.timeout(60):
        with pytest.raises(errors.CloudError) as told:
            await neutron.update_port(port["id"], {"name": "new"})
        await left.wait()
    assert (told.value.status, told.value.is_refusal) == (0, False)  # nobody knows
    assert cloud.ports[port["id"]]["name"] == "new"
    assert (await neutron.get_port(port["id"]))["name"] == "new"
