"""The watch of what is PENDING, on which many owners wait."""

import asyncio
import json
import threading

import requests

from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.cloud.transport import Transport
from kuryr_k8s.drivers.lbaas.pending import PendingLoadBalancers
from kuryr_k8s.model.owner import Owner
from tests.kit.contexts import driver_context

OWNER = Owner("web")


class Server:
    """Stands for the SDK and Octavia; the first call takes until it is released."""

    def __init__(self):
        self.paths = []
        self.begun = asyncio.Event()
        self.released = threading.Event()
        self._loop = asyncio.get_running_loop()

    def close(self):
        pass

    def authenticate(self):
        return "project"

    def invalidate(self):
        """Nobody revokes the token."""

    def request(self, path, _method, **_kwargs):
        self.paths.append(path)
        self._loop.call_soon_threadsafe(self.begun.set)
        self.released.wait(60)
        response = requests.Response()
        response.status_code = 200
        response._content = json.dumps({"loadbalancers": []}).encode()
        return response


async def test_look_goes_before_calls_that_wait_so_that_it_tells_how_slow_octavia_is():
    server = Server()
    transport = Transport(server, limit=1)
    woken, ended = [], []
    context = driver_context(None, None, Octavia(transport))
    pending = PendingLoadBalancers(context, ("ours",), woken.append, ended.extend)
    pending.watch("lb", OWNER, "PENDING_CREATE")
    try:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(transport.call("POST", "/first"))
            await server.begun.wait()
            for number in range(3):
                group.create_task(transport.call("POST", f"/{number}"))
            await asyncio.sleep(0)
            group.create_task(pending.reconcile(pending.KEY))
            await asyncio.sleep(0)
            server.released.set()
    finally:
        server.released.set()
        transport.close()
    assert server.paths == ["/first", "/lbaas/loadbalancers", "/0", "/1", "/2"]
    assert woken == [OWNER]
    assert len(ended) == 1
