"""What Neutron refuses, and the words in which it does: clients decide by them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from .sides import Reply, Side

Json = dict[str, Any]

NOBODY = "1b0bf90d-8c51-4c3b-9ad1-4a3d5b7d9b5e"


def check(reply: Reply, status: int, kind: str, message: str) -> None:
    assert reply.status == status, reply.body
    assert reply.error == {"type": kind, "message": message, "detail": ""}


@pytest.mark.parametrize("path", ["networks", "subnets", "ports"])
async def test_what_is_not_there_is_called_not_found_by_its_kind(side: Side, path: str) -> None:
    kind = path.removesuffix("s").capitalize()
    reply = await side.kuryr.get(f"/{path}/{NOBODY}")
    check(reply, 404, f"{kind}NotFound", f"{kind} {NOBODY} could not be found.")


async def test_a_security_group_that_is_not_there_is_not_found(side: Side) -> None:
    reply = await side.kuryr.get(f"/security-groups/{NOBODY}")
    check(reply, 404, "SecurityGroupNotFound", f"Security group {NOBODY} does not exist")


async def test_a_port_on_an_unknown_network_is_refused(side: Side) -> None:
    reply = await side.kuryr.post("/ports", {"port": {"network_id": NOBODY}})
    check(reply, 404, "NetworkNotFound", f"Network {NOBODY} could not be found.")


async def test_a_port_with_an_unknown_group_is_refused(side: Side, pods: Json) -> None:
    body = {"network_id": pods["id"], "security_groups": [NOBODY]}
    reply = await side.kuryr.post("/ports", {"port": body})
    check(reply, 404, "SecurityGroupNotFound", f"Security group {NOBODY} does not exist")


async def test_a_port_updated_with_an_unknown_group_keeps_its_own(side: Side, pods: Json) -> None:
    port = await side.kuryr.create("port", network_id=pods["id"])
    reply = await side.kuryr.put(f"/ports/{port['id']}", {"port": {"security_groups": [NOBODY]}})
    check(reply, 404, "SecurityGroupNotFound", f"Security group {NOBODY} does not exist")
    shown = (await side.kuryr.get(f"/ports/{port['id']}")).body["port"]
    assert shown["security_groups"] == port["security_groups"]


async def test_a_port_with_an_unknown_subnet_is_refused(side: Side, pods: Json) -> None:
    body = {"network_id": pods["id"], "fixed_ips": [{"subnet_id": NOBODY}]}
    reply = await side.kuryr.post("/ports", {"port": body})
    check(reply, 404, "SubnetNotFound", f"Subnet {NOBODY} could not be found.")


async def test_a_port_with_a_subnet_of_another_network_is_refused(side: Side, pods: Json) -> None:
    other = await side.network("10.215.0.0/24")
    [subnet_id] = other["subnets"]
    body = {"network_id": pods["id"], "fixed_ips": [{"subnet_id": subnet_id}]}
    reply = await side.kuryr.post("/ports", {"port": body})
    message = (
        f"Invalid input for operation: Failed to create port on network {pods['id']}, because"
        f" fixed_ips included invalid subnet {subnet_id}."
    )
    check(reply, 400, "InvalidInput", message)


async def test_an_address_outside_the_subnets_is_refused(side: Side, pods: Json) -> None:
    body = {"network_id": pods["id"], "fixed_ips": [{"ip_address": "192.0.2.7"}]}
    reply = await side.kuryr.post("/ports", {"port": body})
    message = (
        "IP address 192.0.2.7 is not a valid IP for any of the subnets on the specified network."
    )
    check(reply, 400, "InvalidIpForNetwork", message)


async def test_an_address_in_use_is_refused(side: Side, pods: Json) -> None:
    port = await side.kuryr.create("port", network_id=pods["id"])
    taken = port["fixed_ips"][0]
    body = {"network_id": pods["id"], "fixed_ips": [taken]}
    reply = await side.kuryr.post("/ports", {"port": body})
    message = f"IP address {taken['ip_address']} already allocated in subnet {taken['subnet_id']}"
    check(reply, 409, "IpAddressAlreadyAllocated", message)


async def test_an_exhausted_network_says_so_until_an_address_is_free(side: Side) -> None:
    network = await side.network("10.216.0.0/30")
    port = await side.kuryr.create("port", network_id=network["id"])
    reply = await side.kuryr.post("/ports", {"port": {"network_id": network["id"]}})
    message = f"No more IP addresses available on network {network['id']}."
    check(reply, 409, "IpAddressGenerationFailure", message)
    await side.kuryr.delete(f"/ports/{port['id']}")
    again = await side.kuryr.create("port", network_id=network["id"])
    assert again["fixed_ips"] == port["fixed_ips"]


async def test_an_exhausted_subnet_that_is_asked_for_is_not_named(side: Side) -> None:
    """So who has several subnets finds out by himself which of them is full."""
    network = await side.network()
    cidrs = ("10.216.3.0/30", "10.216.4.0/29", "fd00:216:1::/64")
    full, other, v6 = [(await side.subnet(network["id"], cidr))["id"] for cidr in cidrs]
    asked = {"network_id": network["id"]}
    first = asked | {"fixed_ips": [{"subnet_id": full}, {"subnet_id": v6}]}
    await side.kuryr.create("port", **first)
    message = f"No more IP addresses available on network {network['id']}."
    for body in ({"port": first}, {"ports": [first, first]}):
        reply = await side.kuryr.post("/ports", body)
        check(reply, 409, "IpAddressGenerationFailure", message)
    second = asked | {"fixed_ips": [{"subnet_id": other}, {"subnet_id": v6}]}
    made = await side.kuryr.create("port", **second)
    assert {address["subnet_id"] for address in made["fixed_ips"]} == {other, v6}


async def test_an_exhausted_family_leaves_no_address_of_the_other_behind(side: Side) -> None:
    network = await side.network("10.216.1.0/30", "10.216.2.0/30", "fd00:216::/64")
    made = [await side.kuryr.create("port", network_id=network["id"]) for _ in range(2)]
    reply = await side.kuryr.post("/ports", {"port": {"network_id": network["id"]}})
    assert reply.status == 409
    assert reply.error["type"] == "IpAddressGenerationFailure"
    listed = (await side.kuryr.get("/ports", network_id=network["id"])).body["ports"]
    assert {port["id"] for port in listed} == {port["id"] for port in made}


async def test_over_quota_is_a_conflict(side: Side, pods: Json) -> None:
    """The project with the quota exists only as an id, so that nobody else is hindered."""
    project = uuid.uuid4().hex
    port = {"network_id": pods["id"], "project_id": project, "security_groups": []}
    reply = await side.admin.put(f"/quotas/{project}", {"quota": {"port": 1}})
    assert reply.status == 200
    assert reply.body["quota"]["port"] == 1
    try:
        reply = await side.kuryr.post("/ports", {"ports": [port] * 2})
        check(reply, 409, "OverQuota", "Quota exceeded for resources: ['port'].")
        first = await side.kuryr.create("port", **port)
        reply = await side.kuryr.post("/ports", {"port": port})
        check(reply, 409, "OverQuota", "Quota exceeded for resources: ['port'].")
        await side.kuryr.delete(f"/ports/{first['id']}")
        await side.kuryr.create("port", **port)
    finally:
        assert (await side.admin.delete(f"/quotas/{project}")).status == 204
    await side.kuryr.create("port", **port)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        pytest.param({"colour": 1}, "Unrecognized attribute(s) 'colour'", id="unknown"),
        pytest.param({"status": "ACTIVE"}, "Attribute 'status' not allowed in POST", id="fixed"),
        pytest.param(
            {"network_id": "x"},
            "Invalid input for network_id. Reason: 'x' is not a valid UUID.",
            id="no uuid",
        ),
        pytest.param(
            {"name": 5}, "Invalid input for name. Reason: '5' is not a valid string.", id="number"
        ),
        pytest.param(
            {"device_id": "x" * 256},
            f"Invalid input for device_id. Reason: '{'x' * 256}' exceeds maximum length of 255.",
            id="too long",
        ),
    ],
)
async def test_a_bad_attribute_is_refused(
    side: Side, pods: Json, attributes: Json, message: str
) -> None:
    reply = await side.kuryr.post("/ports", {"port": {"network_id": pods["id"]} | attributes})
    check(reply, 400, "HTTPBadRequest", message)


async def test_a_port_without_a_network_is_refused(side: Side) -> None:
    reply = await side.kuryr.post("/ports", {"port": {"name": "x"}})
    message = "Failed to parse request. Required attribute 'network_id' not specified"
    check(reply, 400, "HTTPBadRequest", message)


async def test_what_is_fixed_is_not_updated(side: Side, pods: Json) -> None:
    port = await side.kuryr.create("port", network_id=pods["id"])
    reply = await side.kuryr.put(f"/ports/{port['id']}", {"port": {"status": "ACTIVE"}})
    check(reply, 400, "HTTPBadRequest", "Cannot update read-only attribute status")
