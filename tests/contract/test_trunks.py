"""Trunks: the parent is a VM's port, the subports are those of its Pods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from .sides import Reply, Side

Json = dict[str, Any]
NOBODY = "1b0bf90d-8c51-4c3b-9ad1-4a3d5b7d9b5e"
WITHIN = 60.0  # seconds for the driver, on a machine with much else to do
PAUSE = 0.2


@pytest.fixture
async def parent(side: Side) -> Json:
    """The port of a VM, in a network of the cluster's project."""
    nodes = await side.network("10.214.0.0/24")
    return await side.kuryr.create(
        "port", network_id=nodes["id"], device_owner="compute:nova", device_id=side.mark
    )


@pytest.fixture
async def trunk(side: Side, parent: Json) -> Json:
    return await side.kuryr.create("trunk", port_id=parent["id"], name=side.mark)


async def bare(side: Side, network: Json, **attributes: Any) -> str:
    """Id of a port that is bound nowhere."""
    port = await side.kuryr.create("port", network_id=network["id"], **attributes)
    return str(port["id"])


async def add(side: Side, trunk: Json, vlan_ids: dict[str, int], **headers: str) -> Reply:
    items = [
        {"port_id": port_id, "segmentation_type": "vlan", "segmentation_id": vlan_id}
        for port_id, vlan_id in vlan_ids.items()
    ]
    path = f"/trunks/{trunk['id']}/add_subports"
    return await side.kuryr.put(path, {"sub_ports": items}, **headers)


async def remove(side: Side, trunk: Json, *port_ids: str, **headers: str) -> Reply:
    items = [{"port_id": port_id} for port_id in port_ids]
    path = f"/trunks/{trunk['id']}/remove_subports"
    return await side.kuryr.put(path, {"sub_ports": items}, **headers)


async def subports(side: Side, trunk: Json) -> dict[str, int]:
    found = await show_trunk(side, trunk)
    return {subport["port_id"]: subport["segmentation_id"] for subport in found["sub_ports"]}


async def show_trunk(side: Side, trunk: Json) -> Json:
    found: Json = (await side.kuryr.get(f"/trunks/{trunk['id']}")).body["trunk"]
    return found


async def active(side: Side, trunk: Json) -> Json:
    """The trunk when the driver has said that all is well, which it may after the answer."""
    async with asyncio.timeout(WITHIN):
        while True:
            found = await show_trunk(side, trunk)
            if found["status"] == "ACTIVE":
                return found
            await asyncio.sleep(PAUSE)


async def show(side: Side, port_id: str) -> Json:
    found: Json = (await side.kuryr.get(f"/ports/{port_id}")).body["port"]
    return found


async def test_a_trunk_is_found_by_its_parent_and_by_tags(
    side: Side, parent: Json, trunk: Json
) -> None:
    assert trunk["sub_ports"] == []
    assert trunk["status"] == "ACTIVE"
    await side.kuryr.put(f"/trunks/{trunk['id']}/tags", {"tags": [side.mark, "node=one"]})
    for query in ({"port_id": [parent["id"], NOBODY]}, {"tags": f"{side.mark},node=one"}):
        reply = await side.kuryr.get("/trunks", **query, fields=["id", "port_id", "sub_ports"])
        wanted = {"id": trunk["id"], "port_id": parent["id"], "sub_ports": []}
        assert reply.body["trunks"] == [wanted]
    assert (await side.kuryr.get("/trunks", tags=f"{side.mark},other")).body["trunks"] == []
    details = (await show(side, parent["id"]))["trunk_details"]
    assert details == {"trunk_id": trunk["id"], "sub_ports": []}


async def test_a_subport_has_its_parent_and_vlan_id_in_its_profile_and_another_owner(
    side: Side, pods: Json, parent: Json, trunk: Json
) -> None:
    port_id = await bare(side, pods, device_owner="compute:kuryr", tags=[side.mark])
    reply = await add(side, trunk, {port_id: 100})
    assert reply.status == 200
    assert reply.body["id"] == trunk["id"]  # not within «trunk», as elsewhere
    wanted = [{"port_id": port_id, "segmentation_type": "vlan", "segmentation_id": 100}]
    assert reply.body["sub_ports"] == wanted
    port = await show(side, port_id)
    assert port["device_owner"] == "trunk:subport"
    assert port["binding:profile"] == {"parent_name": parent["id"], "tag": 100}
    assert port["binding:vif_type"] == "ovs"
    assert port["binding:host_id"] == ""
    assert port["status"] == (await show(side, parent["id"]))["status"]
    assert port["tags"] == [side.mark]


