"""The end of a call: nothing is sent after it, and nobody waits any longer."""

import asyncio
import contextlib
import functools
import socket
import threading

import pytest
import requests
from aiohttp import web

from kuryr_k8s import errors
from kuryr_k8s.cloud import connect
from kuryr_k8s.cloud.deadline import Deadline, DeadlineAdapter
from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.cloud.transport import Transport
from tests.kit.confs import CLUSTER
from tests.kit.fakes.faults import Hang

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
    return Neutron(transport, ClusterMark(CLUSTER))


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


class Drip:
    """Does the work, and answers in drops without end; `left` is set when the client has gone."""

    def __init__(self):
        self.left = asyncio.Event()

    async def __call__(self, request, proceed):
        await proceed()
        response = web.StreamResponse(headers={"Content-Length": "1000000"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b" ")
                await asyncio.sleep(SECONDS / 10)
        except (ConnectionError, asyncio.CancelledError):
            self.left.set()
            raise


@pytest.fixture
def resolve(monkeypatch):
    """Give Neutron's name these addresses, or have its lookup call this and fail."""
    real, addresses = socket.getaddrinfo, ["127.0.0.1"]

    def lookup(host, port, *arguments, **named):
        if host != NAME:
            return real(host, port, *arguments, **named)
        if callable(addresses[0]):
            addresses[0]()
            raise socket.gaierror("there is no answer")
        return [found for address in addresses for found in real(address, port, *arguments)]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return lambda *new: addresses.__setitem__(slice(None), new)


async def until_threads_end(threads):
    """Wait until nothing of the call is left that could still send it."""
    await asyncio.to_thread(threads.shutdown, wait=True)


async def test_call_is_not_sent_after_its_deadline_though_it_takes_long_to_connect(
    cloud, connection, transport, neutron, resolve
):
    port_number = int(cloud.url.rpartition(":")[2])
    cloud.keystone.endpoints["network"] = f"http://{NAME}:{port_number}"
    port = await neutron.create_port({"network_id": cloud.pods["id"], "device_id": "pod"})
    connection.session.session.close()  # no connection is left from before
    resolve(*DEAD, "127.0.0.1")
    threads = transport._threads
    with silent(DEAD[0], port_number), silent(DEAD[1], port_number):
        with pytest.raises(errors.CloudError) as told:
            await neutron.delete_port(port["id"])
        await until_threads_end(threads)
    assert told.value.status == 0
    assert port["id"] in cloud.ports
    assert cloud.calls.count("DELETE") == 0
    assert transport.limit.taken == 0


async def test_answer_that_comes_in_drops_is_not_awaited_after_the_deadline(
    cloud, transport, neutron
):
    port = await neutron.create_port({"network_id": cloud.pods["id"], "device_id": "pod"})
    drip = Drip()
    cloud.faults.add(method="PUT", path="/ports/", action=drip)
    async with asyncio.timeout(60):
        with pytest.raises(errors.CloudError) as told:
            await neutron.update_port(port["id"], {"name": "new"})
        await drip.left.wait()
    assert (told.value.status, told.value.is_refusal) == (0, False)  # nobody knows
    assert cloud.ports[port["id"]]["name"] == "new"
    assert (await neutron.get_port(port["id"]))["name"] == "new"


async def test_keystone_that_answers_in_drops_holds_up_a_call_until_its_deadline(
    cloud, transport, neutron
):
    drip = Drip()
    cloud.faults.add(method="POST", path="/v3/auth/tokens", action=drip)
    async with asyncio.timeout(60):
        with pytest.raises(errors.CloudError) as told:
            await neutron.create_port({"network_id": cloud.pods["id"], "device_id": "pod"})
        await drip.left.wait()
        assert told.value.status == 0
        port = await until_served(neutron, cloud)
    assert port["id"] in cloud.ports


async def until_served(neutron, cloud):
    """Create a port; the failure of an authentication counts for a second."""
    while True:
        try:
            return await neutron.create_port({"network_id": cloud.pods["id"], "device_id": "pod"})
        except errors.CloudError:
            await asyncio.sleep(0.1)


async def test_thread_that_is_left_to_itself_takes_no_place_of_another_call(
    cloud, connection, transport, neutron, resolve
):
    port_number = int(cloud.url.rpartition(":")[2])
    cloud.keystone.endpoints["network"] = f"http://{NAME}:{port_number}"
    await neutron.list_ports({})
    connection.session.session.close()
    looked_up, found = threading.Event(), threading.Event()
    resolve(lambda: looked_up.set() or found.wait(60))
    try:
        with pytest.raises(errors.CloudError, match="in time"):
            await neutron.list_ports({})
        assert looked_up.is_set()
        async with asyncio.timeout(30):
            assert await transport.project_id() == cloud.project_id
    finally:
        found.set()


async def test_end_of_a_call_does_not_cut_the_connection_that_another_has_by_then(cloud):
    hang = Hang()
    cloud.faults.add(path="/second", action=hang)
    session, leave = requests.Session(), threading.Event()
    session.mount("http://", DeadlineAdapter(pool_connections=1, pool_maxsize=1))
    first, second = Deadline(lambda: SECONDS), Deadline(lambda: 60.0)

    def call_first(over):
        with first.sending():
            session.get(f"{cloud.url}/first")
            over()
            leave.wait()

    def call_second():
        with second.sending():
            return session.get(f"{cloud.url}/second").status_code

    loop, answered = asyncio.get_running_loop(), asyncio.Event()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        over = functools.partial(loop.call_soon_threadsafe, answered.set)
        group.create_task(asyncio.to_thread(call_first, over))
        try:
            await answered.wait()
            task = group.create_task(asyncio.to_thread(call_second))
            await hang.reached.wait()
            await asyncio.wait([first.given_up, task], return_when=asyncio.FIRST_COMPLETED)
            hang.release()
            assert await task == 404
        finally:
            leave.set()
            first.close()
            second.close()
            session.close()
