"""What Octavia and its providers refuse, with the words that clients go by."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia.api import Octavia as Client

from .balancers import (
    ALGORITHMS,
    ANY_PROVIDER,
    BALANCERS,
    LISTENERS,
    POOLS,
    Octavia,
    bare,
    populated,
    vip_ports,
    vip_subnet,
)
from .sides import Reply, Side

Json = dict[str, Any]
NOBODY = "1b0bf90d-8c51-4c3b-9ad1-4a3d5b7d9b5e"


@pytest.fixture
async def limited(admin: Octavia, stranger: Octavia) -> AsyncIterator[Limited]:
    """Octavia as a user of the other project, whose quotas the case may set. Quotas of the
    cluster's project would hinder the cases that run beside this one."""
    yield Limited(stranger, admin)
    await stranger.clean()
    assert (await admin.delete(f"/lbaas/quotas/{stranger.project_id}")).status == 202


@pytest.fixture
async def limited_subnet(side: Side) -> str:
    """A subnet for VIPs in a network of the other project."""
    return await vip_subnet(side, owner=side.stranger)


@dataclass(frozen=True)
class Limited:
    """A user of Octavia, and the admin who limits what its project may have."""

    octavia: Octavia
    admin: Octavia

    async def limit(self, **numbers: int) -> None:
        """Set quotas of the project, until the end of the case."""
        path = f"/lbaas/quotas/{self.octavia.project_id}"
        assert (await self.admin.put(path, {"quota": numbers})).status == 202


async def create(octavia: Octavia, body: Json) -> Reply:
    return await octavia.post(BALANCERS, {"loadbalancer": body})


@ANY_PROVIDER
async def test_a_quota_of_load_balancers_is_403(
    side: Side, limited: Limited, limited_subnet: str, provider: str
) -> None:
    await limited.limit(loadbalancer=0)
    reply = await create(limited.octavia, populated(limited_subnet, provider))
    assert reply.fault == (403, "Quota has been met for resources: Load Balancer")
    assert await vip_ports(side) == []


@pytest.mark.parametrize("kind", ["pool", "listener", "member"])
async def test_a_quota_of_parts_leaves_the_port_of_the_vip_behind(
    side: Side, limited: Limited, limited_subnet: str, provider: str, kind: str
) -> None:
    octavia = limited.octavia
    await limited.limit(**{kind: 0})
    body = populated(limited_subnet, provider, vip_address="10.219.0.20")
    reply = await create(octavia, body)
    assert reply.fault == (403, f"Quota has been met for resources: {kind.capitalize()}")
    [port] = await vip_ports(side)
    balancer_id = port["device_id"].removeprefix("lb-")
    assert (await octavia.get(f"{BALANCERS}/{balancer_id}")).status == 404
    assert port["fixed_ips"][0]["ip_address"] == "10.219.0.20"
    assert (await create(octavia, body)).status == 409


@ANY_PROVIDER
async def test_a_quota_holds_for_parts_that_are_added(
    limited: Limited, limited_subnet: str, provider: str
) -> None:
    octavia, subnet = limited.octavia, limited_subnet
    made = await octavia.make(populated(subnet, provider))
    await limited.limit(listener=1, pool=1, member=2)
    listener = {"loadbalancer_id": made["id"], "protocol": "TCP", "protocol_port": 81}
    reply = await octavia.post(LISTENERS, {"listener": listener})
    assert reply.fault == (403, "Quota has been met for resources: Listener")
    pool = {"loadbalancer_id": made["id"], "protocol": "TCP"}
    reply = await octavia.post(POOLS, {"pool": pool | {"lb_algorithm": ALGORITHMS[provider]}})
    assert reply.fault == (403, "Quota has been met for resources: Pool")
    members = [
        {"address": f"10.219.0.{number}", "protocol_port": 8080, "subnet_id": subnet}
        for number in (101, 102, 103)
    ]
    path = f"{POOLS}/{made['pools'][0]['id']}/members"
    reply = await octavia.put(path, {"members": members})
    assert reply.fault == (403, "Quota has been met for resources: Member")
    await octavia.change(made["id"], await octavia.put(path, {"members": members[1:]}))


