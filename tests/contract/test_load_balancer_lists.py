"""Lists of load balancers and their parts: tags, pages, fields; and who sees them."""

from __future__ import annotations

import pytest

from .balancers import BALANCERS, LISTENERS, POOLS, Octavia, bare, populated
from .sides import Json, Side

GONE = "Supplied pagination marker '{marker}' is not valid."
NOBODY = "1b0bf90d-8c51-4c3b-9ad1-4a3d5b7d9b5e"


async def test_load_balancers_are_found_by_all_of_the_tags(
    side: Side, octavia: Octavia, subnet: str
) -> None:
    tags = ([side.mark], [side.mark, "x"], [side.mark, "x", "y"])
    made = [(await octavia.make(bare(subnet, "ovn", tags=list(given))))["id"] for given in tags]

    async def found(**query: str) -> list[str]:
        reply = await octavia.get(BALANCERS, **query)
        assert reply.status == 200, reply.body
        return sorted(balancer["id"] for balancer in reply.body["loadbalancers"])

    assert await found(tags=side.mark) == sorted(made)
    assert await found(tags=f"{side.mark},x") == sorted(made[1:])
    assert await found(tags=f"y,{side.mark}") == made[2:]
    assert await found(tags=f"{side.mark},nobody") == []
    assert await found(**{"tags": side.mark, "not-tags": "x"}) == made[:1]
    assert await found(tags=side.mark, provisioning_status="PENDING_UPDATE") == []
    assert await found(tags=side.mark, provisioning_status="ACTIVE") == sorted(made)


async def test_lists_come_in_pages_and_with_the_fields_asked_for(
    side: Side, octavia: Octavia, subnet: str
) -> None:
    made = [(await octavia.make(bare(subnet, "ovn", tags=[side.mark])))["id"] for _ in range(3)]
    query = {"tags": side.mark, "fields": ["id", "provisioning_status"], "limit": 2}
    first = (await octavia.get(BALANCERS, **query)).body
    assert len(first["loadbalancers"]) == 2
    for balancer in first["loadbalancers"]:
        assert balancer.keys() == {"id", "provisioning_status"}
    [link] = first["loadbalancers_links"]
    marker = first["loadbalancers"][-1]["id"]
    assert link["rel"] == "next"
    assert f"marker={marker}" in link["href"]
    second = (await octavia.get(BALANCERS, **query, marker=marker)).body
    assert len(second["loadbalancers"]) == 1
    assert "next" not in [link["rel"] for link in second["loadbalancers_links"]]
    ids = [balancer["id"] for balancer in first["loadbalancers"] + second["loadbalancers"]]
    assert sorted(ids) == sorted(made)
    reply = await octavia.get(BALANCERS, marker=NOBODY, limit=2)
    assert reply.fault == (400, GONE.format(marker=NOBODY))


async def test_members_come_in_pages(octavia: Octavia, subnet: str) -> None:
    made = await octavia.make(populated(subnet, "ovn"))
    path = f"{POOLS}/{made['pools'][0]['id']}/members"
    first = (await octavia.get(path, limit=1)).body
    marker = first["members"][0]["id"]
    assert [link["rel"] for link in first["members_links"]] == ["next"]
    second = (await octavia.get(path, limit=1, marker=marker)).body
    assert {marker, second["members"][0]["id"]} == {
        member["id"] for member in made["pools"][0]["members"]
    }


@pytest.mark.parametrize("path", [LISTENERS, POOLS])
async def test_parts_of_a_project_come_in_pages(
    octavia: Octavia, admin: Octavia, subnet: str, path: str
) -> None:
    made = [await octavia.make(populated(subnet, "ovn")) for _ in range(3)]
    kind = path.rpartition("/")[2]
    for user in (octavia, admin):
        listed = None
        while listed is None:
            listed = await _all_pages(user, path, kind, octavia.project_id)
        of = {part["id"]: part["loadbalancers"] for part in listed}
        assert len(of) == len(listed)
        for balancer in made:
            assert of[balancer[kind][0]["id"]] == [{"id": balancer["id"]}]


