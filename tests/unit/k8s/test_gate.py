"""No write is sent by whoever may not write any more, whatever it had been waiting for."""

import asyncio
import math

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kuryr_k8s import errors
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.credential_files import Files
from kuryr_k8s.k8s.credentials import Credentials
from kuryr_k8s.k8s.resources import PODS, Key

BODY = {"metadata": {"namespace": "n", "name": "p"}}


class Api:
    """A server, and a client of it with one connection and the time left for writes."""

    def __init__(self):
        self.left = 10.0
        self.checks = math.inf  # after so many there is no time left
        self.asked = []
        self.busy = asyncio.Event()
        self.go_on = asyncio.Event()

    def time_left(self):
        self.checks -= 1
        return self.left if self.checks >= 0 else 0.0

    async def answer(self, request):
        self.asked.append((request.method, request.path))
        if request.path.endswith("/slow"):
            self.busy.set()
            await self.go_on.wait()
        return web.json_response({"kind": "Pod"})


@pytest.fixture
async def api():
    api = Api()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    async with TestServer(app) as server:
        credentials = Credentials(Files(root=str(server.make_url("")).rstrip("/")))
        api.kube = KubeApi(credentials, calls=1, time_left=api.time_left)
        yield api
        await api.kube.close()


async def test_reads_do_not_ask_for_the_time_left(api):
    api.left = 0.0
    assert await api.kube.get(PODS, Key("n", "p")) == {"kind": "Pod"}


@pytest.mark.parametrize("verb", ["create", "patch", "delete", "finalizers"])
async def test_without_time_left_no_write_is_sent(api, verb):
    writes = {
        "create": lambda: api.kube.create(PODS, BODY),
        "patch": lambda: api.kube.merge_patch(PODS, Key("n", "p"), {}),
        "delete": lambda: api.kube.delete(PODS, Key("n", "p"), uid="u"),
        "finalizers": lambda: api.kube.remove_finalizers(
            PODS, Key("n", "p"), "f", uid="u", known=("f",)
        ),
    }
    await writes[verb]()
    assert len(api.asked) == 1
    api.left = -1.0
    with pytest.raises(errors.KubeError, match="another controller"):
        await writes[verb]()
    assert len(api.asked) == 1


async def test_write_that_waited_for_a_connection_is_not_sent_when_the_time_is_over(api):
    async with asyncio.TaskGroup() as group:
        group.create_task(api.kube.get(PODS, Key("n", "slow")))
        await api.busy.wait()
        waiting = group.create_task(_problem(api.kube.create(PODS, BODY)))
        await asyncio.sleep(0)
        api.left = 0.0
        api.go_on.set()
        assert "another controller" in str(await waiting)
    assert api.asked == [("GET", "/api/v1/namespaces/n/pods/slow")]


async def test_write_is_not_sent_when_the_time_ends_before_its_bytes_are_written(api):
    """aiohttp writes them in a task of its own, a turn of the loop after all else is done."""
    api.checks = 2  # when it is requested, and when it has a connection
    assert "another controller" in str(await _problem(api.kube.create(PODS, BODY)))
    assert api.asked == []
    api.checks = math.inf
    await api.kube.create(PODS, BODY)
    assert api.asked == [("POST", "/api/v1/namespaces/n/pods")]


async def test_write_is_waited_for_no_longer_than_the_time_left(api):
    for left in (0.2, 2.0, 20.0):  # on a busy machine it may be over before the write is sent
        api.left = left
        with pytest.raises(errors.KubeError):
            await api.kube.merge_patch(PODS, Key("n", "slow"), {})
        if api.asked:
            break
    api.go_on.set()
    assert api.asked


async def _problem(call):
    try:
        await call
    except errors.KubeError as error:
        return error
