"""The ports of Pods on a VM: made, found again, given back."""

import contextlib
import dataclasses
import ipaddress

import pytest

from kuryr_k8s import errors
from kuryr_k8s.drivers.vif.nested_vlan import NestedVLAN
from tests.kit import confs
from tests.kit.confs import MARK, TAG
from tests.kit.fakes.faults import answer, cut, lose_reply
from tests.kit.vms import (
    ADD,
    REMOVE,
    UID,
    node_at,
    pod_ports,
    subports,
    together,
)


async def test_port_is_a_tagged_subport_of_the_vms_trunk(driver, request_port, cloud):
    vif = await driver.ensure(await request_port())
    port = cloud.ports[vif.id]
    assert port["binding:profile"] == {"parent_name": cloud.trunk["port_id"], "tag": vif.vlan_id}
    assert port["binding:host_id"] == ""
    assert set(port["tags"]) == {TAG, MARK, "kuryr-ifname:eth0", f"kuryr-pod:{UID}"}
    assert port["name"] == "default/web-0"
    assert port["security_groups"] == [cloud.group["id"]]
    assert subports(cloud) == {vif.id: 1}


async def test_vif_has_both_families_vlan_id_and_mac(driver, request_port, cloud):
    vif = await driver.ensure(await request_port())
    port = cloud.ports[vif.id]
    assert (vif.address, vif.vlan_id, vif.plugin) == (port["mac_address"], 1, "noop")
    assert vif.network.mtu == 1442
    addresses = {ip["ip_address"] for ip in port["fixed_ips"]}
    assert {subnet.ips[0].address for subnet in vif.network.subnets} == addresses
    assert not vif.active


async def test_two_interfaces_of_a_pod_have_two_subports(driver, request_port, cloud):
    first = await driver.ensure(await request_port())
    second = await driver.ensure(await request_port(ifname="eth1", may_exist=True))
    assert subports(cloud) == {first.id: 1, second.id: 2}


async def test_subport_has_the_address_and_the_mac_that_are_asked_for(
    driver, context, request_port, cloud
):
    v4 = cloud.subnets[cloud.pods["subnets"][0]]
    address = str(ipaddress.ip_network(v4["cidr"])[77])
    asked = {"addresses": (address,), "mac": "02:23:45:67:89:ab", "port_security": False}
    first = await driver.ensure(await request_port(**asked))
    port = cloud.ports[first.id]
    assert address in {ip["ip_address"] for ip in port["fixed_ips"]}
    assert (first.address, port["mac_address"]) == (asked["mac"], asked["mac"])
    assert (port["port_security_enabled"], port["security_groups"]) == (False, [])
    again = await NestedVLAN(context).ensure(await request_port(**asked, may_exist=True))
    assert (again.id, subports(cloud)) == (first.id, {first.id: 1})
    other = asked | {"mac": "02:23:45:67:89:ac"}
    replaced = await NestedVLAN(context).ensure(await request_port(**other, may_exist=True))
    assert subports(cloud) == {replaced.id: replaced.vlan_id}
    assert replaced.address == other["mac"]


async def test_vlan_ids_are_those_of_the_trunk_alone(
    driver, context, request_port, neutron, cloud
):
    first = await driver.ensure(await request_port())
    trunk = cloud.trunk
    confs.add_vm(cloud, "10.63.0.10")
    other = await driver.ensure(
        await request_port(pod_uid="other", node=node_at("10.63.0.10", name="vm2"))
    )
    assert cloud.trunk is not trunk
    assert (first.vlan_id, other.vlan_id) == (1, 1)


@pytest.mark.parametrize("path", [r"/ports$", ADD], ids=["port", "subport"])
@pytest.mark.parametrize("fault", [lose_reply(), cut()], ids=["applied", "not applied"])
async def test_write_without_an_answer_never_makes_a_second_port(
    driver, context, request_port, cloud, path, fault
):
    cloud.faults.add(
        path=path, times=1, action=fault, when=lambda request: request.method != "GET"
    )
    with pytest.raises(errors.CloudError):
        await driver.ensure(await request_port())
    for again in (driver, NestedVLAN(context)):
        vif = await again.ensure(await request_port(may_exist=True))
        assert subports(cloud) == {vif.id: vif.vlan_id}
        assert pod_ports(cloud) == {vif.id}


async def test_neutron_that_drops_tags_at_creation_gets_them_before_the_port_is_attached(
    driver, request_port, cloud
):
    cloud.keep_tags_at_creation(on=False)
    cloud.faults.add(method="PUT", path=r"/tags$", times=1, action=cut())
    with pytest.raises(errors.CloudError):
        await driver.ensure(await request_port())
    assert not subports(cloud)
    vif = await driver.ensure(await request_port(may_exist=True))
    assert pod_ports(cloud) == {vif.id} == set(subports(cloud))
    assert len(cloud.ports) == 2  # the VM's own is one


async def test_port_that_no_tag_came_to_mark_goes_with_its_pod(driver, request_port, cloud):
    cloud.keep_tags_at_creation(on=False)
    cloud.faults.add(method="PUT", path=r"/tags$", times=1, action=cut())
    with pytest.raises(errors.CloudError):
        await driver.ensure(await request_port())
    assert await driver.release_unrecorded(UID) == 1
    assert list(cloud.ports) == [cloud.trunk["port_id"]]


