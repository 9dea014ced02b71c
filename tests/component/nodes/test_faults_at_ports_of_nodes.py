"""Ports of Nodes where Neutron fails, Nodes are registered again, or another controller leads."""

import json

import pytest

from kuryr_k8s.handlers.nodes.ports import NODE_DEVICE_OWNER
from kuryr_k8s.model.annotations import HOST_ID, NODE_INTERFACE
from tests.kit.confs import HOST, MARK, NODE
from tests.kit.fakes.faults import answer, cut, lose_reply

PATIENCE = {"first_refused": 0.1, "refused": 0.1}


@pytest.fixture
def nodes(stage):
    """Give the cloud a network for the nodes' ports."""
    return stage.cloud.add_network("nodes", "10.63.0.0/24", mtu=1442)


def options(network):
    named = {"node_subnet": network["subnets"][0], "sweep_interval": "1"}
    return {"neutron_defaults": named, "patience": PATIENCE}


def ports(stage):
    found = stage.cloud.ports.values()
    return [port for port in found if port["device_owner"] == NODE_DEVICE_OWNER]


async def until_one_port_is_described(stage):
    """Wait until the Node has one port, and its annotation names that port."""

    async def is_described():
        found = await stage.client.find(f"/api/v1/nodes/{NODE}")
        text = ((found or {"metadata": {}})["metadata"].get("annotations") or {}).get(
            NODE_INTERFACE
        )
        known = [port["id"] for port in ports(stage)]
        return text and [json.loads(text)["portId"]] == known and known[0]

    return await stage.until(is_described)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("status", [409, 429, 500, 503])
async def test_node_gets_one_port_after_errors_of_neutron(stage, nodes, method, status):
    stage.cloud.faults.add(method=method, path=r"/ports$", times=3, action=answer(status))
    async with stage.controller(**options(nodes)):
        await until_one_port_is_described(stage)


@pytest.mark.parametrize("action", [cut, lose_reply])
async def test_node_gets_one_port_after_a_lost_answer(stage, nodes, action):
    stage.cloud.faults.add(method="POST", path=r"/ports$", times=1, action=action())
    async with stage.controller(**options(nodes)):
        await until_one_port_is_described(stage)


@pytest.mark.parametrize("status", [403, 500])
async def test_port_that_gets_no_tags_is_not_made_a_second_time(stage, nodes, status):
    stage.cloud.keep_tags_at_creation(on=False)
    refused = stage.cloud.faults.add(
        method="PUT", path=r"/ports/[^/]+/tags$", times=None, action=answer(status)
    )
    async with stage.controller(**options(nodes)):
        await stage.cloud.wait_for(lambda: refused.hits >= 4, within=30)
        assert len(ports(stage)) == 1
        refused.remove()
        await until_one_port_is_described(stage)
        assert MARK in ports(stage)[0]["tags"]


async def test_port_without_tags_goes_with_the_option_although_neutron_fails(stage, nodes):
    stage.cloud.keep_tags_at_creation(on=False)
    tags = {"method": "PUT", "path": r"/ports/[^/]+/tags$", "action": answer(500)}
    refused = stage.cloud.faults.add(times=None, **tags)
    async with stage.controller(**options(nodes)):
        await stage.cloud.wait_for(lambda: refused.hits)
    refused.remove()
    stage.cloud.faults.add(times=1, **tags)
    async with stage.controller(neutron_defaults={"sweep_interval": "1"}):
        await stage.cloud.wait_for(lambda: not ports(stage))


async def test_node_that_is_registered_again_gets_a_port_of_its_own(stage, nodes):
    async with stage.controller(**options(nodes)):
        first = await until_one_port_is_described(stage)
        await stage.client.delete(f"/api/v1/nodes/{NODE}")
        await stage.cluster.add_node(NODE, annotations={HOST_ID: HOST})
        assert await until_one_port_is_described(stage) != first


async def test_next_leader_makes_no_second_port(stage, nodes):
    async with stage.controller(leading=False, **options(nodes)) as other:
        async with stage.controller(leading=False, **options(nodes)):
            first = await until_one_port_is_described(stage)
        await stage.until(_leads(other))
        assert await until_one_port_is_described(stage) == first


def _leads(app):
    async def leads():
        return app.leading.is_set()

    return leads


async def test_port_of_another_cluster_is_left_alone(stage, nodes):
    foreign = stage.cloud.add_port(
        nodes["id"],
        device_owner=NODE_DEVICE_OWNER,
        description="kuryr-cluster:another",
        tags=["kuryr-cluster:another"],
    )
    async with stage.controller(**options(nodes)):
        await stage.cloud.wait_for(lambda: len(ports(stage)) == 2)
    async with stage.controller(neutron_defaults={"sweep_interval": "1"}):
        await stage.cloud.wait_for(lambda: len(ports(stage)) == 1)
        assert [port["id"] for port in ports(stage)] == [foreign["id"]]


@pytest.mark.parametrize("status", [409, 500])
async def test_node_keeps_its_port_until_the_one_in_the_new_network_is_made(stage, nodes, status):
    async with stage.controller(**options(nodes)):
        first = await until_one_port_is_described(stage)
    other = stage.cloud.add_network("other-nodes", "10.64.0.0/24")
    refused = stage.cloud.faults.add(
        method="POST", path=r"/ports$", times=None, action=answer(status)
    )
    async with stage.controller(**options(other)):
        await stage.cloud.wait_for(lambda: refused.hits >= 3)
        assert await until_one_port_is_described(stage) == first
        refused.remove()

        async def has_moved():
            return await until_one_port_is_described(stage) != first

        await stage.until(has_moved)
        assert [port["network_id"] for port in ports(stage)] == [other["id"]]
