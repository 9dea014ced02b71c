"""Pools of subports: attached to the VM's trunk before there is a Pod for them."""

import pytest

from kuryr_k8s.drivers.vif import nested_plan
from kuryr_k8s.drivers.vif.neutron_plan import pool_device
from tests.component.pools.pods import OPTIONS, end
from tests.kit import confs
from tests.kit.confs import HOST, NODE
from tests.kit.fakes.faults import answer, lose_reply
from tests.kit.vms import ADD, pod_ports, requests_for, subports


@pytest.fixture
async def pool(stage, options):
    """A stage with a node that is a VM, and options for pools of its ports."""
    await stage.cluster.add_node("vm", addresses=(confs.VM,))

    def make(**changes):
        kubernetes = options["kubernetes"] | {"vif_pool_driver": "nested"}
        return options | {"kubernetes": kubernetes, "vif_pool": OPTIONS | changes}

    return make


async def run(stage, name):
    """Have a Pod run on the VM; it and its VIF."""
    pod = await stage.cluster.add_pod(name, node="vm")
    vif = await stage.until_plugged_in(name)
    await stage.activate(name)
    return pod, vif


async def until_whole(cloud, count):
    """So many ports of Pods and pools, all of them attached."""
    await cloud.wait_for(
        lambda: len(subports(cloud)) == count and set(subports(cloud)) == pod_ports(cloud)
    )


async def test_pod_takes_a_subport_that_is_there_without_any_call(stage, pool, cloud):
    async with stage.controller(**pool()):
        await run(stage, "one")
        await until_whole(cloud, 4)
        assert requests_for(cloud, "add_subports") <= 2
        before, calls = subports(cloud), len(cloud.calls)
        _, vif = await run(stage, "two")
        assert before[vif["id"]] == vif["vlan_id"]
        assert len(cloud.calls) == calls


async def test_subport_that_came_back_stays_attached_and_is_given_on(stage, pool, cloud):
    async with stage.controller(**pool(ports_pool_min="0")):
        pod, vif = await run(stage, "one")
        await end(stage, "one", pod)
        _, again = await run(stage, "two")
        assert (again["id"], again["vlan_id"]) == (vif["id"], vif["vlan_id"])
        assert requests_for(cloud, "remove_subports") == 0
        assert not any(
            write.method == "PUT" and "/ports/" in write.path for write in cloud.faults.writes
        )


async def test_restarted_controller_finds_its_subports_and_their_vlan_ids(stage, pool, cloud):
    async with stage.controller(**pool()):
        await run(stage, "one")
        await until_whole(cloud, 4)
    before = subports(cloud)
    async with stage.controller(**pool()):
        writes = len(cloud.faults.writes)
        _, vif = await run(stage, "two")
        assert before[vif["id"]] == vif["vlan_id"]
        assert len(cloud.faults.writes) == writes


async def test_ports_left_unattached_by_an_earlier_life_go(stage, pool, key, neutron, cloud):
    body = nested_plan.pooled_body(key, (confs.TAG,), pool_device(confs.CLUSTER))
    left = [(await neutron.create_port(dict(body)))["id"] for _ in range(3)]
    async with stage.controller(**pool()):
        await cloud.wait_for(lambda: not pod_ports(cloud) & set(left))
        await run(stage, "one")
        await until_whole(cloud, 4)


async def test_answer_lost_while_a_pool_is_filled_loses_and_doubles_nothing(stage, pool, cloud):
    cloud.faults.add(path=ADD, times=1, action=lose_reply())
    async with stage.controller(**pool()):
        _, vif = await run(stage, "one")
        await cloud.wait_for(
            lambda: set(subports(cloud)) == pod_ports(cloud) and len(subports(cloud)) >= 3
        )
        assert subports(cloud)[vif["id"]] == vif["vlan_id"]
        ids = list(subports(cloud).values())
        assert len(set(ids)) == len(ids)


async def test_pool_keeps_its_subports_while_neutron_shows_the_trunk_that_it_did_not_find(
    stage, pool, cloud
):
    async with stage.controller(**pool(ports_pool_min="4")):
        await run(stage, "one")
        await until_whole(cloud, 5)
        before = set(subports(cloud))
        lost = cloud.faults.add(path=ADD, action=answer(404, kind="TrunkNotFound"))
        await run(stage, "two")
        await cloud.wait_for(lambda: lost.hits)
        await until_whole(cloud, 6)
        assert before < set(subports(cloud))
        assert requests_for(cloud, "remove_subports") == 0


async def test_cluster_of_vms_and_bare_metal_has_ports_of_both_kinds(stage, pool, cloud):
    groups = pool()
    groups["kubernetes"] = {"vif_pool_driver": "multi_pool"}
    mapping = "nested-vlan:nested,neutron-vif:neutron"
    groups["vif_pool"] = groups["vif_pool"] | {"vif_pool_mapping": mapping}
    await stage.client.patch(
        "/api/v1/nodes/vm", {"metadata": {"labels": {"pod_vif": "nested-vlan"}}}
    )
    async with stage.controller(**groups):
        pod, vif = await run(stage, "nested")
        await stage.cluster.add_pod("bare", node=NODE)
        bare = await stage.until_plugged_in("bare")
        assert cloud.ports[bare["id"]]["binding:host_id"] == HOST
        assert subports(cloud)[vif["id"]] == vif["vlan_id"]
        await end(stage, "nested", pod)
        # both pools are full: the VM's own port, and four of each
        await cloud.wait_for(lambda: (len(subports(cloud)), len(cloud.ports)) == (4, 9))
    before = len(cloud.ports)
    async with stage.controller(**groups):
        _, again = await run(stage, "another")
        assert subports(cloud)[again["id"]] == again["vlan_id"]
    assert len(cloud.ports) == before


async def test_ports_left_without_tags_and_unattached_go(stage, pool, key, transport, cloud):
    cloud.keep_tags_at_creation(on=False)
    body = nested_plan.pooled_body(key, (confs.TAG,), pool_device(confs.CLUSTER))
    bodies = [body, {"network_id": key.network_id}]
    made = await transport.call("POST", "/ports", body={"ports": bodies})
    left, foreign = (port["id"] for port in made["ports"])
    async with stage.controller(**pool()):
        await cloud.wait_for(lambda: left not in cloud.ports)
    assert foreign in cloud.ports
