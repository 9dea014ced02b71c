"""What changes something is taken from this host alone, and from no page in a browser."""

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kuryr_k8s.engine.local_only import local_only


@pytest.fixture
async def server():
    asked = []

    async def change(request):
        asked.append(await request.json())
        return web.json_response({})

    async def look(_request):
        return web.json_response({})

    app = web.Application(middlewares=[local_only])
    app.add_routes([web.post("/change", change), web.get("/look", look)])
    async with TestServer(app, host="127.0.0.1") as server:
        server.asked = asked
        yield server


async def send(url, method="POST", **how):
    async with aiohttp.ClientSession() as session, session.request(method, url, **how) as answer:
        return answer.status


async def test_json_from_this_host_gets_through(server):
    assert await send(server.make_url("/change"), json={"count": 1}) == 200
    assert server.asked == [{"count": 1}]


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", ""])
async def test_what_a_form_can_send_is_refused(server, kind):
    headers = {"Content-Type": kind} if kind else {}
    skip = [] if kind else ["Content-Type"]
    status = await send(
        server.make_url("/change"), data=b"{}", headers=headers, skip_auto_headers=skip
    )
    assert status == 415
    assert not server.asked


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "::1"])
async def test_page_whose_name_points_here_is_refused(server, name):
    headers = {"Host": f"{name}:{server.port}"}
    assert await send(server.make_url("/change"), json={}, headers=headers) == 403
    assert not server.asked


async def test_another_host_may_look_but_not_change(server, monkeypatch):
    monkeypatch.setattr(web.BaseRequest, "remote", "192.0.2.7")
    assert await send(server.make_url("/change"), json={}) == 403
    assert await send(server.make_url("/look"), "GET") == 200
    assert not server.asked


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"])
async def test_names_of_this_host(server, name):
    host = {"Host": f"{name}:{server.port}"}
    assert await send(server.make_url("/change"), json={}, headers=host) == 200