async def _all_pages(user: Octavia, path: str, kind: str, project_id: str) -> list[Json] | None:
    """List in pages of two; None if another case deleted the object that a page began after."""
    listed: list[Json] = []
    marker: dict[str, str] = {}
    while True:
        reply = await user.get(path, project_id=project_id, limit=2, **marker)
        if reply.status == 400:
            gone = f"Supplied pagination marker '{marker.get('marker')}' is not valid."
            assert reply.fault == (400, gone)
            return None
        page = reply.body
        assert len(page[kind]) <= 2
        listed += page[kind]
        if "next" not in [link["rel"] for link in page[f"{kind}_links"]]:
            return listed
        marker = {"marker": listed[-1]["id"]}


async def test_parts_are_listed_by_their_load_balancer(octavia: Octavia, subnet: str) -> None:
    made = await octavia.make(populated(subnet, "ovn"))
    other = await octavia.make(populated(subnet, "ovn"))
    for path, name in ((LISTENERS, "listeners"), (POOLS, "pools")):
        listed = (await octavia.get(path, loadbalancer_id=made["id"])).body[name]
        assert [part["id"] for part in listed] == [made[name][0]["id"]]
        assert listed[0]["loadbalancers"] == [{"id": made["id"]}]
        everything = {part["id"] for part in (await octavia.get(path)).body[name]}
        assert {made[name][0]["id"], other[name][0]["id"]} <= everything
    [pool] = (await octavia.get(POOLS, loadbalancer_id=made["id"])).body["pools"]
    ids = {member["id"] for member in made["pools"][0]["members"]}
    assert {member["id"] for member in pool["members"]} == ids
    assert pool["listeners"] == [{"id": made["listeners"][0]["id"]}]


@pytest.mark.parametrize("query", [{"colour": "red"}, {"id": [NOBODY, NOBODY]}])
async def test_a_filter_is_known_and_given_once(octavia: Octavia, query: dict[str, str]) -> None:
    assert (await octavia.get(BALANCERS, **query)).status in (400, 500)


async def test_an_answer_has_these_attributes(octavia: Octavia, subnet: str) -> None:
    made = await octavia.make(populated(subnet, "ovn"))
    shown = (await octavia.get(f"{BALANCERS}/{made['id']}")).body["loadbalancer"]
    assert shown.keys() == BALANCER
    [listener] = (await octavia.get(LISTENERS, loadbalancer_id=made["id"])).body["listeners"]
    assert listener.keys() == LISTENER
    [pool] = (await octavia.get(POOLS, loadbalancer_id=made["id"])).body["pools"]
    assert pool.keys() == POOL
    members = (await octavia.get(f"{POOLS}/{pool['id']}/members")).body["members"]
    assert members[0].keys() == MEMBER
    tree = (await octavia.get(f"{BALANCERS}/{made['id']}/status")).body["statuses"]
    status = {"id", "name", "operating_status", "provisioning_status"}
    assert tree["loadbalancer"].keys() == status | {"listeners"}
    assert tree["loadbalancer"]["listeners"][0].keys() == status | {"pools"}
    inner = tree["loadbalancer"]["listeners"][0]["pools"][0]
    assert inner.keys() == status | {"health_monitor", "members"}
    assert inner["members"][0].keys() == status | {"address", "protocol_port"}


async def test_versions_and_providers_are_told(octavia: Octavia) -> None:
    versions = (await octavia.get("/../")).body["versions"]
    assert [version["id"] for version in versions] == [f"v2.{minor}" for minor in range(31)]
    listed = (await octavia.get("/lbaas/providers")).body["providers"]
    assert {"ovn", "amphora"} <= {provider["name"] for provider in listed}