async def test_a_port_that_was_a_subport_has_no_owner_any_more(
    side: Side, pods: Json, trunk: Json
) -> None:
    port_id = await bare(side, pods, device_owner="compute:kuryr")
    await add(side, trunk, {port_id: 100})
    reply = await remove(side, trunk, port_id)
    assert reply.status == 200
    assert reply.body["sub_ports"] == []
    port = await show(side, port_id)
    assert port["device_owner"] == ""
    assert port["binding:profile"] == {}
    assert port["binding:vif_type"] == "unbound"
    assert port["status"] == "DOWN"


async def test_a_port_with_a_device_is_no_subport_but_a_subport_may_get_one(
    side: Side, pods: Json, trunk: Json
) -> None:
    port_id = await bare(side, pods, device_id="pod-1")
    reply = await add(side, trunk, {port_id: 100})
    assert (reply.status, reply.error["type"]) == (409, "PortInUse")
    await side.kuryr.put(f"/ports/{port_id}", {"port": {"device_id": ""}})
    assert (await add(side, trunk, {port_id: 100})).status == 200
    changes = {"device_id": "pod-1", "name": "one", "security_groups": []}
    reply = await side.kuryr.put(f"/ports/{port_id}", {"port": changes})
    assert reply.status == 200
    assert reply.body["port"]["binding:profile"]["tag"] == 100
    assert (await remove(side, trunk, port_id)).status == 200


async def test_a_vlan_id_is_given_once_and_a_batch_is_added_as_a_whole(
    side: Side, pods: Json, trunk: Json
) -> None:
    one, two, three = [await bare(side, pods) for _ in range(3)]
    assert (await add(side, trunk, {one: 100, two: 101})).status == 200
    reply = await add(side, trunk, {three: 101})
    assert (reply.status, reply.error["type"]) == (409, "DuplicateSubPort")
    four = await bare(side, pods)
    reply = await add(side, trunk, {four: 102, three: 100})
    assert (reply.status, reply.error["type"]) == (409, "DuplicateSubPort")
    assert await subports(side, trunk) == {one: 100, two: 101}
    assert (await show(side, four))["device_owner"] == ""


async def test_an_addition_that_is_refused_leaves_the_status_of_the_trunk(
    side: Side, pods: Json, trunk: Json
) -> None:
    one, two = [await bare(side, pods) for _ in range(2)]
    assert (await add(side, trunk, {one: 100})).status == 200
    before = await active(side, trunk)
    reply = await add(side, trunk, {two: 100})
    assert (reply.status, reply.error["type"]) == (409, "DuplicateSubPort")
    assert await show_trunk(side, trunk) == before


async def test_a_port_is_a_subport_once(side: Side, pods: Json, parent: Json, trunk: Json) -> None:
    port_id = await bare(side, pods)
    assert (await add(side, trunk, {port_id: 100})).status == 200
    other = await side.kuryr.create("port", network_id=parent["network_id"])
    second = await side.kuryr.create("trunk", port_id=other["id"])
    for target, vlan_id in ((trunk, 100), (trunk, 101), (second, 100)):
        reply = await add(side, target, {port_id: vlan_id})
        assert (reply.status, reply.error["type"]) == (409, "TrunkPortInUse")
    for port in (port_id, parent["id"]):
        reply = await side.kuryr.post("/trunks", {"trunk": {"port_id": port}})
        assert reply.status == 409


async def test_subports_are_removed_as_a_whole_or_not_at_all(
    side: Side, pods: Json, trunk: Json
) -> None:
    one, two = [await bare(side, pods) for _ in range(2)]
    await add(side, trunk, {one: 100})
    reply = await remove(side, trunk, one, two)
    assert (reply.status, reply.error["type"]) == (404, "SubPortNotFound")
    assert await subports(side, trunk) == {one: 100}


@pytest.mark.parametrize("vlan_id", [1, 4094])
async def test_vlan_ids_reach_from_1_to_4094(
    side: Side, pods: Json, trunk: Json, vlan_id: int
) -> None:
    port_id = await bare(side, pods)
    for wrong in (0, 4095):
        reply = await add(side, trunk, {port_id: wrong})
        assert (reply.status, reply.error["type"]) == (400, "InvalidInput")
    assert (await add(side, trunk, {port_id: vlan_id})).status == 200


async def test_what_is_not_there_is_not_found(side: Side, pods: Json, trunk: Json) -> None:
    reply = await add(side, trunk, {NOBODY: 100})
    assert (reply.status, reply.error["type"]) == (404, "PortNotFound")
    port_id = await bare(side, pods)
    for reply in (
        await add(side, {"id": NOBODY}, {port_id: 100}),
        await remove(side, {"id": NOBODY}, port_id),
        await side.kuryr.get(f"/trunks/{NOBODY}"),
    ):
        assert (reply.status, reply.error["type"]) == (404, "TrunkNotFound")


