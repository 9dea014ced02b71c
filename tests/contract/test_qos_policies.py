"""QoS policies: who sees them, and who may have them on a port."""

from __future__ import annotations

import uuid
from typing import Any

from .sides import Side

Json = dict[str, Any]


async def make(side: Side, project_id: str) -> Json:
    body = {"name": side.mark, "project_id": project_id}
    reply = await side.admin.post("/qos/policies", {"policy": body})
    assert reply.status == 201
    made: Json = reply.body["policy"]
    return made


async def test_port_has_a_policy_of_its_own_project_from_its_creation(
    side: Side, pods: Json
) -> None:
    policy = await make(side, side.kuryr.project_id)
    try:
        listed = await side.kuryr.get(
            "/qos/policies", name=side.mark, project_id=side.kuryr.project_id
        )
        assert [each["id"] for each in listed.body["policies"]] == [policy["id"]]
        port = await side.kuryr.create("port", network_id=pods["id"], qos_policy_id=policy["id"])
        assert port["qos_policy_id"] == policy["id"]
        assert (await side.kuryr.delete(f"/ports/{port['id']}")).status == 204
    finally:
        assert (await side.admin.delete(f"/qos/policies/{policy['id']}")).status == 204


async def test_policy_of_another_project_is_not_seen_and_yet_given(side: Side, pods: Json) -> None:
    """So who makes ports for others has to check whose policies they name."""
    policy = await make(side, side.stranger.project_id)
    path = f"/qos/policies/{policy['id']}"
    try:
        assert (await side.kuryr.get(path)).status == 404
        body = {"network_id": pods["id"], "qos_policy_id": policy["id"]}
        port = (await side.kuryr.post("/ports", {"port": body})).body["port"]
        assert port["qos_policy_id"] == policy["id"]
        assert (await side.kuryr.delete(f"/ports/{port['id']}")).status == 204
        grant = {"object_type": "qos_policy", "object_id": policy["id"]}
        target = {"action": "access_as_shared", "target_tenant": side.kuryr.project_id}
        shared = await side.admin.post("/rbac-policies", {"rbac_policy": grant | target})
        assert shared.status == 201
        assert (await side.kuryr.get(path)).body["policy"]["project_id"] == policy["project_id"]
        rule = shared.body["rbac_policy"]["id"]
        assert (await side.admin.delete(f"/rbac-policies/{rule}")).status == 204
    finally:
        assert (await side.admin.delete(path)).status == 204


async def test_policy_that_does_not_exist_is_refused(side: Side, pods: Json) -> None:
    body = {"network_id": pods["id"], "qos_policy_id": str(uuid.uuid4())}
    reply = await side.kuryr.post("/ports", {"port": body})
    assert (reply.status, reply.error["type"]) == (404, "QosPolicyNotFound")
