"""Pools whose subnet is full: those in the next subnet serve their Pods, and all may help all."""

import dataclasses

from kuryr_k8s.cloud.neutron.full_subnets import PAUSE
from kuryr_k8s.patience import PATIENCE
from tests.kit.pools.site import Site

TWO = {"subnets": ("first",), "further": ("second",)}
# no pool tries again by itself
LATE = dataclasses.replace(PATIENCE, first_pool_retry=600.0, sweep_retry=600.0)


async def site_with(tmp_path, *full, nodes=("node1",), **options):
    site = Site(tmp_path, ports_pool_fill_rate=1000, **options)
    site.cloud.full = set(full)
    for node in nodes:
        site.add_node(node)
    await site.recover()
    return site


async def run(site, pod, node="node1"):
    """Have a Pod ask until it has its port; the port's subnet."""
    if await site.request(pod, node, **TWO) is None:
        await site.work()
    port_id = await site.request(pod, node, **TWO)
    (subnet,) = site.cloud.ports[port_id].key.subnet_ids
    return subnet


async def test_pod_waits_for_one_attempt_in_the_full_subnet(tmp_path):
    site = await site_with(tmp_path, "first")
    assert await run(site, "one") == "second"
    assert await run(site, "two") == "second"
    assert site.cloud.tried == {"first": 1, "second": 2}


async def test_ports_for_pods_to_come_are_made_in_the_subnet_in_use(tmp_path):
    site = await site_with(tmp_path, "first", ports_pool_min=3)
    await run(site, "one")
    await site.pass_time(PAUSE / 2)
    assert site.cloud.subnets() == {"second": 4}
    assert site.cloud.tried["first"] == 1


async def test_full_subnet_is_tried_by_few_however_many_pools_there_are(tmp_path):
    nodes = [f"node{number}" for number in range(10)]
    site = await site_with(tmp_path, "first", nodes=nodes, ports_pool_min=3)
    for node in nodes:
        assert await run(site, f"pod-{node}", node) == "second"
    await site.pass_time(3 * PAUSE)
    assert site.cloud.subnets() == {"second": 40}
    assert site.cloud.tried["first"] <= 1 + 3 * len(nodes)


async def test_what_is_left_in_the_first_subnet_is_used_when_a_refill_asked_for_too_much(
    tmp_path,
):
    site = await site_with(tmp_path, ports_pool_min=3)
    await run(site, "one")
    await site.pass_time(5)
    assert site.cloud.subnets() == {"first": 4}
    site.cloud.full = {"first"}
    found = [await run(site, f"pod{number}") for number in range(6)]
    assert found == ["first"] * 3 + ["second"] * 3


async def test_claim_gets_one_port_when_its_pool_changes(tmp_path):
    site = await site_with(tmp_path, "first", "second")
    assert await site.request("one", "node1", **TWO) is None
    await site.work()
    assert await site.request("one", "node1", **TWO) is None
    site.cloud.full = {"first"}
    await site.pass_time(PAUSE + 10)
    assert await site.request("one", "node1", **TWO)
    assert site.cloud.subnets() == {"second": 1}


async def test_pods_of_any_node_get_what_is_freed_in_any_subnet(tmp_path):
    for freed in ("first", "second"):
        directory = tmp_path / freed
        directory.mkdir()
        nodes = ["node1", "node2", "node3"]
        site = await site_with(directory, nodes=nodes, patience=LATE)
        site.cloud.full = {"first", "second"} - {freed}
        assert await run(site, "holder", "node3") == freed
        site.cloud.full = {"first", "second"}
        for node in ("node1", "node2"):
            assert await site.request(f"pod-{node}", node, **TWO) is None
            await site.work()
        await site.pass_time(2 * PAUSE)
        site.cloud.full -= {freed}
        await site.pool.release_unrecorded("holder")
        site.pool.close_node("node3")
        await site.pass_time(5)
        for node in ("node1", "node2"):
            assert await site.request(f"pod-{node}", node, **TWO)
        assert site.cloud.subnets() == {freed: 2}


async def test_port_that_returns_serves_a_pod_that_waits_for_another_subnet(tmp_path):
    site = await site_with(tmp_path, "first", patience=LATE)
    await run(site, "one")
    site.cloud.full = {"first", "second"}
    assert await site.request("two", "node1", **TWO) is None
    await site.work()
    assert await site.request("two", "node1", **TWO) is None
    await site.pool.release_unrecorded("one")
    await site.work()
    assert await site.request("two", "node1", **TWO)
    assert site.cloud.subnets() == {"second": 1}


async def site_with_port_returning(tmp_path):
    """The first subnet is full, a port is in use in the second, and one returns to the first."""
    site = await site_with(tmp_path)
    await run(site, "one")
    site.cloud.full = {"first"}
    assert await run(site, "two") == "second"
    await site.pool.release_unrecorded("one")
    return site


async def test_pod_waits_for_a_port_that_returns_to_the_full_subnet(tmp_path):
    site = await site_with_port_returning(tmp_path)
    assert await site.request("three", "node1", **TWO) is None
    assert await run(site, "three") == "first"
    assert site.cloud.subnets() == {"first": 1, "second": 1}


async def test_port_that_returns_is_awaited_by_one_pod_alone(tmp_path):
    site = await site_with_port_returning(tmp_path)
    for pod in ("three", "four"):
        assert await site.request(pod, "node1", **TWO) is None
    assert await run(site, "four") == "second"
    assert await run(site, "three") == "first"


async def test_pod_gets_another_port_when_the_one_that_returned_is_spoilt(tmp_path):
    site = await site_with_port_returning(tmp_path)
    assert await site.request("three", "node1", **TWO) is None
    (returned,) = (port for port in site.cloud.ports.values() if "first" in port.key.subnet_ids)
    del site.cloud.ports[returned.id]
    assert await run(site, "three") == "second"


async def test_pool_of_the_first_subnet_is_used_again_when_it_has_room(tmp_path):
    site = await site_with(tmp_path, "first")
    assert await run(site, "one") == "second"
    site.cloud.full = set()
    site.clock.advance(PAUSE)
    assert await run(site, "two") == "first"


async def test_port_of_any_alternative_is_kept_by_its_pod(tmp_path):
    site = await site_with(tmp_path, "first")
    await run(site, "one")
    port = await site.request("one", "node1", **TWO)
    site.cloud.full = set()
    site.clock.advance(PAUSE)
    assert await site.request("one", "node1", **TWO) == port
    assert len(site.cloud.ports) == 1
