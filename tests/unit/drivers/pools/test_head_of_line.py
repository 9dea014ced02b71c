"""Pools that wait for the same thing: one that fails otherwise holds up none of the others."""

import dataclasses

import pytest

from kuryr_k8s.drivers.base import BindingFailed
from kuryr_k8s.patience import PATIENCE
from tests.kit.pools.site import Site

SPECIAL = {"subnets": ("narrow",), "groups": ("special",)}
# no pool tries again by itself
LATE = dataclasses.replace(PATIENCE, first_pool_retry=600.0, sweep_retry=600.0)


async def full_site(tmp_path, **options):
    """A site whose quota is used up by the Pods ``first`` and ``old``."""
    site = Site(tmp_path, quota=2, **options)
    await site.recover()
    await site.request("old", "broken", **SPECIAL)
    await site.request("first", "node1")
    await site.work()
    assert site.cloud.places() == ["broken", "node1"]
    return site


async def queue_up(site, *nodes, **changes):
    """Have a Pod of each node wait, in this order."""
    for node in nodes:
        assert await site.request(f"pod-{node}", node, **changes) is None
        await site.work()


async def free_port(site):
    """Have the node of the Pod ``first`` go, and let the port be deleted."""
    await site.pool.release_unrecorded("first")
    site.pool.close_node("node1")
    await site.pass_time(5)


@pytest.mark.parametrize("minimum", [0, 1])
@pytest.mark.parametrize("failure", ["no agent", "no security group", "no address"])
async def test_pool_that_fails_otherwise_leaves_the_quota_to_the_next_one(
    tmp_path, failure, minimum
):
    site = await full_site(tmp_path, patience=LATE, ports_pool_min=minimum)
    await queue_up(site, "broken", **SPECIAL)
    await queue_up(site, "node2")
    match failure:
        case "no agent":
            site.cloud.dead.add("broken")
        case "no security group":
            site.cloud.gone.add("special")
        case _:
            site.cloud.full.add("narrow")
    await free_port(site)
    assert site.cloud.places() == ["broken", "node2"]


async def test_pool_whose_ports_cannot_be_bound_is_not_hurried_by_their_deletion(tmp_path):
    site = await full_site(tmp_path, ports_pool_min=1)
    site.cloud.dead.add("broken")
    await queue_up(site, "broken", **SPECIAL)
    await free_port(site)
    with pytest.raises(BindingFailed):
        await site.request("pod-broken", "broken", **SPECIAL)
    site.cloud.posts.clear()
    await site.pass_time(60)
    assert site.cloud.posts.count("broken") <= 4


async def test_pool_that_lacks_another_subnet_leaves_the_addresses_to_the_next_one(tmp_path):
    site = Site(tmp_path, patience=LATE)
    await site.recover()
    await site.request("first", "node1", subnets=("wide",))
    await site.work()
    site.cloud.full = {"narrow", "wide"}
    await queue_up(site, "node2", subnets=("narrow",))
    await queue_up(site, "node3", subnets=("narrow", "wide"))
    await queue_up(site, "node4", subnets=("wide",))
    site.cloud.full = {"narrow"}
    await free_port(site)
    assert site.cloud.places() == ["node4"]


@pytest.mark.parametrize("minimum", [0, 1])
async def test_pool_whose_pod_is_gone_leaves_the_quota_to_those_with_pods(tmp_path, minimum):
    site = await full_site(tmp_path, patience=LATE, ports_pool_min=minimum)
    await queue_up(site, "broken", **SPECIAL)
    await queue_up(site, "node2")
    await site.pass_time(5)
    await site.pool.release_unrecorded("pod-broken")
    site.cloud.posts.clear()
    await free_port(site)
    assert site.cloud.places() == ["broken", "node2"]
    assert site.cloud.posts[0] == "node2"