async def test_an_address_that_is_taken_is_409_and_one_outside_is_not_ours_to_have(
    side: Side, octavia: Octavia, subnet: str, pods: Json, provider: str
) -> None:
    made = await octavia.make(bare(subnet, provider, vip_address="10.219.0.20"))
    reply = await create(octavia, bare(subnet, provider, vip_address="10.219.0.20"))
    assert reply.fault[0] == 409
    assert reply.fault[1].startswith("The VIP IP address is already in use: ")
    reply = await create(octavia, bare(subnet, provider, vip_address="192.0.2.1"))
    status, text = reply.fault
    assert (status, text.startswith(f"Provider '{provider}' reports error: ")) == (500, True)
    reply = await create(octavia, bare(NOBODY, provider))
    assert reply.fault == (400, f"Subnet {NOBODY} not found.")
    reply = await create(octavia, {"provider": provider})
    assert reply.fault[0] == 400
    assert [port["id"] for port in await vip_ports(side)] == [made["vip_port_id"]]


@ANY_PROVIDER
async def test_a_port_is_listened_to_once_but_udp_and_tcp_have_numbers_of_their_own(
    octavia: Octavia, subnet: str, provider: str
) -> None:
    made = await octavia.make(populated(subnet, provider))
    body = {"loadbalancer_id": made["id"], "protocol": "TCP", "protocol_port": 80}
    reply = await octavia.post(LISTENERS, {"listener": body})
    text = "Another Listener on this Load Balancer is already using protocol TCP and protocol_port"
    assert reply.fault == (409, f"{text} 80")
    other = {"listener": body | {"protocol": "UDP"}}
    await octavia.change(made["id"], await octavia.post(LISTENERS, other))


@ANY_PROVIDER
async def test_a_listener_has_one_pool_and_of_a_protocol_that_fits(
    octavia: Octavia, subnet: str, provider: str
) -> None:
    made = await octavia.make(populated(subnet, provider))
    listener_id = made["listeners"][0]["id"]
    pool = {"listener_id": listener_id, "lb_algorithm": ALGORITHMS[provider]}
    reply = await octavia.post(POOLS, {"pool": pool | {"protocol": "TCP"}})
    assert reply.fault == (409, "This listener already has a default pool")
    reply = await octavia.post(POOLS, {"pool": pool | {"protocol": "UDP"}})
    text = "The pool protocol 'UDP' is invalid while the listener protocol is 'TCP'."
    assert reply.fault == (400, f"Validation failure: {text}")


async def test_a_pool_within_a_listener_that_comes_later_is_500(
    octavia: Octavia, subnet: str
) -> None:
    made = await octavia.make(bare(subnet, "ovn"))
    body = populated(subnet, "ovn")["listeners"][0] | {"loadbalancer_id": made["id"]}
    reply = await octavia.post(LISTENERS, {"listener": body})
    assert reply.status == 500
    assert (await octavia.settled(made["id"]))["listeners"] == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"default_pool": {"protocol": "TCP", "lb_algorithm": "SOURCE_IP"}},
            "Pools must be named when creating a fully populated loadbalancer.",
            id="without a name",
        ),
        pytest.param(
            {"default_pool": {"name": "other"}},
            "Pool 'other' was referenced but no full definition was found.",
            id="without a definition",
        ),
        pytest.param(
            {"default_pool": {"name": "one", "protocol": "TCP"}},
            "Pool definition for 'one' missing required attribute: lb_algorithm",
            id="without an algorithm",
        ),
    ],
)
@ANY_PROVIDER
async def test_a_pool_in_the_body_of_a_load_balancer_is_whole(
    octavia: Octavia, subnet: str, provider: str, changes: Json, message: str
) -> None:
    body = populated(subnet, provider)
    body["listeners"][0] |= changes
    assert (await create(octavia, body)).fault == (400, f"Validation failure: {message}")


