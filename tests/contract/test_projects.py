"""Who sees and may do what: the cluster's user, the admin, and a user of another project."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from .sides import Side

Json = dict[str, Any]


async def test_a_member_sees_neither_network_nor_ports_of_another_project(
    side: Side, pods: Json
) -> None:
    port = await side.kuryr.create("port", network_id=pods["id"], tags=[side.mark])
    reply = await side.stranger.get(f"/networks/{pods['id']}")
    assert (reply.status, reply.error["type"]) == (404, "NetworkNotFound")
    reply = await side.stranger.get(f"/ports/{port['id']}")
    assert (reply.status, reply.error["type"]) == (404, "PortNotFound")
    assert (await side.stranger.get("/ports", tags=side.mark)).body["ports"] == []
    assert (await side.stranger.get("/networks", name=side.mark)).body["networks"] == []
    reply = await side.stranger.delete(f"/ports/{port['id']}")
    assert (reply.status, reply.error["type"]) == (404, "PortNotFound")


async def test_a_member_makes_no_port_on_a_network_it_was_not_given(
    side: Side, pods: Json
) -> None:
    reply = await side.stranger.post("/ports", {"port": {"network_id": pods["id"]}})
    assert (reply.status, reply.error["type"]) == (404, "NetworkNotFound")
    listed = await side.admin.get("/ports", network_id=pods["id"])
    assert listed.body["ports"] == []


async def test_a_network_shared_with_a_project_is_seen_and_used_by_it(
    side: Side, pods: Json
) -> None:
    grant = {"object_type": "network", "object_id": pods["id"], "action": "access_as_shared"}
    reply = await side.admin.post(
        "/rbac-policies", {"rbac_policy": grant | {"target_tenant": side.stranger.project_id}}
    )
    rule = reply.body["rbac_policy"]
    seen = (await side.stranger.get(f"/networks/{pods['id']}")).body["network"]
    assert seen["shared"] is True
    assert seen["project_id"] == side.kuryr.project_id
    port = await side.stranger.create("port", network_id=pods["id"])
    assert port["project_id"] == side.stranger.project_id
    assert (await side.admin.delete(f"/ports/{port['id']}")).status == 204
    assert (await side.admin.delete(f"/rbac-policies/{rule['id']}")).status == 204
    assert (await side.stranger.get(f"/networks/{pods['id']}")).status == 404


async def test_a_network_shared_with_all_is_seen_by_all(side: Side) -> None:
    network = await side.network("10.218.0.0/24", owner=side.stranger, shared=True)
    seen = (await side.kuryr.get(f"/networks/{network['id']}")).body["network"]
    assert seen["shared"] is True
    [subnet_id] = seen["subnets"]
    subnet = (await side.kuryr.get(f"/subnets/{subnet_id}")).body["subnet"]
    assert subnet["cidr"] == "10.218.0.0/24"
    listed = (await side.kuryr.get("/networks", name=side.mark)).body["networks"]
    assert [item["id"] for item in listed] == [network["id"]]


async def test_what_the_cluster_user_sees_of_a_network_not_shared_with_it(side: Side) -> None:
    """A user with the role `service` sees all networks: only `shared` tells what was granted."""
    network = await side.network("10.219.0.0/24", owner=side.stranger)
    reply = await side.kuryr.get(f"/networks/{network['id']}")
    assert reply.status == 200
    assert reply.body["network"]["shared"] is False
    assert reply.body["network"]["project_id"] == side.stranger.project_id


async def test_the_cluster_user_makes_ports_for_another_project(side: Side) -> None:
    network = await side.network("10.220.0.0/24", owner=side.stranger)
    port = await side.kuryr.create(
        "port", network_id=network["id"], project_id=side.stranger.project_id
    )
    assert port["project_id"] == port["tenant_id"] == side.stranger.project_id
    group = (await side.admin.get(f"/security-groups/{port['security_groups'][0]}")).body
    assert group["security_group"]["project_id"] == side.stranger.project_id
    assert group["security_group"]["name"] == "default"
    seen = (await side.stranger.get(f"/ports/{port['id']}")).body["port"]
    assert seen["id"] == port["id"]
    assert "binding:vif_type" not in seen
    assert "binding:host_id" not in seen


async def test_a_member_makes_no_port_for_another_project(side: Side) -> None:
    network = await side.network("10.221.0.0/24", owner=side.stranger)
    body = {"network_id": network["id"], "project_id": side.kuryr.project_id}
    reply = await side.stranger.post("/ports", {"port": body})
    assert (reply.status, reply.error["type"]) == (400, "HTTPBadRequest")


async def test_two_projects_in_one_body_are_refused(side: Side, pods: Json) -> None:
    body = {"network_id": pods["id"], "project_id": "a", "tenant_id": "b"}
    reply = await side.kuryr.post("/ports", {"port": body})
    assert (reply.status, reply.error["type"]) == (400, "HTTPBadRequest")


async def test_a_member_does_not_choose_the_host(side: Side) -> None:
    network = await side.network("10.222.0.0/24", owner=side.stranger)
    body = {"network_id": network["id"], "binding:host_id": side.host}
    reply = await side.stranger.post("/ports", {"port": body})
    assert (reply.status, reply.error["type"]) == (403, "PolicyNotAuthorized")


async def test_the_cluster_user_writes_the_binding_profile(side: Side, pods: Json) -> None:
    profile = {"kuryr": "yes"}
    port = await side.kuryr.create("port", network_id=pods["id"], **{"binding:profile": profile})
    assert port["binding:profile"] == profile


async def test_ports_for_another_project_are_tagged_at_their_creation_or_never(
    side: Side,
) -> None:
    """`service` finds by tags, but reads and changes tags only where it is a member."""
    network = await side.network("10.223.0.0/24", owner=side.stranger)
    body = {"network_id": network["id"], "project_id": side.stranger.project_id}
    port = await side.kuryr.create("port", **body, tags=[side.mark])
    assert "tags" not in port
    assert "tags" not in (await side.kuryr.get(f"/ports/{port['id']}")).body["port"]
    reply = await side.kuryr.put(f"/ports/{port['id']}/tags", {"tags": ["other"]})
    assert (reply.status, reply.error["type"]) == (403, "PolicyNotAuthorized")
    listed = (await side.kuryr.get("/ports", tags=side.mark)).body["ports"]
    assert [(item["id"], "tags" in item) for item in listed] == [(port["id"], False)]
    for tag, found in ((side.mark, [port["id"]]), ("another", [])):  # by this we know our own
        listed = (await side.kuryr.get("/ports", id=port["id"], tags=tag)).body["ports"]
        assert [item["id"] for item in listed] == found
    seen = (await side.admin.get(f"/ports/{port['id']}")).body["port"]
    assert seen["tags"] == [side.mark]
    reply = await side.kuryr.put(f"/ports/{port['id']}", {"port": {"name": side.mark}})
    assert (reply.status, reply.body["port"]["name"]) == (200, side.mark)
    assert (await side.kuryr.delete(f"/ports/{port['id']}")).status == 204


async def test_groups_of_another_project_are_not_seen_by_the_cluster_user(side: Side) -> None:
    group = await side.admin.create(
        "security_group", name=side.mark, project_id=side.stranger.project_id
    )
    reply = await side.kuryr.get(f"/security-groups/{group['id']}")
    assert (reply.status, reply.error["type"]) == (404, "HTTPNotFound")
    listed = await side.kuryr.get("/security-groups", name=side.mark)
    assert listed.body["security_groups"] == []


async def test_a_port_takes_groups_of_its_own_project_only(side: Side, pods: Json) -> None:
    group = await side.admin.create(
        "security_group", name=side.mark, project_id=side.stranger.project_id
    )
    body = {"network_id": pods["id"], "security_groups": [group["id"]]}
    reply = await side.kuryr.post("/ports", {"port": body})
    assert (reply.status, reply.error["type"]) == (404, "SecurityGroupNotFound")


async def test_the_cluster_user_sees_and_changes_ports_of_all_projects(side: Side) -> None:
    network = await side.network("10.224.0.0/24", owner=side.stranger)
    port = await side.stranger.create("port", network_id=network["id"], name=side.mark)
    listed = (await side.kuryr.get("/ports", name=side.mark)).body["ports"]
    assert [item["id"] for item in listed] == [port["id"]]
    changes = {"binding:host_id": side.host, "device_id": "pod"}
    reply = await side.kuryr.put(f"/ports/{port['id']}", {"port": changes})
    assert reply.status == 200
    assert reply.body["port"]["binding:vif_type"] == "ovs"


@pytest.mark.parametrize(("first", "shown"), [("asc", True), ("desc", False)])
async def test_the_first_port_of_a_list_decides_whether_tags_are_shown(
    side: Side, pods: Json, first: str, shown: bool
) -> None:
    """So a list with ports of several projects may show no tags even of one's own."""
    other = await side.network("10.225.0.0/24", owner=side.stranger)
    for name, network, project in (
        ("own", pods, side.kuryr.project_id),
        ("their", other, side.stranger.project_id),
    ):
        await side.kuryr.create(
            "port", name=name, network_id=network["id"], project_id=project, tags=[side.mark]
        )
    reply = await side.kuryr.get("/ports", tags=side.mark, sort_key="name", sort_dir=first)
    ports = reply.body["ports"]
    assert {port["name"] for port in ports} == {"own", "their"}
    assert [("tags" in port) for port in ports] == [shown, shown]


