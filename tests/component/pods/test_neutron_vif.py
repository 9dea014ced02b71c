"""The neutron-vif driver against the fake Neutron: what stands in the cloud afterwards."""

import asyncio
import contextlib
import json

import pytest
from aiohttp import web

from kuryr_k8s import errors
from kuryr_k8s.cloud import connect
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.cloud.transport import Transport
from kuryr_k8s.drivers.policy.subnets import DefaultSubnets
from kuryr_k8s.drivers.vif.neutron import NeutronVIF
from kuryr_k8s.model.pod import Node
from kuryr_k8s.patience import Patience
from tests.kit import port_requests as requests
from tests.kit.confs import HOST, MARK, TAG
from tests.kit.contexts import driver_context
from tests.kit.fakes.faults import Hang, answer, cut, lose_reply

UID = "0b0d9c4e-27a5-4d6b-8e7e-6d1f3a5b7c9d"


def node_on(host_id):
    return Node(name="node1", uid="n", resource_version="1", host_id=host_id, out_of_service=False)


@pytest.fixture
def context(load_conf, neutron):
    return driver_context(load_conf(), neutron)


@pytest.fixture
def driver(context):
    return NeutronVIF(context)


@pytest.fixture
def request_port(context, cloud):
    return requests.for_pod(context, cloud, pod_uid=UID, node=node_on(HOST))


async def test_port_is_bound_tagged_and_named_from_its_creation(driver, request_port, cloud):
    vif = await driver.ensure(await request_port())
    port = cloud.ports[vif.id]
    assert port["device_id"] == UID
    assert port["device_owner"] == "compute:kuryr"
    assert port["binding:host_id"] == HOST
    assert port["name"] == "default/web-0"
    assert set(port["tags"]) == {TAG, MARK, "kuryr-ifname:eth0"}
    assert port["security_groups"] == [cloud.group["id"]]
    assert [write.method for write in cloud.faults.writes] == ["POST"]


async def test_vif_has_both_families_and_what_the_node_needs(driver, request_port, cloud):
    vif = await driver.ensure(await request_port())
    port = cloud.ports[vif.id]
    assert vif.address == port["mac_address"]
    assert vif.vif_name == f"tap{vif.id}"[:14]
    assert (vif.bridge_name, vif.network.bridge, vif.network.mtu) == ("br-int", "br-int", 1442)
    v4, v6 = vif.network.subnets
    assert (v4.cidr, v6.cidr) == ("10.62.0.0/16", "fd62::/64")
    addresses = {ip["ip_address"] for ip in port["fixed_ips"]}
    assert {v4.ips[0].address, v6.ips[0].address} == addresses
    assert not vif.active


async def test_two_interfaces_of_a_pod_have_two_ports(driver, request_port, cloud):
    first = await driver.ensure(await request_port())
    second = await driver.ensure(await request_port(ifname="eth1", may_exist=True))
    assert first.id != second.id
    assert len(cloud.ports) == 2


@pytest.mark.parametrize("fault", [lose_reply(), cut()], ids=["applied", "not applied"])
async def test_create_without_an_answer_never_makes_a_second_port(
    driver, request_port, cloud, fault
):
    cloud.faults.add(method="POST", path=r"/ports$", times=1, action=fault)
    with pytest.raises(errors.CloudError):
        await driver.ensure(await request_port())
    vif = await driver.ensure(await request_port(may_exist=True))
    assert list(cloud.ports) == [vif.id]


async def test_port_that_only_claims_the_pods_uid_is_not_taken(
    driver, request_port, cloud, neutron
):
    body = {"network_id": cloud.pods["id"], "device_id": UID, "device_owner": "compute:kuryr"}
    foreign = await neutron.create_port(body | {"tags": ["somebody-elses"]})
    vif = await driver.ensure(await request_port(may_exist=True))
    assert vif.id != foreign["id"]
    assert await driver.release_unrecorded(UID) == 1
    assert list(cloud.ports) == [foreign["id"]]


async def test_port_of_the_pod_that_another_driver_has_marked_is_not_released(
    driver, request_port, cloud, neutron
):
    body = {"network_id": cloud.pods["id"], "device_id": UID, "device_owner": "compute:kuryr"}
    marks = {"tags": [TAG], "description": f"kuryr-pod:{UID}"}
    subport = await neutron.create_port(body | marks)
    await driver.ensure(await request_port())
    assert await driver.release_unrecorded(UID) == 1
    assert list(cloud.ports) == [subport["id"]]