async def test_ports_of_a_trunk_are_not_deleted(
    side: Side, pods: Json, parent: Json, trunk: Json
) -> None:
    port_id = await bare(side, pods)
    await add(side, trunk, {port_id: 100})
    reply = await side.kuryr.delete(f"/ports/{port_id}")
    assert (reply.status, reply.error["type"]) == (409, "PortInUseAsSubPort")
    reply = await side.kuryr.delete(f"/ports/{parent['id']}")
    assert (reply.status, reply.error["type"]) == (409, "PortInUseAsTrunkParent")


async def test_a_trunk_that_is_deleted_leaves_its_subports_as_ports(
    side: Side, pods: Json, trunk: Json
) -> None:
    port_id = await bare(side, pods)
    await add(side, trunk, {port_id: 100})
    assert (await side.kuryr.delete(f"/trunks/{trunk['id']}")).status == 204
    port = await show(side, port_id)
    assert port["device_owner"] == ""
    assert port["binding:profile"] == {}
    assert (await side.kuryr.delete(f"/ports/{port_id}")).status == 204


async def test_a_subport_has_no_larger_mtu_than_the_parent(
    side: Side, pods: Json, parent: Json, trunk: Json
) -> None:
    path = f"/networks/{parent['network_id']}"
    await side.admin.put(path, {"network": {"mtu": pods["mtu"] - 1}})
    reply = await add(side, trunk, {await bare(side, pods): 100})
    assert (reply.status, reply.error["type"]) == (409, "SubPortMtuGreaterThanTrunkPortMtu")


async def test_a_trunk_that_is_disabled_stays_as_it_is(
    side: Side, pods: Json, trunk: Json
) -> None:
    one, two = [await bare(side, pods) for _ in range(2)]
    await add(side, trunk, {one: 100})
    await side.kuryr.put(f"/trunks/{trunk['id']}", {"trunk": {"admin_state_up": False}})
    for reply in (await add(side, trunk, {two: 101}), await remove(side, trunk, one)):
        assert (reply.status, reply.error["type"]) == (409, "TrunkDisabled")
    await side.kuryr.put(f"/trunks/{trunk['id']}", {"trunk": {"admin_state_up": True}})
    assert await subports(side, trunk) == {one: 100}


async def test_revisions_are_heeded_but_rise_after_the_answer_too(
    side: Side, pods: Json, trunk: Json
) -> None:
    one, two = [await bare(side, pods) for _ in range(2)]
    stale = f"revision_number={trunk['revision_number'] - 1}"
    reply = await add(side, trunk, {one: 100}, If_Match=stale)
    assert (reply.status, reply.error["type"]) == (412, "RevisionNumberConstraintFailed")
    answered = (await add(side, trunk, {one: 100})).body["revision_number"]
    assert answered > trunk["revision_number"]
    reply = await remove(side, trunk, one, If_Match=stale)
    assert (reply.status, reply.error["type"]) == (412, "RevisionNumberConstraintFailed")
    reply = await add(side, trunk, {two: 101}, If_Match=f"revision_number={answered}")
    assert reply.status == 412  # though nobody else did anything


async def test_a_trunk_carries_ports_of_other_projects(
    side: Side, pods: Json, trunk: Json
) -> None:
    port = await side.kuryr.create(
        "port", network_id=pods["id"], project_id=side.stranger.project_id
    )
    assert (await add(side, trunk, {port["id"]: 100})).status == 200


async def test_trunks_of_other_projects_are_not_there(
    side: Side, pods: Json, parent: Json
) -> None:
    theirs = await side.admin.create(
        "port", network_id=parent["network_id"], project_id=side.stranger.project_id
    )
    trunk = await side.stranger.create("trunk", port_id=theirs["id"])
    assert (await side.kuryr.get("/trunks", port_id=theirs["id"])).body["trunks"] == []
    assert (await side.kuryr.get(f"/trunks/{trunk['id']}")).status == 404
    assert (await add(side, trunk, {await bare(side, pods): 100})).status == 404


async def test_ports_are_found_by_any_of_their_owners(side: Side, pods: Json, trunk: Json) -> None:
    made = [await bare(side, pods, device_owner="compute:kuryr", tags=[side.mark]) for _ in "123"]
    await add(side, trunk, {made[0]: 100, made[1]: 101})
    await remove(side, trunk, made[1])
    owners = ["compute:kuryr", "trunk:subport", ""]
    reply = await side.kuryr.get("/ports", tags=side.mark, device_owner=owners, fields="id")
    assert {port["id"] for port in reply.body["ports"]} == set(made)
    description = await bare(side, pods, description=side.mark)
    reply = await side.kuryr.get("/ports", description=side.mark, **{"not-tags-any": side.mark})
    assert [port["id"] for port in reply.body["ports"]] == [description]