async def test_port_attached_by_half_is_attached_anew(driver, context, request_port, cloud):
    made = await driver.ensure(await request_port())
    cloud.store.change("port", cloud.ports[made.id], {"binding:profile": {}})
    again = NestedVLAN(context)
    with pytest.raises(errors.CloudError, match="incompletely"):
        await again.ensure(await request_port(may_exist=True))
    found = await again.ensure(await request_port(may_exist=True))
    assert found.id == made.id
    assert cloud.ports[made.id]["binding:profile"]["tag"] == subports(cloud)[made.id]


async def test_port_found_again_on_other_subnets_is_made_anew(
    driver, context, request_port, cloud
):
    made = await driver.ensure(await request_port())
    context.conf.set_override("pod_subnet", cloud.pods["subnets"][:1], "neutron_defaults")
    found = await driver.ensure(await request_port(may_exist=True))
    assert found.id != made.id
    assert subports(cloud) == {found.id: found.vlan_id}
    assert pod_ports(cloud) == {found.id}


async def test_port_found_on_another_trunk_is_made_anew(driver, request_port, cloud):
    made = await driver.ensure(await request_port())
    before = cloud.trunk
    confs.add_vm(cloud, "10.63.0.10")
    moved = await request_port(may_exist=True, node=node_at("10.63.0.10"))
    found = await driver.ensure(moved)
    assert before["sub_ports"] == []
    assert made.id not in cloud.ports
    assert subports(cloud) == {found.id: found.vlan_id}


async def test_exhausted_quota_is_named_with_its_project(driver, request_port, cloud):
    cloud.set_quota(cloud.project_id, port=0)
    with pytest.raises(errors.OverQuota) as caught:
        await driver.ensure(await request_port())
    expected = f"Neutron quota for ports is exhausted in project {cloud.project_id}"
    assert caught.value.brief == expected


async def test_pods_of_other_projects_are_on_the_same_trunk(driver, request_port, cloud):
    tenant = cloud.add_project("tenant")
    cloud.share(cloud.pods["id"], tenant)
    theirs = await request_port(project_id=tenant, security_groups=())
    vif = await driver.ensure(theirs)
    assert cloud.ports[vif.id]["project_id"] == tenant
    found = await driver.ensure(dataclasses.replace(theirs, may_exist=True))
    assert found == vif
    assert await driver.release_unrecorded(UID) == 1
    assert not subports(cloud)


@pytest.mark.parametrize("forgetful", [False, True], ids=["same life", "next life"])
async def test_release_is_done_when_port_and_subport_are_gone(
    driver, context, request_port, cloud, forgetful
):
    vif = await driver.ensure(await request_port())
    driver = NestedVLAN(context) if forgetful else driver
    await driver.release(vif)
    await driver.release(vif)
    assert not subports(cloud)
    assert not pod_ports(cloud)


@pytest.mark.parametrize("path", [REMOVE, r"/ports/"], ids=["detach", "delete"])
@pytest.mark.parametrize("fault", [lose_reply(), cut(), answer(500)])
async def test_release_goes_on_where_it_was_interrupted(driver, request_port, cloud, path, fault):
    vif = await driver.ensure(await request_port())
    cloud.faults.add(
        path=path, times=1, action=fault, when=lambda request: request.method != "GET"
    )
    with contextlib.suppress(errors.CloudError):
        await driver.release(vif)
    await driver.release(vif)
    assert not subports(cloud)
    assert not pod_ports(cloud)


async def test_port_detached_or_deleted_by_hand_is_released_all_the_same(
    driver, request_port, neutron, cloud
):
    vifs = [await driver.ensure(await request_port(pod_uid=f"pod-{n}")) for n in range(3)]
    await neutron.trunks.remove_subports(cloud.trunk["id"], [vifs[0].id, vifs[1].id])
    await neutron.delete_port(vifs[1].id)
    await together(*map(driver.release, vifs))
    assert not subports(cloud)
    assert not pod_ports(cloud)


async def test_subport_that_does_not_know_of_its_trunk_is_released(
    driver, context, request_port, cloud
):
    vif = await driver.ensure(await request_port())
    cloud.store.change("port", cloud.ports[vif.id], {"binding:profile": {}})
    await NestedVLAN(context).release(vif)
    assert not subports(cloud)
    assert not pod_ports(cloud)


async def test_release_of_unrecorded_ports_takes_those_of_the_pod_alone(
    driver, request_port, cloud
):
    await driver.ensure(await request_port())
    await driver.ensure(await request_port(ifname="eth1"))
    other = await driver.ensure(await request_port(pod_uid="another"))
    assert await driver.release_unrecorded(UID) == 2
    assert set(subports(cloud)) == pod_ports(cloud) == {other.id}


async def test_subport_of_others_is_neither_detached_nor_deleted(
    driver, request_port, neutron, cloud
):
    """Whatever a caller asks for: the trunk is the machine's, and has others' subports too."""
    mine = await driver.ensure(await request_port())
    theirs = cloud.add_port(cloud.pods["id"])["id"]
    await neutron.trunks.add_subports(cloud.trunk["id"], {theirs: 4000})
    with pytest.raises(errors.NotOurs):
        await driver.release(dataclasses.replace(mine, id=theirs))
    assert subports(cloud)[theirs] == 4000
    assert theirs in cloud.ports