async def test_neutron_that_drops_tags_at_creation_gets_them_right_after(
    driver, request_port, cloud
):
    cloud.keep_tags_at_creation(on=False)
    vif = await driver.ensure(await request_port())
    assert set(cloud.ports[vif.id]["tags"]) == {TAG, MARK, "kuryr-ifname:eth0"}


async def test_port_left_without_tags_by_a_crash_is_found_and_completed(
    driver, request_port, cloud
):
    cloud.keep_tags_at_creation(on=False)
    cloud.faults.add(method="PUT", path=r"/tags$", times=1, action=cut())
    with pytest.raises(errors.CloudError):
        await driver.ensure(await request_port())
    vif = await driver.ensure(await request_port(may_exist=True))
    assert list(cloud.ports) == [vif.id]
    assert set(cloud.ports[vif.id]["tags"]) == {TAG, MARK, "kuryr-ifname:eth0"}


async def test_port_that_no_agent_can_bind_is_refused_and_deleted(driver, request_port, cloud):
    with pytest.raises(errors.Refused, match=r"could not bind a port on host 'nowhere'"):
        await driver.ensure(await request_port(node=node_on("nowhere")))
    assert not cloud.ports


async def test_port_found_again_gets_the_groups_that_are_configured_by_now(
    driver, request_port, cloud
):
    made = await driver.ensure(await request_port())
    other = cloud.add_security_group("other")["id"]
    found = await driver.ensure(await request_port(may_exist=True, security_groups=(other,)))
    assert found.id == made.id
    assert cloud.ports[made.id]["security_groups"] == [other]


async def test_port_found_again_on_other_subnets_is_made_anew(
    driver, context, request_port, cloud
):
    made = await driver.ensure(await request_port())
    context.conf.set_override("pod_subnet", cloud.pods["subnets"][:1], "neutron_defaults")
    found = await driver.ensure(await request_port(may_exist=True))
    assert list(cloud.ports) == [found.id] != [made.id]
    assert [len(subnet.ips) for subnet in found.network.subnets] == [1]


async def test_exhausted_quota_is_named_with_its_project(driver, request_port, cloud):
    cloud.set_quota(cloud.project_id, port=0)
    with pytest.raises(errors.OverQuota) as caught:
        await driver.ensure(await request_port())
    expected = f"Neutron quota for ports is exhausted in project {cloud.project_id}"
    assert caught.value.brief == expected


async def test_exhausted_subnet_is_named_with_its_network(context, request_port, cloud):
    small = cloud.add_network("small", "10.9.0.0/30")
    context.conf.set_override("pod_subnet", small["subnets"], "neutron_defaults")
    driver = NeutronVIF(context)
    await driver.ensure(await request_port())
    with pytest.raises(errors.OverQuota) as caught:
        await driver.ensure(await request_port(pod_uid="another"))
    assert caught.value.brief == "no free address in network small (10.9.0.0/30)"


async def test_security_groups_follow(driver, request_port, cloud):
    vif = await driver.ensure(await request_port())
    other = cloud.add_security_group("other")
    await driver.update_security_groups(vif, (other["id"],))
    assert cloud.ports[vif.id]["security_groups"] == [other["id"]]


async def test_release_is_done_when_the_port_is_gone(driver, request_port, cloud):
    vif = await driver.ensure(await request_port())
    await driver.release(vif)
    await driver.release(vif)
    assert not cloud.ports


async def test_release_of_unrecorded_ports_takes_those_of_the_pod_alone(
    driver, request_port, cloud
):
    await driver.ensure(await request_port())
    await driver.ensure(await request_port(ifname="eth1"))
    other = await driver.ensure(await request_port(pod_uid="another"))
    assert await driver.release_unrecorded(UID) == 2
    assert list(cloud.ports) == [other.id]


async def test_network_of_another_project_is_refused_until_it_is_shared(context, cloud):
    tenant = cloud.add_project("tenant")
    subnets = DefaultSubnets(context)
    with pytest.raises(errors.Refused, match="neither belongs to project"):
        await subnets.pod_network(None, tenant)
    cloud.share(cloud.pods["id"], tenant)
    assert (await subnets.pod_network(None, tenant)).network.id == cloud.pods["id"]


