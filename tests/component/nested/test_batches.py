"""What comes together goes together, and others who use the trunk are in the way."""

import asyncio
import contextlib
import dataclasses
import json

import pytest
from aiohttp import web

from kuryr_k8s import errors
from tests.kit.fakes.faults import Hang
from tests.kit.vms import (
    ADD,
    foreign_subport,
    pod_ports,
    requests_for,
    subports,
    together,
)


async def test_pods_that_come_together_are_attached_by_few_calls(driver, request_port, cloud):
    cloud.latency = {"POST": 0.05, "PUT": 0.1}
    wanted = [await request_port(pod_uid=f"pod-{number}") for number in range(40)]
    vifs = await together(*map(driver.ensure, wanted))
    assert subports(cloud) == {vif.id: vif.vlan_id for vif in vifs}
    assert len(set(subports(cloud).values())) == len(wanted)
    assert requests_for(cloud, "add_subports") <= 5
    await together(*map(driver.release, vifs))
    assert not subports(cloud)
    assert not pod_ports(cloud)
    assert requests_for(cloud, "remove_subports") <= 5


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
            assert f"kuryr-pod:{request.pod_uid}" in cloud.ports[vif.id]["tags"]
            answered.append(vif)

    answered = []
    wanted = [await request_port(pod_uid=f"pod-{number}") for number in range(40)]
    rule = cloud.faults.add(method="POST", path=r"/ports$", times=None, action=in_another_order)
    await together(*map(ask, wanted))
    rule.remove()
    assert len(answered) < len(wanted), "there was no bulk request"
    await together(*(ask(dataclasses.replace(request, may_exist=True)) for request in wanted))
    assert len(pod_ports(cloud)) == len(subports(cloud)) == len(wanted)


async def test_port_deleted_by_hand_before_it_is_attached_harms_no_other(
    driver, request_port, neutron, cloud
):
    cloud.latency = {"PUT": 0.1}
    held = Hang()
    rule = cloud.faults.add(path=ADD, times=None, action=held)
    wanted = [await request_port(pod_uid=f"pod-{number}") for number in range(4)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_outcome(driver, request)) for request in wanted]
        await held.reached.wait()
        await cloud.wait_for(lambda: len(pod_ports(cloud)) == 4)
        [victim] = [port for port in cloud.ports.values() if port["description"].endswith("pod-2")]
        await neutron.delete_port(victim["id"])
        rule.remove()
        held.release()
    outcomes = [task.result() for task in tasks]
    assert [isinstance(outcome, errors.NotFound) for outcome in outcomes] == [
        False,
        False,
        True,
        False,
    ]
    assert set(subports(cloud)) == {vif.id for vif in outcomes if not isinstance(vif, Exception)}


async def _outcome(driver, request):
    try:
        return await driver.ensure(request)
    except errors.CloudError as error:
        return error


async def test_caller_that_is_cancelled_takes_nobody_with_it(driver, request_port, cloud):
    held = Hang(applied=True)
    cloud.faults.add(path=ADD, times=1, action=held)
    first, second = [await request_port(pod_uid=uid) for uid in ("first", "second")]
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_outcome(driver, first))
        await held.reached.wait()
        other = group.create_task(driver.ensure(second))
        task.cancel()
        held.release()
    assert task.cancelled()
    found = await driver.ensure(dataclasses.replace(first, may_exist=True))
    assert subports(cloud) == {found.id: found.vlan_id, other.result().id: other.result().vlan_id}


async def test_vlan_ids_of_others_are_respected(driver, request_port, neutron, cloud):
    theirs = await foreign_subport(neutron, cloud, 1)
    vif = await driver.ensure(await request_port())
    assert subports(cloud) == {theirs: 1, vif.id: 2}


async def test_vlan_id_taken_between_our_read_and_our_write_is_left_to_who_took_it(
    driver, request_port, neutron, cloud
):
    first = await driver.ensure(await request_port())
    theirs = await foreign_subport(neutron, cloud, 2)
    wanted = [await request_port(pod_uid=f"pod-{number}") for number in range(3)]
    vifs = await together(*map(driver.ensure, wanted))
    mine = {vif.id: vif.vlan_id for vif in (first, *vifs)}
    assert subports(cloud) == {theirs: 2} | mine
    assert len(pod_ports(cloud)) == 4


async def test_others_who_are_always_faster_are_not_outrun_for_ever(
    driver, request_port, neutron, cloud
):
    async def faster(request, proceed):
        chosen = (await request.json())["sub_ports"][0]["segmentation_id"]
        rule.left = 0
        await foreign_subport(neutron, cloud, chosen)
        rule.left = None
        return await proceed()

    await driver.ensure(await request_port(pod_uid="first"))
    rule = cloud.faults.add(path=ADD, times=None, action=faster)
    with pytest.raises(errors.Conflict):
        await driver.ensure(await request_port())
    assert rule.hits == 3
    rule.remove()
    vif = await driver.ensure(await request_port(may_exist=True))
    assert subports(cloud)[vif.id] == 5


async def test_full_trunk_says_so_until_others_give_a_vlan_id_back(
    driver, request_port, neutron, cloud
):
    theirs = [await foreign_subport(neutron, cloud, 4094)]
    bare = {"network_id": cloud.pods["id"], "device_id": "", "mac_address": "", "tags": []}
    cloud.trunk["sub_ports"] += [
        {"port_id": cloud.store.add("port", bare)["id"], "segmentation_id": number}
        for number in range(1, 4094)
    ]
    with pytest.raises(errors.OverQuota, match="no free VLAN id"):
        await driver.ensure(await request_port())
    await neutron.trunks.remove_subports(cloud.trunk["id"], theirs)
    vif = await driver.ensure(await request_port(may_exist=True))
    assert vif.vlan_id == 4094
    assert pod_ports(cloud) == {vif.id}