async def test_the_quota_of_ones_own_project_is_told_with_what_is_used(side: Side) -> None:
    """Cases that run beside this one on a real cloud may make ports of the project, too."""
    network = await side.network("10.218.0.0/24", owner=side.stranger)
    path = f"/quotas/{side.stranger.project_id}/details.json"
    for _ in range(side.tries):
        before = (await side.stranger.get(path)).body["quota"]["port"]
        assert before.keys() == {"limit", "used", "reserved"}
        await side.stranger.post("/ports", {"ports": [{"network_id": network["id"]}] * 3})
        after = (await side.stranger.get(path)).body["quota"]["port"]
        if after == before | {"used": before["used"] + 3}:
            break
    assert after == before | {"used": before["used"] + 3}


async def test_a_project_without_a_limit_has_the_quota_minus_one(side: Side) -> None:
    project = uuid.uuid4().hex
    path = f"/quotas/{project}/details.json"
    reply = await side.admin.put(f"/quotas/{project}", {"quota": {"port": -1}})
    try:
        assert reply.status == 200
        reply = await side.admin.get(path)
        assert reply.body["quota"]["port"] == {"limit": -1, "used": 0, "reserved": 0}
        await side.admin.put(f"/quotas/{project}", {"quota": {"port": 7}})
        assert (await side.admin.get(path)).body["quota"]["port"]["limit"] == 7
    finally:
        assert (await side.admin.delete(f"/quotas/{project}")).status == 204


async def test_the_cluster_user_is_not_told_the_quota_of_another_project(side: Side) -> None:
    project = side.stranger.project_id
    reply = await side.kuryr.get(f"/quotas/{project}/details.json")
    assert (reply.status, reply.error["type"]) == (403, "AdminRequired")
    reply = await side.kuryr.get(f"/quotas/{project}")
    assert (reply.status, reply.error["type"]) == (403, "PolicyNotAuthorized")
