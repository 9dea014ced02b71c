"""Which trunk is a node's; trunks that are not there, or not fit."""

import dataclasses

import pytest

from kuryr_k8s import errors
from kuryr_k8s.drivers.vif.nested_vlan import NestedVLAN
from kuryr_k8s.drivers.vif.node_trunks import NoTrunk
from kuryr_k8s.drivers.vif.trunk_ports import TrunkUnfit
from tests.kit.contexts import driver_context
from tests.kit.vms import (
    node_at,
    pod_ports,
    subports,
)


async def test_node_without_a_trunk_is_refused_and_makes_no_port(driver, request_port, cloud):
    with pytest.raises(NoTrunk, match=r"node vm has no trunk .* the address 10\.63\.0\.99 in"):
        await driver.ensure(await request_port(node=node_at("10.63.0.99")))
    with pytest.raises(NoTrunk, match="no InternalIP"):
        await driver.ensure(await request_port(node=node_at()))
    assert not cloud.faults.writes


async def test_address_counts_only_in_the_nodes_subnets(driver, request_port, neutron, cloud):
    [subnet, _] = cloud.pods["subnets"]
    fixed_ips = [{"subnet_id": subnet, "ip_address": "10.62.9.9"}]
    cloud.add_trunk(cloud.pods["id"], fixed_ips=fixed_ips)
    with pytest.raises(NoTrunk):
        await driver.ensure(await request_port(node=node_at("10.62.9.9")))


async def test_trunk_is_found_by_a_tag_with_the_nodes_name(
    context, load_conf, request_port, neutron, cloud
):
    conf = load_conf(pod_vif_nested={"trunk_tag": "k8s-node={node}"})
    driver = NestedVLAN(dataclasses.replace(context, conf=conf))
    await driver.start()
    with pytest.raises(NoTrunk, match="tag k8s-node=vm"):
        await driver.ensure(await request_port())
    cloud.store.change("trunk", cloud.trunk, {"tags": ["k8s-node=vm"]})
    vif = await driver.ensure(await request_port())
    assert subports(cloud) == {vif.id: 1}
    other = cloud.add_trunk(cloud.nodes["id"])
    cloud.store.change("trunk", other, {"tags": ["k8s-node=vm"]})
    with pytest.raises(NoTrunk, match="2 trunks"):
        await driver.ensure(await request_port(node=node_at("10.63.0.77")))


@pytest.mark.parametrize(
    ("options", "kind", "complaint"),
    [
        ({}, errors.ConfigError, "worker_nodes_subnets is not set"),
        ({"trunk_tag": "node"}, errors.ConfigError, "has no {node} in it"),
        (
            {"worker_nodes_subnets": "1b0bf90d-8c51-4c3b-9ad1-4a3d5b7d9b5e"},
            errors.Refused,
            "could not be found",
        ),
    ],
)
async def test_options_that_find_no_trunk_are_refused_at_start(
    load_conf, neutron, options, kind, complaint
):
    conf = load_conf(pod_vif_nested=options)
    driver = NestedVLAN(driver_context(conf, neutron))
    with pytest.raises(kind, match=complaint):
        await driver.start()


async def test_trunk_that_was_deleted_is_told_and_a_new_one_is_found(
    driver, request_port, transport, cloud
):
    old = await driver.ensure(await request_port(pod_uid="old"))
    await transport.call("DELETE", f"/trunks/{cloud.trunk['id']}")
    with pytest.raises(errors.NotFound, match="Trunk"):
        await driver.ensure(await request_port())
    with pytest.raises(NoTrunk):
        await driver.ensure(await request_port(may_exist=True))
    body = {"port_id": cloud.trunk["port_id"]}
    made = await transport.call("POST", "/trunks", body={"trunk": body})
    cloud.trunk = cloud.trunks[made["trunk"]["id"]]
    vif = await driver.ensure(await request_port(may_exist=True))
    assert subports(cloud) == {vif.id: 1}
    await driver.release(old)
    await driver.release(vif)
    assert not pod_ports(cloud)


async def test_trunk_with_a_smaller_mtu_is_refused_and_keeps_no_port(driver, request_port, cloud):
    cloud.store.change("network", cloud.nodes, {"mtu": 1400})
    with pytest.raises(TrunkUnfit, match="MTU 1442 of subport"):
        await driver.ensure(await request_port())
    assert not pod_ports(cloud)


async def test_trunk_that_is_disabled_is_refused(driver, request_port, cloud):
    vif = await driver.ensure(await request_port(pod_uid="first"))
    cloud.store.change("trunk", cloud.trunk, {"admin_state_up": False})
    with pytest.raises(TrunkUnfit, match="disabled"):
        await driver.ensure(await request_port())
    with pytest.raises(TrunkUnfit, match="disabled"):
        await driver.release(vif)
    cloud.store.change("trunk", cloud.trunk, {"admin_state_up": True})
    await driver.release(vif)
    assert not pod_ports(cloud)
