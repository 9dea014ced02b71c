"""Ports that come back to a pool, and pools whose node or object went: all of it ends up right."""

import pytest

from tests.component.pools.pods import (
    OTHER,
    add,
    add_other_node,
    available,
    end,
    pool,
    run,
    until_ports,
)
from tests.kit.confs import NODE
from tests.kit.fakes.faults import answer
from tests.kit.ledger import counts_of, named, settle

PORTS = r"/ports/[^/]+$"
PORT_LIST = "/v2.0/ports"


async def theirs(stage, neutron, port):
    """Have the port's security groups changed by hand: it is to be mended when it comes back."""
    group = stage.cloud.add_security_group("theirs")["id"]
    await neutron.update_port(port, {"security_groups": [group]})


async def test_returned_port_that_neutron_refuses_to_mend_goes(stage, neutron):
    async with stage.controller(**pool(ports_pool_min="0")) as app:
        pod, port = await run(stage, "one")
        await theirs(stage, neutron, port)
        stage.cloud.faults.add(method="PUT", path=PORTS, action=answer(403))
        await end(stage, "one", pod)
        _, other = await run(stage, "two")
        assert other != port
        await settle(stage, lambda: app)
        assert set(stage.cloud.ports) == {other}


async def test_pod_does_not_wait_for_a_returned_port_that_cannot_be_mended_now(stage, neutron):
    async with stage.controller(**pool(ports_pool_min="0")) as app:
        pod, port = await run(stage, "one")
        await theirs(stage, neutron, port)
        broken = stage.cloud.faults.add(method="PUT", path=PORTS, times=None, action=answer(503))
        await end(stage, "one", pod)
        _, other = await run(stage, "two")
        assert other != port
        broken.remove()
        await settle(stage, lambda: app)
        assert set(stage.cloud.ports) == {port, other}


async def test_port_that_lost_its_pools_tag_goes(stage, neutron):
    async with stage.controller(**pool()) as app:
        _, port = await run(stage, "web")
        await settle(stage, lambda: app)
        (free,) = available(stage, port)
        tags = [tag for tag in stage.cloud.ports[free]["tags"] if tag != "kuryr-pool"]
        await neutron.set_port_tags(free, tags)
        await stage.cloud.wait_for(lambda: free not in stage.cloud.ports)
        await settle(stage, lambda: app)


async def test_port_given_on_does_not_come_back_with_its_former_pod(stage):
    """The first Pod's KuryrPort could not be told, and the controller died meanwhile."""
    last_word = stage.proxy.faults.add(
        method="PATCH", path="/kuryrports/one$", times=None, action=answer(503)
    )
    async with stage.controller(**pool(ports_pool_min="0")) as app:

        async def given_back():  # that the KuryrPort is gone is not told
            return not counts_of(app)["in_use"]

        pod, port = await run(stage, "one")
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("one")
        await stage.let_go("one")
        await stage.until(given_back)
        _, again = await run(stage, "two")
        assert again == port
    last_word.remove()
    async with stage.controller(**pool(ports_pool_min="0")) as app:
        await stage.until_gone("one")
        await run(stage, "three")
        await settle(stage, lambda: app)
        assert len(set(await named(stage))) == 2


async def test_pools_of_a_gone_node_go_though_another_node_never_tells_where_it_is(
    stage,
):
    soon = {"patience": {"locate_node": 0.5, "unlocated_node": 2.0}}
    async with stage.controller(**pool()) as app:
        pod, _ = await run(stage, "web")
        await end(stage, "web", pod)
        await settle(stage, lambda: app)
    await stage.client.delete(f"/api/v1/nodes/{NODE}")
    await stage.cluster.add_node("silent", annotations={})
    async with stage.controller(**pool() | soon) as app:
        await until_ports(stage, 0)
        await settle(stage, lambda: app)


async def test_object_that_was_deleted_by_hand_comes_back_with_its_numbers(stage):
    path = f"/apis/openstack.org/v1/kuryrportpools/{NODE}"

    async def counted():
        found = await stage.client.find(path)
        return found and found.get("status", {}).get("inUse") == 1 and found["metadata"]["uid"]

    soon = {"patience": {"pool_counts": 0.5}}
    async with stage.controller(**pool(park_ports="true") | soon) as app:
        await run(stage, "web")
        await settle(stage, lambda: app)
        first = await stage.until(counted)
        await stage.client.delete(path)
        await stage.until(counted)
        assert await stage.until(counted) != first


@pytest.mark.parametrize("waits", [True, False])
async def test_only_a_pod_that_waits_has_returned_ports_mended_at_once(stage, neutron, waits):
    """Else they are mended as the budget allows."""
    slow = {"ports_pool_min": "0", "ports_pool_cleanup_rate": "0.1"}
    await add_other_node(stage)
    async with stage.controller(**pool(sweep="600", **slow)):
        pods = {}
        for name in ("one", "two", "three"):
            pods[name], port = await run(stage, name)
            await theirs(stage, neutron, port)
        before = len(stage.cloud.faults.writes)
        lists = stage.cloud.calls.count("GET", PORT_LIST)
        for name, pod in pods.items():
            await end(stage, name, pod)
        if waits:
            for name in ("four", "five", "six"):
                await add(stage, name)
            for name in ("four", "five", "six"):
                await stage.until_plugged_in(name)
        else:
            await stage.cloud.wait_for(lambda: stage.cloud.calls.count("GET", PORT_LIST) > lists)
            await run(stage, "elsewhere", OTHER)  # other work goes on meanwhile
        methods = [write.method for write in stage.cloud.faults.writes[before:]]
        assert methods.count("PUT") == 3 if waits else methods == ["POST"]
