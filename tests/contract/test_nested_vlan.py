"""The driver of Pods on VMs: what it leaves in the cloud, on both sides."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kuryr_k8s import config
from kuryr_k8s.cloud.connect import ServiceAdapter
from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.cloud.neutron.specific_ports import PARENT, fields_of
from kuryr_k8s.cloud.transport import Transport
from kuryr_k8s.drivers.base import PodNetwork, PoolKey, PortRequest
from kuryr_k8s.drivers.vif.nested_vlan import NestedVLAN
from kuryr_k8s.model.pod import Node
from tests.kit.contexts import driver_context

from .sides import Side

Json = dict[str, Any]
VM = Node(
    name="vm",
    uid="vm",
    resource_version="1",
    host_id=None,
    out_of_service=False,
    addresses=("10.214.0.9",),
)


@pytest.fixture
async def trunk(side: Side) -> Json:
    """On the port of the VM."""
    nodes = await side.network("10.214.0.0/24")
    fixed_ips = [{"subnet_id": nodes["subnets"][0], "ip_address": VM.addresses[0]}]
    parent = await side.kuryr.create("port", network_id=nodes["id"], fixed_ips=fixed_ips)
    trunk = await side.kuryr.create("trunk", port_id=parent["id"])
    return trunk | {"subnets": nodes["subnets"]}


@pytest.fixture
async def neutron(side: Side) -> AsyncIterator[Neutron]:
    transport = Transport(ServiceAdapter(side.kuryr.connection, "network"), limit=16)
    yield Neutron(transport, ClusterMark(side.mark))
    transport.close()


@pytest.fixture
def make_driver(
    side: Side, neutron: Neutron, trunk: Json, tmp_path: Path
) -> Callable[[], NestedVLAN]:
    """A new life of the driver."""
    path = tmp_path / "kuryr.conf"
    path.write_text(
        f"[neutron_defaults]\nresource_tags = {side.mark}\n"
        f"[pod_vif_nested]\nworker_nodes_subnets = {trunk['subnets'][0]}\n"
    )
    conf = config.load(["--config-file", str(path)], "test")
    context = driver_context(conf, neutron)
    return lambda: NestedVLAN(context)


@pytest.fixture
async def requests(side: Side, neutron: Neutron, pods: Json) -> Callable[[int], list[PortRequest]]:
    """So many Pods more, each with a request."""
    subnets = tuple([await neutron.get_subnet(subnet_id) for subnet_id in pods["subnets"]])
    pod_network = PodNetwork(network=await neutron.get_network(pods["id"]), subnets=subnets)
    numbers = itertools.count()

    def make(count: int) -> list[PortRequest]:
        return [
            PortRequest(
                pod_uid=f"{side.mark}-{number}",
                pod_name=f"default/web-{number}",
                node=VM,
                ifname="eth0",
                project_id=side.kuryr.project_id,
                pod_network=pod_network,
                security_groups=(),
                may_exist=False,
            )
            for number in itertools.islice(numbers, count)
        ]

    return make


async def together(*coroutines: Any) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(coroutine) for coroutine in coroutines]
    return [task.result() for task in tasks]


async def subports(side: Side, trunk: Json) -> dict[str, int]:
    found = (await side.kuryr.get(f"/trunks/{trunk['id']}")).body["trunk"]
    return {subport["port_id"]: subport["segmentation_id"] for subport in found["sub_ports"]}


async def ours(side: Side) -> set[str]:
    reply = await side.kuryr.get("/ports", tags=side.mark, fields="id")
    return {port["id"] for port in reply.body["ports"]}


async def test_pods_get_subports_and_give_them_back(
    side: Side,
    trunk: Json,
    make_driver: Callable[[], NestedVLAN],
    requests: Callable[[int], list[PortRequest]],
) -> None:
    driver = make_driver()
    vifs = await together(*map(driver.ensure, requests(6)))
    assert await subports(side, trunk) == {vif.id: vif.vlan_id for vif in vifs}
    assert sorted(vif.vlan_id for vif in vifs) == [1, 2, 3, 4, 5, 6]
    assert await ours(side) == {vif.id for vif in vifs}
    later = make_driver()
    await together(*map(driver.release, vifs[:3]), *map(later.release, vifs[3:]))
    assert await subports(side, trunk) == {}
    assert await ours(side) == set()


async def test_another_life_finds_what_was_made_and_foreign_vlan_ids_are_left_alone(
    side: Side,
    pods: Json,
    trunk: Json,
    make_driver: Callable[[], NestedVLAN],
    requests: Callable[[int], list[PortRequest]],
) -> None:
    driver = make_driver()
    [request] = requests(1)
    first = await driver.ensure(request)
    theirs = await side.kuryr.create("port", network_id=pods["id"])
    item = {"port_id": theirs["id"], "segmentation_type": "vlan", "segmentation_id": 2}
    await side.kuryr.put(f"/trunks/{trunk['id']}/add_subports", {"sub_ports": [item]})
    second = await driver.ensure(requests(1)[0])
    assert (first.vlan_id, second.vlan_id) == (1, 3)
    again = replace(request, may_exist=True)
    assert await make_driver().ensure(again) == first
    assert await make_driver().release_unrecorded(request.pod_uid) == 1
    assert await subports(side, trunk) == {theirs["id"]: 2, second.id: 3}
    await make_driver().release(second)


async def test_port_that_a_user_made_is_a_subport_and_is_given_back_as_it_was(
    side: Side,
    pods: Json,
    trunk: Json,
    neutron: Neutron,
    make_driver: Callable[[], NestedVLAN],
    requests: Callable[[int], list[PortRequest]],
) -> None:
    theirs = await side.kuryr.create("port", network_id=pods["id"], tags=["theirs"])
    before = _lasting(await neutron.get_port(theirs["id"]))
    for request in requests(2):  # the second Pod has it after the first
        found = await neutron.get_port(theirs["id"])
        named = replace(request, port_id=theirs["id"], as_found=fields_of(found))
        recorded = {**fields_of(found), PARENT: trunk["port_id"]}
        vif = await make_driver().ensure(named)
        assert await subports(side, trunk) == {theirs["id"]: vif.vlan_id}
        again = replace(named, may_exist=True, as_found=None)
        assert await make_driver().ensure(again) == vif
        assert [(port.id, port.pod_uid) for port in await neutron.specific_ports.list_taken()] == [
            (theirs["id"], request.pod_uid)
        ]
        for _ in range(2):
            await neutron.specific_ports.give_back(theirs["id"], request.pod_uid, recorded)
        assert await subports(side, trunk) == {}
        (left,) = await neutron.specific_ports.list_taken()
        assert left.pod_uid == ""
        await neutron.specific_ports.clear(theirs["id"], left.revision)
        assert _lasting(await neutron.get_port(theirs["id"])) == before
        assert await neutron.specific_ports.list_taken() == []


def _lasting(port: Json) -> Json:
    changing = ("revision_number", "updated_at", "status")
    return {name: value for name, value in port.items() if name not in changing}


async def test_ports_of_pools_are_attached_and_found_again(
    side: Side, pods: Json, trunk: Json, neutron: Neutron, make_driver: Callable[[], NestedVLAN]
) -> None:
    driver = make_driver()
    key = PoolKey(
        side.kuryr.project_id,
        await driver.place(VM),
        pods["id"],
        tuple(sorted(pods["subnets"])),
        (),
    )
    pooled, failure = await driver.create_pooled(key, 3)
    assert failure is None
    assert await subports(side, trunk) == {port.id: port.vlan_id for port in pooled}
    later = make_driver()
    found = await later.find_pooled(await neutron.list_ports({"tags": side.mark}))
    assert set(found) == set(pooled)
    assert all(port.fit for port in found)
    await together(*map(later.delete_pooled, found))
    assert await subports(side, trunk) == {}
    assert await ours(side) == set()