async def test_network_shared_with_our_own_project_is_not_shared_with_others(
    load_conf, neutron, cloud
):
    owner, tenant = cloud.add_project("infra"), cloud.add_project("tenant")
    network = cloud.add_network("infra-net", "10.8.0.0/24", project_id=owner)
    cloud.share(network["id"], cloud.project_id)
    conf = load_conf(neutron_defaults={"pod_subnet": network["subnets"][0]})
    context = driver_context(conf, neutron)
    subnets = DefaultSubnets(context)
    assert await subnets.pod_network(None, cloud.project_id)
    with pytest.raises(errors.Refused, match="neither belongs to project"):
        await subnets.pod_network(None, tenant)


async def test_silent_keystone_ends_a_call_all_the_same(load_conf, cloud):
    silence = Hang()
    cloud.faults.add(method="POST", path="/v3/auth/tokens", times=None, action=silence)
    patience = Patience(authentication=0.3)
    connection = connect.connect(load_conf(), connections=1, patience=patience)
    transport = Transport(
        connect.ServiceAdapter(connection, "network", patience=patience), limit=1
    )
    async with asyncio.timeout(60):
        with pytest.raises(errors.CloudError):
            await Neutron(transport).list_ports({})
    silence.release()
    transport.close()


async def test_keystone_that_answers_404_does_not_make_a_port_gone(driver, request_port, cloud):
    vif = await driver.ensure(await request_port())
    cloud.expire_tokens()
    rule = cloud.faults.add(method="POST", path="/v3/auth/tokens", times=None, action=answer(404))
    with pytest.raises(errors.CloudError) as caught:
        await driver.release(vif)
    assert not isinstance(caught.value, errors.NotFound)
    rule.remove()
    assert vif.id in cloud.ports


async def test_token_that_is_not_taken_any_more_is_replaced_within_the_call(
    driver, request_port, cloud
):
    await driver.ensure(await request_port())
    cloud.expire_tokens()
    await driver.ensure(await request_port(pod_uid="another"))
    assert len(cloud.ports) == 2


async def test_service_that_is_missing_in_the_catalogue_is_found_when_it_is_there(
    load_conf, cloud
):
    connection = connect.connect(load_conf(), connections=1)
    patience = Patience(failed_authentication=0.0)
    transport = Transport(
        connect.ServiceAdapter(connection, "network", patience=patience), limit=1
    )
    neutron = Neutron(transport)
    url = cloud.keystone.endpoints.pop("network")
    with pytest.raises(errors.CloudError) as caught:
        await neutron.list_ports({})
    assert caught.value.status == 404
    cloud.keystone.endpoints["network"] = url
    assert await neutron.list_ports({}) == []
    transport.close()


@pytest.mark.parametrize("status", [500, 503, 429, 409])
async def test_neutron_that_fails_for_a_while_costs_nothing_but_time(
    driver, request_port, cloud, status
):
    cloud.faults.add(method="POST", path=r"/ports$", times=1, action=answer(status))
    with pytest.raises(errors.CloudError):
        await driver.ensure(await request_port())
    await driver.ensure(await request_port(may_exist=True))
    assert len(cloud.ports) == 1


async def test_bulk_answer_in_another_order_gives_no_pod_the_port_of_another(
    driver, request_port, cloud
):
    async def in_another_order(_request, proceed):
        body = json.loads((await proceed()).body)
        body.get("ports", []).reverse()
        return web.json_response(body, status=201)

    async def ask(request):
        with contextlib.suppress(errors.CloudError):
            vif = await driver.ensure(request)
            answered.append((request.pod_uid, cloud.ports[vif.id]["device_id"]))

    answered = []
    uids = [f"pod-{number}" for number in range(8)]
    wanted = [await request_port(pod_uid=uid) for uid in uids]
    rule = cloud.faults.add(method="POST", path=r"/ports$", times=None, action=in_another_order)
    async with asyncio.TaskGroup() as group:
        for request in wanted:
            group.create_task(ask(request))
    rule.remove()
    assert answered == [(uid, uid) for uid, _owner in answered]
    assert len(answered) < len(uids), "there was no bulk request"
    for uid in uids:  # each finds its own
        vif = await driver.ensure(await request_port(pod_uid=uid, may_exist=True))
        assert cloud.ports[vif.id]["device_id"] == uid
    assert len(cloud.ports) == len(uids)
