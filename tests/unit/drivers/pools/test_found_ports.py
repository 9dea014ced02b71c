"""Ports that pools find in lists."""

import pytest

from tests.kit.pools.site import Site


@pytest.fixture
async def site(tmp_path):
    site = Site(tmp_path, ports_pool_min=1)
    await site.recover()
    return site


@pytest.mark.parametrize("is_known", [True, False], ids=["listed before", "made meanwhile"])
async def test_port_deleted_during_a_long_list_is_given_to_no_pod(site, is_known):
    before = site.pool.known()
    await site.request("first", "node1")
    await site.work()
    known = site.pool.known() if is_known else before
    listed = site.cloud.shown(site.cloud.ports.values())
    (view,) = site.pool.pools()
    site.pool.free(view.key, None)
    site.pool.close_node("node1")
    await site.pool.release_unrecorded("first")
    await site.pass_time(301)
    assert not site.cloud.ports
    await site.survey(known, listed)
    await site.request("second", "node1")
    await site.pass_time(2)
    assert await site.request("second", "node1") in site.cloud.ports
