"""Ports of pools on a VM."""

import json

from kuryr_k8s import errors
from kuryr_k8s.drivers.vif.nested_vlan import NestedVLAN
from kuryr_k8s.drivers.vif.trunk_ports import TrunkUnfit
from tests.kit.confs import TAG
from tests.kit.fakes.faults import answer, cut, hide
from tests.kit.vms import (
    ADD,
    REMOVE,
    VM,
    pod_ports,
    requests_for,
    subports,
)


async def test_pooled_ports_are_made_by_one_bulk_and_attached_by_one_call(driver, key, cloud):
    assert await driver.place(VM) == key.place
    pooled, failure = await driver.create_pooled(key, 10)
    assert failure is None
    assert subports(cloud) == {port.id: port.vlan_id for port in pooled}
    assert len(pooled) == 10
    assert all(port.fit and port.key == key for port in pooled)
    assert requests_for(cloud, "add_subports") <= 2


async def test_pooled_ports_are_found_again_with_their_places(
    driver, context, request_port, neutron, key, cloud
):
    pooled, _ = await driver.create_pooled(key, 3)
    await driver.ensure(await request_port())
    again = NestedVLAN(context)
    ports = await neutron.list_ports({"tags": TAG})
    found = await again.find_pooled(ports)
    assert set(found) == set(pooled)
    pod_network = (await request_port()).pod_network
    assert again.vif_of_pooled(found[0], pod_network).vlan_id == found[0].vlan_id
    for port in found:
        await again.delete_pooled(port)
    assert len(subports(cloud)) == len(pod_ports(cloud)) == 1


async def test_ports_are_looked_up_on_their_own_trunks_alone(driver, neutron, key, cloud):
    for _ in range(3):
        cloud.add_trunk(cloud.pods["id"])
    pooled, _ = await driver.create_pooled(key, 2)
    ports = await neutron.list_ports_by_id([port.id for port in pooled])
    read = []

    async def count(_request, proceed):
        response = await proceed()
        read.extend(trunk["id"] for trunk in json.loads(response.body)["trunks"])
        return response

    cloud.faults.add(method="GET", path=r"/trunks", times=None, action=count)
    assert set(await driver.find_pooled(ports)) == set(pooled)
    assert read == [key.place]


async def test_pooled_ports_left_by_half_are_found_unfit_and_removed(
    driver, context, neutron, key, cloud
):
    cloud.faults.add(path=ADD, times=1, action=cut())
    made, failure = await driver.create_pooled(key, 3)
    assert isinstance(failure, errors.CloudError)
    assert not made
    whole, _ = await driver.create_pooled(key, 1)
    cloud.faults.add(path=REMOVE, times=1, action=answer(500))
    ports = await neutron.list_ports({"tags": TAG})
    found = await NestedVLAN(context).find_pooled(ports)
    assert [port.id for port in found if port.fit] == [whole[0].id]
    assert [port.key.place for port in found if not port.fit] == [""] * 3
    for port in found:
        if not port.fit:
            await driver.delete_pooled(port)
    assert pod_ports(cloud) == {whole[0].id}


async def test_pooled_ports_that_the_trunk_does_not_take_are_not_kept(driver, key, cloud):
    cloud.store.change("trunk", cloud.trunk, {"admin_state_up": False})
    made, failure = await driver.create_pooled(key, 3)
    assert isinstance(failure, TrunkUnfit)
    assert not made
    assert not pod_ports(cloud)


async def test_pooled_ports_for_a_trunk_that_is_gone_are_not_made(driver, key, cloud):
    gone = key._replace(place="1b0bf90d-8c51-4c3b-9ad1-4a3d5b7d9b5e")
    made, failure = await driver.create_pooled(gone, 3)
    assert isinstance(failure, errors.NotFound)
    assert not made
    assert not pod_ports(cloud)


async def test_pooled_ports_of_bare_metal_are_none_of_ours(driver, neutron, key, cloud):
    body = {"network_id": key.network_id, "device_id": "", "binding:host_id": "chassis1"}
    port = await neutron.create_port(body | {"tags": [TAG, "kuryr-pool"]})
    assert await driver.find_pooled([cloud.ports[port["id"]]]) == []


async def test_trunk_that_a_list_does_not_show_is_asked_for_before_its_ports_count_as_unfit(
    driver, context, neutron, key, cloud
):
    pooled, _ = await driver.create_pooled(key, 3)
    cloud.faults.add(
        method="GET",
        path=r"/trunks$",
        times=None,
        when=lambda request: "port_id" not in request.query,
        action=hide(),
    )
    found = await NestedVLAN(context).find_pooled(await neutron.list_ports({"tags": TAG}))
    assert set(found) == set(pooled)
