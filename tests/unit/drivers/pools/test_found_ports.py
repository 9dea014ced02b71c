"""Ports that pools find in lists: ghosts of deleted ones, and those whose answers were lost."""

import pytest

from kuryr_k8s.drivers.base import Holder
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


async def doubtful_site(tmp_path, **options):
    """A site whose node may have a Pod that an earlier leader still gives a port."""
    site = Site(tmp_path, **options)
    site.add_node("node1")
    await site.survey(frozenset(), [], doubtful=frozenset({"node1"}))
    site.cloud.loses = True
    return site


@pytest.mark.parametrize("minimum", [0, 3])
async def test_lost_answers_at_a_doubtful_place_make_no_more_ports_than_wanted(tmp_path, minimum):
    site = await doubtful_site(tmp_path, ports_pool_min=minimum)
    assert await site.request("first", "node1") is None
    await site.pass_time(300)
    assert len(site.cloud.ports) == 1 + minimum


async def test_ports_made_unnoticed_are_given_to_pods_when_the_doubt_ends(tmp_path):
    site = await doubtful_site(tmp_path)
    surveys = []
    site.pool.on_lost(lambda: surveys.append("asked for"))
    await site.request("first", "node1")
    await site.pass_time(60)
    assert await site.request("first", "node1") is None
    assert surveys == ["asked for"]
    await site.survey(site.pool.known(), site.cloud.shown(site.cloud.ports.values()))
    await site.pass_time(1)
    assert await site.request("first", "node1") in site.cloud.ports
    assert len(site.cloud.ports) == 1


async def test_port_made_unnoticed_stays_the_pods_to_which_an_earlier_leader_gave_it(tmp_path):
    site = await doubtful_site(tmp_path)
    await site.request("first", "node1")
    await site.pass_time(60)
    (theirs,) = site.cloud.ports
    site.cloud.loses = False
    holder = Holder("other", "default/other")
    listed = site.cloud.shown(site.cloud.ports.values())
    await site.survey(
        site.pool.known(), listed, claims={theirs: [holder]}, pods={"other": holder.pod}
    )
    await site.pass_time(60)
    assert await site.request("first", "node1") in site.cloud.ports.keys() - {theirs}
