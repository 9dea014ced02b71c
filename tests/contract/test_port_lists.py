"""Finding ports again: by what is on them, in pages, a few fields at a time."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from kuryr_k8s.cloud.paging import IDS

from .sides import Side

Json = dict[str, Any]


@pytest.fixture
async def three(side: Side, pods: Json) -> list[Json]:
    """Three ports made at once; the last has a tag of its own."""
    items = [
        {
            "network_id": pods["id"],
            "name": f"port-{number}",
            "device_id": f"{side.mark}-{number}",
            "tags": [side.mark, *(["odd"] if number == 2 else [])],
        }
        for number in range(3)
    ]
    reply = await side.kuryr.post("/ports", {"ports": items})
    assert reply.status == 201
    return reply.body["ports"]


def ids(items: list[Json]) -> set[str]:
    return {item["id"] for item in items}


async def test_ports_made_in_bulk_carry_their_tags_at_once(side: Side, three: list[Json]) -> None:
    assert [port["name"] for port in three] == ["port-0", "port-1", "port-2"]
    assert [sorted(port["tags"]) for port in three] == [
        [side.mark],
        [side.mark],
        sorted([side.mark, "odd"]),
    ]
    assert len({port["mac_address"] for port in three}) == 3


async def test_ports_made_in_bulk_come_back_bound_each_to_its_host(side: Side, pods: Json) -> None:
    hosts = [side.host, f"{side.mark}.invalid", side.host]
    items = [
        {"network_id": pods["id"], "tags": [side.mark], "binding:host_id": host} for host in hosts
    ]
    made = (await side.kuryr.post("/ports", {"ports": items})).body["ports"]
    assert [port["binding:host_id"] for port in made] == hosts
    assert [port["binding:vif_type"] for port in made] == ["ovs", "binding_failed", "ovs"]
    assert made[0]["binding:vif_details"]["bridge_name"] == "br-int"


async def test_the_extension_list_does_not_name_tags_in_bulk_though_they_are_kept(
    side: Side,
) -> None:
    """So look at the tags in the answer: ML2/OVN hides the alias, see the test above."""
    reply = await side.kuryr.get("/extensions", fields="alias")
    aliases = {extension["alias"] for extension in reply.body["extensions"]}
    assert "tag-ports-during-bulk-creation" not in aliases
    assert {"revision-if-match", "standard-attr-tag", "security-group", "trunk"} <= aliases


async def test_a_bulk_is_made_as_a_whole_or_not_at_all(side: Side, pods: Json) -> None:
    good = {"network_id": pods["id"], "tags": [side.mark]}
    bad = good | {"security_groups": ["1b0bf90d-8c51-4c3b-9ad1-4a3d5b7d9b5e"]}
    reply = await side.kuryr.post("/ports", {"ports": [good, good, bad]})
    assert reply.status == 404
    assert reply.error["type"] == "SecurityGroupNotFound"
    assert (await side.kuryr.get("/ports", tags=side.mark)).body["ports"] == []


async def test_a_bulk_with_more_ports_than_addresses_makes_none(side: Side) -> None:
    network = await side.network("10.226.0.0/29")
    item = {"network_id": network["id"], "tags": [side.mark]}
    reply = await side.kuryr.post("/ports", {"ports": [item] * 10})
    assert (reply.status, reply.error["type"]) == (409, "IpAddressGenerationFailure")
    assert (await side.kuryr.get("/ports", network_id=network["id"])).body["ports"] == []
    reply = await side.kuryr.post("/ports", {"ports": [item] * 5})
    assert reply.status == 201  # nothing of the first try has kept an address


async def test_a_bulk_that_wants_one_address_twice_makes_none(side: Side, pods: Json) -> None:
    item = {"network_id": pods["id"], "tags": [side.mark]}
    same = item | {"fixed_ips": [{"ip_address": "10.213.0.77"}]}
    reply = await side.kuryr.post("/ports", {"ports": [item, same, same]})
    assert (reply.status, reply.error["type"]) == (409, "IpAddressAlreadyAllocated")
    assert (await side.kuryr.get("/ports", tags=side.mark)).body["ports"] == []


async def test_a_port_is_found_by_device_and_tag(side: Side, three: list[Json]) -> None:
    device = three[1]["device_id"]
    reply = await side.kuryr.get("/ports", device_id=device, tags=side.mark)
    assert ids(reply.body["ports"]) == {three[1]["id"]}
    reply = await side.kuryr.get("/ports", device_id=device, tags=f"{side.mark},odd")
    assert reply.body["ports"] == []
    assert "ports_links" not in reply.body


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        pytest.param({"tags": "{mark},odd"}, {2}, id="all of the tags"),
        pytest.param({"tags-any": "odd,nothing"}, {2}, id="any of the tags"),
        pytest.param({"tags": "{mark}", "not-tags": "odd"}, {0, 1}, id="without the tag"),
        pytest.param({"tags": "{mark}", "name": "port-1"}, {1}, id="tag and name"),
        pytest.param({"tags": "{mark}", "name": ["port-0", "port-1"]}, {0, 1}, id="two names"),
        pytest.param({"tags": "{mark}", "status": "DOWN"}, {0, 1, 2}, id="status"),
        pytest.param({"tags": "{mark}", "status": "ACTIVE"}, set(), id="other status"),
        pytest.param({"tags": "{mark}", "network_id": "{network}"}, {0, 1, 2}, id="network"),
        pytest.param({"tags": "{mark}", "project_id": "{project}"}, {0, 1, 2}, id="project"),
        pytest.param({"tags": "{mark}", "tenant_id": "nobody"}, set(), id="other project"),
        pytest.param({"tags": "{mark}", "device_owner": ""}, {0, 1, 2}, id="empty owner"),
    ],
)
async def test_filters_are_combined(
    side: Side, pods: Json, three: list[Json], filters: Json, found: set[int]
) -> None:
    places = {"mark": side.mark, "network": pods["id"], "project": side.kuryr.project_id}
    filled = {
        name: [text.format(**places) for text in ([value] if isinstance(value, str) else value)]
        for name, value in filters.items()
    }
    if filters.get("tags-any"):
        filled["network_id"] = [pods["id"]]
    reply = await side.kuryr.get("/ports", **filled)
    assert reply.status == 200
    assert ids(reply.body["ports"]) == {three[number]["id"] for number in found}


async def test_ports_are_found_by_ids_and_addresses(side: Side, three: list[Json]) -> None:
    reply = await side.kuryr.get("/ports", id=[three[0]["id"], three[2]["id"]])
    assert ids(reply.body["ports"]) == {three[0]["id"], three[2]["id"]}
    address = three[1]["fixed_ips"][0]
    reply = await side.kuryr.get(
        "/ports",
        fixed_ips=[f"ip_address={address['ip_address']}", f"subnet_id={address['subnet_id']}"],
    )
    assert ids(reply.body["ports"]) == {three[1]["id"]}


async def test_a_port_is_found_among_as_many_ids_as_the_client_asks_for(
    side: Side, three: list[Json]
) -> None:
    others = [str(uuid.uuid4()) for _ in range(IDS - 1)]
    reply = await side.kuryr.get("/ports", id=[*others, three[1]["id"]], fields=["id", "name"])
    assert reply.body["ports"] == [{"id": three[1]["id"], "name": "port-1"}]


async def test_only_the_fields_asked_for_come(side: Side, three: list[Json]) -> None:
    reply = await side.kuryr.get("/ports", tags=side.mark, fields=["id", "status"])
    assert [set(port) for port in reply.body["ports"]] == [{"id", "status"}] * 3
    reply = await side.kuryr.get(f"/ports/{three[0]['id']}", fields="mac_address")
    assert reply.body["port"] == {"mac_address": three[0]["mac_address"]}


async def test_pages_follow_each_other_until_one_is_short(side: Side, three: list[Json]) -> None:
    reply = await side.kuryr.get("/ports", tags=side.mark, limit=2)
    first = reply.body["ports"]
    assert len(first) == 2
    [link] = [entry["href"] for entry in reply.body["ports_links"] if entry["rel"] == "next"]
    query = dict(parse_qsl(urlsplit(link).query))
    assert query == {"tags": side.mark, "limit": "2", "marker": first[-1]["id"]}
    reply = await side.kuryr.get("/ports", **query)
    assert ids(first) | ids(reply.body["ports"]) == ids(three)
    assert len(reply.body["ports"]) == 1
    assert "next" not in [entry["rel"] for entry in reply.body["ports_links"]]


async def test_a_full_last_page_is_followed_by_an_empty_one(side: Side, three: list[Json]) -> None:
    reply = await side.kuryr.get("/ports", tags=side.mark, limit=3)
    assert "next" in [entry["rel"] for entry in reply.body["ports_links"]]
    last = reply.body["ports"][-1]["id"]
    reply = await side.kuryr.get("/ports", tags=side.mark, limit=3, marker=last)
    assert reply.body["ports"] == []


NOBODY = "1b0bf90d-8c51-4c3b-9ad1-4a3d5b7d9b5e"


async def test_a_port_that_is_gone_cannot_be_a_marker(side: Side, three: list[Json]) -> None:
    reply = await side.kuryr.get("/ports", tags=side.mark, limit=2, marker=NOBODY)
    assert (reply.status, reply.error["type"]) == (404, "PortNotFound")


async def test_after_a_marker_that_is_gone_subnets_begin_again(side: Side, pods: Json) -> None:
    reply = await side.kuryr.get("/subnets", network_id=pods["id"], limit=5, marker=NOBODY)
    assert ids(reply.body["subnets"]) == set(pods["subnets"])


async def test_policies_of_rbac_are_neither_paged_nor_sorted_by_id(side: Side) -> None:
    network = await side.network("10.227.0.0/29")
    for owner in (side.stranger, side.admin):
        body = {"object_type": "network", "object_id": network["id"]}
        body |= {"action": "access_as_shared", "target_tenant": owner.project_id}
        await side.kuryr.post("/rbac-policies", {"rbac_policy": body})
    reply = await side.kuryr.get("/rbac-policies", object_id=network["id"], limit=1)
    assert len(reply.body["rbac_policies"]) == 2
    assert "rbac_policies_links" not in reply.body
    reply = await side.kuryr.get("/rbac-policies", sort_key="id", sort_dir="asc")
    assert (reply.status, reply.error["type"]) == (400, "HTTPBadRequest")


async def test_lists_are_sorted_as_asked(side: Side, three: list[Json]) -> None:
    reply = await side.kuryr.get("/ports", tags=side.mark, sort_key="name", sort_dir="desc")
    assert [port["name"] for port in reply.body["ports"]] == ["port-2", "port-1", "port-0"]


async def test_an_unknown_filter_is_refused(side: Side) -> None:
    reply = await side.kuryr.get("/ports", colour="red")
    assert reply.status == 400
    assert reply.error["type"] == "HTTPBadRequest"
    assert "'colour'" in reply.error["message"]


async def test_tags_are_replaced_and_the_revision_rises(side: Side, three: list[Json]) -> None:
    path = f"/ports/{three[0]['id']}"
    before = (await side.kuryr.get(path)).body["port"]
    reply = await side.kuryr.put(f"{path}/tags", {"tags": [side.mark, "new"]})
    assert reply.status == 200
    assert sorted(reply.body["tags"]) == sorted([side.mark, "new"])
    after = (await side.kuryr.get(path)).body["port"]
    assert after["revision_number"] > before["revision_number"]
    reply = await side.kuryr.get("/ports", tags=f"{side.mark},new")
    assert ids(reply.body["ports"]) == {three[0]["id"]}


async def test_one_tag_is_added_and_removed(side: Side, three: list[Json]) -> None:
    path = f"/ports/{three[0]['id']}/tags"
    assert (await side.kuryr.put(f"{path}/blue", {})).status == 201
    assert sorted((await side.kuryr.get(path)).body["tags"]) == sorted([side.mark, "blue"])
    assert (await side.kuryr.delete(f"{path}/blue")).status == 204
    reply = await side.kuryr.delete(f"{path}/blue")
    assert reply.status == 404
    assert reply.error["type"] == "TagNotFound"
    assert (await side.kuryr.get(path)).body["tags"] == [side.mark]


async def test_ports_are_listed_by_the_hosts_that_they_are_bound_to(
    side: Side, pods: Json
) -> None:
    hosts = [side.host, f"{side.mark}-1.invalid", f"{side.mark}-2.invalid"]
    items = [
        {"network_id": pods["id"], "tags": [side.mark], "binding:host_id": host} for host in hosts
    ]
    made = (await side.kuryr.post("/ports", {"ports": items})).body["ports"]
    query = {"tags": side.mark, "network_id": pods["id"], "binding:host_id": hosts[:2]}
    assert ids((await side.kuryr.get("/ports", **query)).body["ports"]) == ids(made[:2])
