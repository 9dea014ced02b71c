"""What is used up for many pools at once: one of them tries, and Pods get what becomes free."""

import asyncio
import time
from urllib.parse import parse_qs

import pytest

from kuryr_k8s.model.annotations import HOST_ID
from kuryr_k8s.patience import PATIENCE
from tests.component.pools.pods import OTHER, add, add_other_node, end, pool, run, until_ports
from tests.kit.confs import HOST, NODE
from tests.kit.fakes.faults import answer, lose_reply
from tests.kit.ledger import counts_of, named, settle

NODES = 12
LATE = {"first_pool_retry": 600.0, "sweep_retry": 600.0}  # no pool tries again by itself


@pytest.fixture
async def nodes(stage):
    """The names of many nodes, each with a chassis."""
    names = [f"storm-{number}" for number in range(NODES)]
    for name in names:
        stage.cloud.add_host(name)
        await stage.cluster.add_node(name, annotations={HOST_ID: name})
    return names


async def add_to_each(stage, nodes):
    async with asyncio.TaskGroup() as group:
        for node in nodes:
            group.create_task(add(stage, f"pod-{node}", node))


async def until_refused(stage, nodes):
    """Wait until the pool of each node has been refused."""
    for node in nodes:
        await stage.until(lambda node=node: stage.node_events(node))


def posts(stage):
    return stage.cloud.calls.count("POST", "/v2.0/ports")


async def test_port_that_is_free_costs_a_few_creations_however_many_pools_wait(stage, nodes):
    stage.cloud.set_quota(stage.cloud.project_id, port=1)
    async with stage.controller(**pool(sweep="600", patience=LATE, ports_pool_min="0")):
        pod, _ = await run(stage, "first")
        await add_to_each(stage, nodes)
        await until_refused(stage, nodes)
        before, since = posts(stage), time.monotonic()
        await end(stage, "first", pod)

        async def another():
            return len(await named(stage)) == 1

        await stage.until(another)
        regular = 1 + (time.monotonic() - since) // PATIENCE.short_pool_retry
        assert posts(stage) - before <= 3 + regular


async def test_pods_of_all_pools_get_their_ports_when_an_operator_raises_the_quota(stage, nodes):
    stage.cloud.set_quota(stage.cloud.project_id, port=0)
    async with stage.controller(**pool(sweep="600", patience=LATE, ports_pool_min="0")) as app:
        await add_to_each(stage, nodes)
        await until_refused(stage, nodes)
        stage.cloud.set_quota(stage.cloud.project_id, port=NODES)
        await until_ports(stage, NODES)
        await settle(stage, lambda: app)
        assert len(await named(stage)) == NODES


@pytest.mark.parametrize("status", [503, 504])
async def test_pods_of_all_pools_get_their_ports_when_neutron_serves_again(stage, nodes, status):
    outage = stage.cloud.faults.add(
        method="POST", path=r"/ports$", times=None, action=answer(status)
    )
    async with stage.controller(**pool(sweep="600", patience=LATE, ports_pool_min="0")) as app:
        await add_to_each(stage, nodes)
        await stage.cloud.wait_for(lambda: outage.hits >= NODES // 2)
        outage.remove()
        await settle(stage, lambda: app)
        assert len(await named(stage)) == NODES


async def test_one_search_finds_the_ports_whose_creations_got_no_answer(stage, nodes):
    lost = stage.cloud.faults.add(method="POST", path=r"/ports$", times=None, action=lose_reply())
    async with stage.controller(**pool(sweep="600", ports_pool_min="0")) as app:
        await run_on_first(stage, lost)
        lists = len(stage.cloud.calls)
        await add_to_each(stage, nodes)
        await until_ports(stage, NODES + 1)
        lost.remove()
        await settle(stage, lambda: app)
        assert len(await named(stage)) == len(stage.cloud.ports) == NODES + 1
        searches = [
            parse_qs(call.query)
            for call in stage.cloud.calls[lists:]
            if (call.method, call.what) == ("GET", "/v2.0/ports") and "network_id" in call.query
        ]
        searches = [search for search in searches if "tags" in search]
        assert 1 <= len(searches) <= NODES // 3
        assert all(HOST not in search["binding:host_id"] for search in searches)
        assert all("created_at" not in search["fields"] for search in searches)


async def run_on_first(stage, lost):
    """Have a Pod run on a node that has nothing to do with what is lost."""
    lost.when = lambda _request: False
    await run(stage, "first")
    lost.when = None


async def test_no_budget_holds_up_ports_that_are_freed_for_pods(stage):
    stage.cloud.set_quota(stage.cloud.project_id, port=7)
    await add_other_node(stage)
    slow = {"ports_pool_cleanup_rate": "0.1", "ports_pool_min": "6", "ports_pool_batch": "6"}
    async with stage.controller(**pool(sweep="600", **slow)):
        await run(stage, "one")
        await until_ports(stage, 7)
        for number in range(6):
            await add(stage, f"other-{number}", OTHER)
        for number in range(6):
            await stage.until_plugged_in(f"other-{number}")
        assert len(stage.cloud.ports) == 7


async def test_port_that_returns_is_freed_for_pods_of_other_pools_before_it_is_cool(stage):
    stage.cloud.set_quota(stage.cloud.project_id, port=1)
    await add_other_node(stage)
    warm = {"ports_pool_min": "0", "ports_pool_cooldown": "600"}
    async with stage.controller(**pool(sweep="600", patience=LATE, **warm)):
        pod, _ = await run(stage, "one")
        await add(stage, "two", OTHER)
        await stage.until(lambda: stage.node_events(OTHER))
        await end(stage, "one", pod)
        await stage.until_plugged_in("two")


async def test_pools_of_a_node_that_is_another_host_by_now_are_emptied(stage):
    async with stage.controller(**pool(ports_pool_min="3")) as app:
        _, port = await run(stage, "web")
        await settle(stage, lambda: app)
        annotations = {"metadata": {"annotations": {HOST_ID: "chassis2"}}}
        await stage.client.patch(f"/api/v1/nodes/{NODE}", annotations)

        def left():
            ports = stage.cloud.ports.values()
            return [p["id"] for p in ports if p["binding:host_id"] == HOST] == [port]

        await stage.cloud.wait_for(left)
        await settle(stage, lambda: app)
        assert counts_of(app)["in_use"] == 1
