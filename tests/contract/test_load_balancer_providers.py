"""What each of the providers cannot do."""

from __future__ import annotations

from typing import Any

from .balancers import BALANCERS, LISTENERS, POOLS, Octavia, bare, populated, vip_ports
from .sides import Reply, Side

Json = dict[str, Any]


def check_unsupported(reply: Reply, provider: str, reason: str) -> None:
    status, text = reply.fault
    start = f"Provider '{provider}' does not support a requested option: "
    assert (status, text[: len(start)]) == (501, start)
    assert reason in text


async def test_ovn_knows_no_http_no_allowed_cidrs_and_no_round_robin(
    octavia: Octavia, subnet: str
) -> None:
    made = await octavia.make(populated(subnet, "ovn"))
    listener = {"loadbalancer_id": made["id"], "protocol": "TCP", "protocol_port": 81}
    reply = await octavia.post(LISTENERS, {"listener": listener | {"protocol": "HTTP"}})
    check_unsupported(reply, "ovn", "OVN provider does not support HTTP protocol")
    cidrs = {"allowed_cidrs": ["10.0.0.0/8"]}
    reply = await octavia.post(LISTENERS, {"listener": listener | cidrs})
    check_unsupported(reply, "ovn", "OVN provider does not support allowed_cidrs option")
    reply = await octavia.put(f"{LISTENERS}/{made['listeners'][0]['id']}", {"listener": cidrs})
    check_unsupported(reply, "ovn", "OVN provider does not support allowed_cidrs option")
    pool = {"loadbalancer_id": made["id"], "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}
    reply = await octavia.post(POOLS, {"pool": pool})
    check_unsupported(reply, "ovn", "OVN provider does not support ROUND_ROBIN algorithm")
    tree = await octavia.settled(made["id"])
    assert tree["provisioning_status"] == "ACTIVE"
    assert len(tree["listeners"]) == 1


async def test_ovn_knows_sctp(octavia: Octavia, subnet: str) -> None:
    body = populated(subnet, "ovn")
    body["listeners"][0]["protocol"] = "SCTP"
    body["listeners"][0]["default_pool"]["protocol"] = "SCTP"
    await octavia.make(body)


async def test_ovn_wants_the_subnet_of_members_that_are_elsewhere(
    octavia: Octavia, subnet: str
) -> None:
    made = await octavia.make(populated(subnet, "ovn"))
    path = f"{POOLS}/{made['pools'][0]['id']}/members"
    member = {"address": "10.220.0.5", "protocol_port": 80}
    check_unsupported(await octavia.put(path, {"members": [member]}), "ovn", "Subnet is required")
    near = member | {"address": "10.219.0.110"}
    await octavia.change(made["id"], await octavia.put(path, {"members": [near]}))
    [shown] = await octavia.until_members(made["pools"][0]["id"], "10.219.0.110")
    assert shown["subnet_id"] is None
    six = member | {"address": "fd00:219::5", "subnet_id": subnet}
    check_unsupported(await octavia.put(path, {"members": [six]}), "ovn", "mixing IPv4/IPv6")


async def test_what_ovn_refuses_in_a_populated_body_leaves_the_port_of_the_vip_behind(
    side: Side, octavia: Octavia, subnet: str
) -> None:
    body = populated(subnet, "ovn")
    body["listeners"][0]["default_pool"]["lb_algorithm"] = "ROUND_ROBIN"
    reply = await octavia.post(BALANCERS, {"loadbalancer": body})
    check_unsupported(reply, "ovn", "OVN provider does not support ROUND_ROBIN algorithm")
    [port] = await vip_ports(side)
    balancer_id = port["device_id"].removeprefix("lb-")
    assert (await octavia.get(f"{BALANCERS}/{balancer_id}")).status == 404


async def test_amphora_has_allowed_cidrs_but_no_source_ip_port(
    octavia: Octavia, subnet: str
) -> None:
    made = await octavia.make(bare(subnet, "amphora"))
    listener = {"loadbalancer_id": made["id"], "protocol": "TCP", "protocol_port": 81}
    body = {"listener": listener | {"allowed_cidrs": ["10.0.0.0/8"]}}
    reply = await octavia.change(made["id"], await octavia.post(LISTENERS, body))
    assert reply.body["listener"]["allowed_cidrs"] == ["10.0.0.0/8"]
    pool = {"loadbalancer_id": made["id"], "protocol": "TCP", "lb_algorithm": "SOURCE_IP_PORT"}
    reply = await octavia.post(POOLS, {"pool": pool})
    check_unsupported(reply, "amphora", "does not support SOURCE_IP_PORT algorithm")
    tree = await octavia.settled(made["id"])
    assert tree["provisioning_status"] == "ACTIVE"


async def test_a_provider_that_is_not_there_is_400(octavia: Octavia, subnet: str) -> None:
    body = bare(subnet, "ovn") | {"provider": "nobody"}
    reply = await octavia.post(BALANCERS, {"loadbalancer": body})
    assert reply.fault == (400, "Provider 'nobody' is not enabled.")
