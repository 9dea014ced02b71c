"""`python -m lab.kuryr up --pool KIND`: the pool drivers of the controller, and its pools."""

import asyncio
import contextlib

import pytest
from aiohttp import web

from lab.kuryr.pools import KINDS, Pools, settings
from tests.kit.confs import new_socket


@pytest.mark.parametrize("kind", KINDS)
def test_where_no_node_is_a_machine_the_driver_is_the_kind(kind):
    assert settings(kind, {}, machines=False)["kubernetes"] == {"vif_pool_driver": kind}


@pytest.mark.parametrize(
    ("kind", "mapping"),
    [
        ("noop", "nested-vlan:noop,neutron-vif:noop"),
        ("neutron", "nested-vlan:nested,neutron-vif:neutron"),
    ],
)
def test_machines_have_pools_of_subports_where_the_others_have_pools(kind, mapping):
    made = settings(kind, {"ports_pool_min": "2"}, machines=True)
    assert made["kubernetes"] == {"vif_pool_driver": "multi_pool"}
    assert made["vif_pool"] == {"vif_pool_mapping": mapping, "ports_pool_min": "2"}


async def test_pools_are_emptied_over_the_socket_of_the_controller():
    freed = []

    async def listed(_request):
        numbers = {"available": int(not freed), "creating": 0, "returning": 0}
        return web.json_response({"pools": [{"id": "3fa1"} | numbers]})

    async def shown(_request):
        return web.json_response({"ports": [] if freed else [{"id": "p", "state": "available"}]})

    async def free(request):
        freed.append((request.path, await request.json()))
        return web.json_response({"ports": 1})

    async with serving(web.get("/pools", listed), web.get("/pools/{id}", shown)) as url:
        path = new_socket()
        async with serving(web.post("/pools/{id}/free", free), path=path):
            await asyncio.to_thread(Pools(url, path).drain, 60)
    assert freed == [("/pools/3fa1/free", {"count": None})]


@contextlib.asynccontextmanager
async def serving(*routes, path=None):
    """Serve on the path, or by TCP; the URL."""
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.UnixSite(runner, str(path)) if path else web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield "" if path else "http://{}:{}".format(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()
