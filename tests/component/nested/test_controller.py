"""The whole controller with a node that is a VM."""

import pytest

from kuryr_k8s.model.vif import COVERED
from tests.kit import confs
from tests.kit.confs import TAG
from tests.kit.fakes.faults import delay
from tests.kit.kube.objects import path_of
from tests.kit.vms import (
    pod_ports,
    subports,
)


@pytest.fixture
async def vm_stage(stage, options):
    """With another node that is a VM."""
    await stage.cluster.add_node("vm", addresses=(confs.VM,))
    return stage


async def test_pod_on_a_node_without_a_trunk_is_told_and_runs_when_there_is_one(
    vm_stage, options, transport, cloud
):
    stage = vm_stage
    await transport.call("DELETE", f"/trunks/{cloud.trunk['id']}")
    async with stage.controller(**options):
        await stage.cluster.add_pod("web", node="vm")
        assert "node vm has no trunk" in await stage.until_event("KuryrNoTrunk")
        assert len(cloud.ports) == 1
        body = {"port_id": cloud.trunk["port_id"]}
        made = await transport.call("POST", "/trunks", body={"trunk": body})
        cloud.trunk = cloud.trunks[made["trunk"]["id"]]
        vif = await stage.until_plugged_in("web")
        assert subports(cloud) == {vif["id"]: vif["vlan_id"]}


async def test_trunk_that_is_disabled_is_told_once_and_takes_the_pods_port_when_it_is_not(
    vm_stage, options, cloud
):
    stage = vm_stage
    cloud.store.change("trunk", cloud.trunk, {"admin_state_up": False})
    async with stage.controller(**options):
        pod = await stage.cluster.add_pod("web", node="vm")
        assert "disabled" in await stage.until_event("KuryrTrunkUnfit")
        attempts = cloud.faults.add(path="/add_subports", times=None, action=delay(0))
        for number in (1, 2):
            labels = {"metadata": {"labels": {"number": f"n{number}"}}}
            await stage.client.patch(path_of(pod), labels)
            await cloud.wait_for(lambda number=number: attempts.hits >= number)
        cloud.store.change("trunk", cloud.trunk, {"admin_state_up": True})
        await stage.client.patch(path_of(pod), {"metadata": {"labels": None}})
        vif = await stage.until_plugged_in("web")
        assert [reason for reason, _note in await stage.events()] == ["KuryrTrunkUnfit"]
    assert set(subports(cloud)) == {vif["id"]}


async def test_trunk_deleted_under_a_pod_lets_the_pod_go(vm_stage, options, transport, cloud):
    stage = vm_stage
    async with stage.controller(**options):
        pod = await stage.cluster.add_pod("web", node="vm")
        await stage.until_plugged_in("web")
        await transport.call("DELETE", f"/trunks/{cloud.trunk['id']}")
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("web")
        await stage.let_go("web")
        await stage.until_gone("web")
        assert not pod_ports(cloud)


async def test_ports_that_nobody_names_go_and_those_of_pods_and_vms_stay(
    vm_stage, options, driver, request_port, neutron, transport, cloud
):
    stage = vm_stage
    parent = cloud.trunk["port_id"]
    await transport.call("PUT", f"/ports/{parent}/tags", body={"tags": [TAG]})
    often = {"neutron_defaults": {"sweep_interval": "1"}}
    attached, bare = [
        await driver.ensure(await request_port(pod_uid=uid)) for uid in ("one", "other")
    ]
    await neutron.trunks.remove_subports(cloud.trunk["id"], [bare.id])
    async with stage.controller(**options, **often):
        await stage.cluster.add_pod("web", node="vm")
        vif = await stage.until_plugged_in("web")
        await cloud.wait_for(lambda: pod_ports(cloud) == {vif["id"], parent})
        assert attached.id not in cloud.ports
        assert set(subports(cloud)) == {vif["id"]}


async def test_pod_of_a_virtual_machines_runtime_has_an_interface_that_it_takes(vm_stage, options):
    stage, name = vm_stage, "kata"
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": name}
    await stage.client.create(runtime | {"metadata": {"name": name}})
    kubernetes = options["kubernetes"] | {"vm_runtime_classes": f"other,{name}"}
    try:
        async with stage.controller(**options | {"kubernetes": kubernetes}):
            await stage.cluster.add_pod("secure", node="vm", runtimeClassName=name)
            await stage.cluster.add_pod("plain", node="vm")
            assert (await stage.until_plugged_in("secure"))["plugin"] == COVERED
            assert (await stage.until_plugged_in("plain"))["plugin"] != COVERED
    finally:
        await stage.client.delete(path_of(runtime | {"metadata": {"name": name}}))