@ANY_PROVIDER
async def test_two_pools_in_the_body_of_a_load_balancer_have_different_names(
    octavia: Octavia, subnet: str, provider: str
) -> None:
    body = populated(subnet, provider)
    body["listeners"].append(body["listeners"][0] | {"protocol_port": 81})
    message = "Pool names must be unique when creating a fully populated loadbalancer."
    assert (await create(octavia, body)).fault == (400, f"Validation failure: {message}")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param(LISTENERS, {"listener": {"colour": "red"}}, id="unknown"),
        pytest.param(LISTENERS, {"listener": {"protocol": "TCP"}}, id="missing"),
        pytest.param(POOLS, {"pool": {"protocol": "TCP", "lb_algorithm": "DICE"}}, id="value"),
        pytest.param(
            LISTENERS,
            {"listener": {"protocol": "TCP", "protocol_port": 0, "loadbalancer_id": NOBODY}},
            id="number",
        ),
    ],
)
async def test_a_bad_attribute_is_400(octavia: Octavia, path: str, body: Json) -> None:
    status, text = (await octavia.post(path, body)).fault
    start = "Unknown attribute" if "colour" in str(body) else "Invalid input for field/attribute"
    assert (status, text[: len(start)]) == (400, start)


@ANY_PROVIDER
async def test_what_is_given_once_is_not_updated(
    octavia: Octavia, subnet: str, provider: str
) -> None:
    made = await octavia.make(populated(subnet, provider))
    for path, body in (
        (f"{BALANCERS}/{made['id']}", {"loadbalancer": {"vip_address": "10.219.0.30"}}),
        (f"{LISTENERS}/{made['listeners'][0]['id']}", {"listener": {"protocol_port": 81}}),
        (f"{POOLS}/{made['pools'][0]['id']}", {"pool": {"protocol": "UDP"}}),
    ):
        assert (await octavia.put(path, body)).status == 400
    assert (await octavia.settled(made["id"]))["provisioning_status"] == "ACTIVE"


@ANY_PROVIDER
async def test_affinity_has_a_timeout_with_udp_only(
    octavia: Octavia, subnet: str, provider: str
) -> None:
    made = await octavia.make(populated(subnet, provider))
    persistence = {"type": "SOURCE_IP", "persistence_timeout": 60}
    pool = {"loadbalancer_id": made["id"], "lb_algorithm": ALGORITHMS[provider]}
    pool["session_persistence"] = persistence
    reply = await octavia.post(POOLS, {"pool": pool | {"protocol": "TCP"}})
    assert reply.status == 400
    udp = await octavia.post(POOLS, {"pool": pool | {"protocol": "UDP"}})
    await octavia.change(made["id"], udp)


@ANY_PROVIDER
async def test_members_of_a_batch_are_different(
    octavia: Octavia, subnet: str, provider: str
) -> None:
    made = await octavia.make(populated(subnet, provider))
    path = f"{POOLS}/{made['pools'][0]['id']}/members"
    new = {"address": "10.219.0.120", "protocol_port": 8080, "subnet_id": subnet}
    reply = await octavia.put(path, {"members": [new, new]})
    text = "Another member on this pool is already using ip 10.219.0.120 on protocol_port 8080"
    assert reply.fault == (409, text)
    old = new | {"address": "10.219.0.101"}
    reply = await octavia.put(path, {"members": [old, old]})
    text = "Validation failure: Member must be updated only once in the same request."
    assert reply.fault == (400, text)
    assert len((await octavia.get(path)).body["members"]) == 2


@ANY_PROVIDER
async def test_a_body_that_is_too_large_is_413_before_anything_is_looked_at(
    octavia: Octavia, client: Client, subnet: str, provider: str
) -> None:
    body = bare(subnet, provider, description="x" * 114688)
    reply = await create(octavia, body)
    assert reply.status == 413
    assert "Request is too large." in reply.text
    with pytest.raises(errors.BadRequest, match="larger than the API accepts"):
        await client.create_load_balancer(body)
