"""A security group of our own: its rules, its tags, and who may use it."""

from __future__ import annotations

from typing import Any

from .sides import Neutron, Reply, Side

Json = dict[str, Any]


async def make(side: Side) -> Json:
    """A group of the cluster's user."""
    return await side.kuryr.create(
        "security_group", name=side.mark, project_id=side.kuryr.project_id
    )


def ingress(group: Json, prefix: str) -> Json:
    return {
        "security_group_id": group["id"],
        "project_id": group["project_id"],
        "direction": "ingress",
        "ethertype": "IPv6" if ":" in prefix else "IPv4",
        "remote_ip_prefix": prefix,
        "remote_group_id": None,
        "remote_address_group_id": None,
        "protocol": None,
        "port_range_min": None,
        "port_range_max": None,
    }


async def test_a_new_group_lets_everything_out_until_those_rules_are_deleted(side: Side) -> None:
    group = await make(side)
    said = {
        (rule["direction"], rule["remote_ip_prefix"]) for rule in group["security_group_rules"]
    }
    assert said == {("egress", None)}
    for rule in group["security_group_rules"]:
        assert (await side.kuryr.delete(f"/security-group-rules/{rule['id']}")).status == 204
    [found] = await named(side, side.kuryr)
    assert found["security_group_rules"] == []


async def test_rules_are_made_together_or_not_at_all(side: Side) -> None:
    group = await make(side)
    both = [ingress(group, "10.96.0.0/15"), ingress(group, "fd96::/64")]
    assert (await rules(side, both)).status == 201
    [found] = await named(side, side.kuryr)
    shown = [rule for rule in found["security_group_rules"] if rule["direction"] == "ingress"]
    assert sorted(rule["remote_ip_prefix"] for rule in shown) == ["10.96.0.0/15", "fd96::/64"]
    for rule in shown:
        wanted = ingress(group, rule["remote_ip_prefix"])
        assert {name: rule[name] for name in wanted} == wanted
    reply = await rules(side, [ingress(group, "10.1.0.0/16"), both[0]])
    assert (reply.status, reply.error["type"]) == (409, "SecurityGroupRuleExists")
    [found] = await named(side, side.kuryr)
    prefixes = [rule["remote_ip_prefix"] for rule in found["security_group_rules"]]
    assert "10.1.0.0/16" not in prefixes


async def test_its_tags_are_set_by_its_owner(side: Side) -> None:
    group = await make(side)
    path = f"/security-groups/{group['id']}/tags"
    assert (await side.kuryr.put(path, {"tags": [side.mark, "x"]})).status == 200
    [found] = await named(side, side.kuryr)
    assert sorted(found["tags"]) == sorted([side.mark, "x"])


async def test_its_owner_describes_it_and_its_rules_and_tags_stay(side: Side) -> None:
    group = await make(side)
    path = f"/security-groups/{group['id']}"
    assert (await side.kuryr.put(f"{path}/tags", {"tags": [side.mark]})).status == 200
    body = {"security_group": {"description": f"{side.mark} x"}}
    assert (await side.kuryr.put(path, body)).status == 200
    [found] = await named(side, side.kuryr)
    assert (found["description"], found["tags"]) == (f"{side.mark} x", [side.mark])
    assert len(found["security_group_rules"]) == len(group["security_group_rules"])


async def test_its_owner_shares_it_with_a_project_whose_ports_may_have_it_then(side: Side) -> None:
    """The port is one of the other project, and the cluster's user makes it."""
    group = await make(side)
    network = await side.network("10.220.0.0/24", owner=side.stranger)
    body = {
        "network_id": network["id"],
        "project_id": side.stranger.project_id,
        "security_groups": [group["id"]],
    }
    reply = await side.kuryr.post("/ports", {"port": body})
    assert (reply.status, reply.error["type"]) == (404, "SecurityGroupNotFound")
    grant = {"object_type": "security_group", "object_id": group["id"]}
    grant |= {"action": "access_as_shared", "target_tenant": side.stranger.project_id}
    assert (await side.kuryr.post("/rbac-policies", {"rbac_policy": grant})).status == 201
    reply = await side.kuryr.post("/ports", {"port": body})
    assert reply.status == 201, reply.body
    assert reply.body["port"]["security_groups"] == [group["id"]]


async def named(side: Side, user: Neutron) -> list[Json]:
    query = {"name": side.mark, "project_id": side.kuryr.project_id}
    found: list[Json] = (await user.get("/security-groups", **query)).body["security_groups"]
    return found


async def rules(side: Side, wanted: list[Json]) -> Reply:
    return await side.kuryr.post("/security-group-rules", {"security_group_rules": wanted})