async def test_a_stranger_is_forbidden_what_it_does_not_own(
    octavia: Octavia, stranger: Octavia, admin: Octavia, subnet: str
) -> None:
    made = await octavia.make(populated(subnet, "ovn"))
    path, forbidden = f"{BALANCERS}/{made['id']}", "Policy does not allow this request to be"
    for reply in (
        await stranger.get(path),
        await stranger.get(f"{path}/status"),
        await stranger.delete(f"{path}?cascade=true"),
        await stranger.put(path, {"loadbalancer": {"name": "x"}}),
        await stranger.get(BALANCERS, project_id=octavia.project_id),
        await stranger.get(f"{POOLS}/{made['pools'][0]['id']}/members"),
    ):
        status, text = reply.fault
        assert (status, text.startswith(forbidden)) == (403, True)
    listed = (await stranger.get(BALANCERS)).body["loadbalancers"]
    assert made["id"] not in [balancer["id"] for balancer in listed]
    listed = (await admin.get(BALANCERS)).body["loadbalancers"]
    assert made["id"] in [balancer["id"] for balancer in listed]


async def test_what_is_not_there_is_not_found(octavia: Octavia) -> None:
    for path, name in ((BALANCERS, "Load Balancer"), (LISTENERS, "Listener"), (POOLS, "Pool")):
        reply = await octavia.get(f"{path}/{NOBODY}")
        assert reply.fault == (404, f"{name} {NOBODY} not found.")
        reply = await octavia.delete(f"{path}/{NOBODY}")
        assert reply.fault == (404, f"{name} {NOBODY} not found.")
    reply = await octavia.put(f"{POOLS}/{NOBODY}/members", {"members": []})
    assert reply.status == 404
    # before its controllers, Octavia's framework answers
    text = f"Pool {NOBODY} not found."
    assert reply.body == {"code": 404, "title": "Bad Request", "description": text}


BALANCER = {
    "additional_vips", "admin_state_up", "availability_zone", "created_at", "description",
    "flavor_id", "id", "listeners", "name", "operating_status", "pools", "project_id", "provider",
    "provisioning_status", "tags", "tenant_id", "updated_at", "vip_address", "vip_network_id",
    "vip_port_id", "vip_qos_policy_id", "vip_sg_ids", "vip_subnet_id", "vip_vnic_type",
}  # fmt: skip
LISTENER = {
    "admin_state_up", "allowed_cidrs", "alpn_protocols", "client_authentication",
    "client_ca_tls_container_ref", "client_crl_container_ref", "connection_limit", "created_at",
    "default_pool_id", "default_tls_container_ref", "description", "hsts_include_subdomains",
    "hsts_max_age", "hsts_preload", "id", "insert_headers", "l7policies", "loadbalancers", "name",
    "operating_status", "project_id", "protocol", "protocol_port", "provisioning_status",
    "sni_container_refs", "tags", "tenant_id", "timeout_client_data", "timeout_member_connect",
    "timeout_member_data", "timeout_tcp_inspect", "tls_ciphers", "tls_versions", "updated_at",
}  # fmt: skip
POOL = {
    "admin_state_up", "alpn_protocols", "ca_tls_container_ref", "created_at", "crl_container_ref",
    "description", "id", "lb_algorithm", "listeners", "loadbalancers",
    "members", "name", "operating_status", "project_id", "protocol", "provisioning_status",
    "session_persistence", "tags", "tenant_id", "tls_ciphers", "tls_container_ref", "tls_enabled",
    "tls_versions", "updated_at",
}  # fmt: skip
MEMBER = {
    "address", "admin_state_up", "backup", "created_at", "id", "monitor_address", "monitor_port",
    "name", "operating_status", "project_id", "protocol_port", "provisioning_status", "subnet_id",
    "tags", "tenant_id", "updated_at", "vnic_type", "weight",
}  # fmt: skip
