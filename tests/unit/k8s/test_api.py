"""What the client makes of answers, and of what it cannot send."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kuryr_k8s import errors
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.credentials import Credentials, Loaded
from kuryr_k8s.k8s.resources import PODS, Key

KEY = Key("n", "p")
DEEP = '{"a":' * 3000 + "{}" + "}" * 3000


class Given:
    """Credentials that are what they are."""

    def __init__(self, **fields):
        self.fields = fields

    def load(self):
        return Loaded(**self.fields)


class Server:
    def __init__(self):
        self.status, self.text, self.fields = 200, "{}", {}

    async def answer(self, _request):
        return web.Response(status=self.status, text=self.text, content_type="application/json")


@pytest.fixture
async def server():
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    async with TestServer(app) as running:
        server.fields["server"] = str(running.make_url("")).rstrip("/")
        yield server


@pytest.fixture
async def api(server):
    api = KubeApi(Credentials(Given(**server.fields)))
    yield api
    await api.close()


async def events_of(api):
    return [event async for event in api.watch(PODS, {}, idle=5.0)]


async def test_deep_objects_are_read(server, api):
    server.text = f'{{"metadata": {{"name": "p"}}, "deep": {DEEP}}}\n'
    assert (await api.get(PODS, KEY))["metadata"] == {"name": "p"}


async def test_deep_events_are_read(server, api):
    server.text = f'{{"type": "ADDED", "object": {DEEP}}}\n{{"type": "DELETED", "object": 1}}\n'
    assert [event["type"] for event in await events_of(api)] == ["ADDED", "DELETED"]


async def test_deep_errors_are_read(server, api):
    server.status, server.text = 404, f'{{"message": "no such Pod", "details": {DEEP}}}'
    with pytest.raises(errors.KubeNotFound, match="no such Pod"):
        await api.get(PODS, KEY)


@pytest.mark.parametrize("text", ["", "{", "<html>"])
async def test_answers_that_are_no_json_are_errors(server, api, text):
    server.text = text
    with pytest.raises(errors.KubeError):
        await api.get(PODS, KEY)


@pytest.mark.parametrize("use", [events_of, lambda api: api.get(PODS, KEY)], ids=["watch", "call"])
async def test_a_header_that_cannot_be_sent_is_an_error_of_the_request(server, use):
    api = KubeApi(Credentials(Given(**server.fields, authorization="Bearer a\nb")))
    try:
        with pytest.raises(errors.KubeError, match="control character"):
            await use(api)
    finally:
        await api.close()
