"""A port from its creation to its end."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from .sides import Side

Json = dict[str, Any]

# What the cluster's user reads of a port, from a Neutron with the lab's extensions.
ATTRIBUTES = {
    "id", "name", "network_id", "project_id", "tenant_id", "mac_address", "admin_state_up",
    "status", "device_id", "device_owner", "fixed_ips", "allowed_address_pairs",
    "security_groups", "description", "tags", "binding:vnic_type", "binding:profile",
    "binding:host_id", "binding:vif_type", "binding:vif_details", "port_security_enabled",
    "created_at", "updated_at", "revision_number", "extra_dhcp_opts", "dns_name",
    "dns_assignment", "qos_policy_id", "qos_network_policy_id",
}  # fmt: skip


async def test_a_port_with_a_host_comes_back_bound_with_one_address_of_each_family(
    side: Side, pods: Json
) -> None:
    port = await side.kuryr.create(
        "port",
        network_id=pods["id"],
        name=f"{side.mark}/pod",
        device_id=side.mark,
        device_owner="compute:kuryr",
        admin_state_up=True,
        **{"binding:host_id": side.host},
    )
    assert port.keys() == ATTRIBUTES
    assert port["binding:vif_type"] == "ovs"
    assert port["binding:host_id"] == side.host
    assert port["binding:vnic_type"] == "normal"
    details = port["binding:vif_details"]
    assert details["bridge_name"] == "br-int"
    assert details["port_filter"] is True
    assert port["status"] == "DOWN"
    assert port["project_id"] == port["tenant_id"] == side.kuryr.project_id
    assert re.fullmatch("fa:16:3e(:[0-9a-f]{2}){3}", port["mac_address"])
    addresses = sorted(
        ip_address(fixed_ip["ip_address"]).version for fixed_ip in port["fixed_ips"]
    )
    assert addresses == [4, 6]
    assert len(port["security_groups"]) == 1
    assert port["device_owner"] == "compute:kuryr"


async def test_a_port_without_a_host_is_unbound_and_is_bound_by_an_update(
    side: Side, pods: Json
) -> None:
    port = await side.kuryr.create("port", network_id=pods["id"])
    assert port["binding:vif_type"] == "unbound"
    assert port["binding:host_id"] == ""
    assert port["binding:vif_details"] == {}
    assert port["name"] == port["device_id"] == port["device_owner"] == ""
    reply = await side.kuryr.put(f"/ports/{port['id']}", {"port": {"binding:host_id": side.host}})
    assert reply.status == 200
    assert reply.body["port"]["binding:vif_type"] == "ovs"
    reply = await side.kuryr.put(f"/ports/{port['id']}", {"port": {"binding:host_id": ""}})
    assert reply.body["port"]["binding:vif_type"] == "unbound"


async def test_a_host_that_is_no_chassis_gives_binding_failed_and_no_error(
    side: Side, pods: Json
) -> None:
    host = f"{side.mark}.invalid"
    port = await side.kuryr.create("port", network_id=pods["id"], **{"binding:host_id": host})
    assert port["binding:vif_type"] == "binding_failed"
    assert port["binding:host_id"] == host


async def test_every_answer_carries_the_id_of_its_request(side: Side) -> None:
    reply = await side.kuryr.get("/ports", limit=1)
    assert reply.headers["X-Openstack-Request-Id"].startswith("req-")
    reply = await side.kuryr.get("/ports/1b0bf90d-8c51-4c3b-9ad1-4a3d5b7d9b5e")
    assert reply.headers["X-Openstack-Request-Id"].startswith("req-")


async def test_a_port_is_deleted_once_and_then_not_found(side: Side, pods: Json) -> None:
    port = await side.kuryr.create("port", network_id=pods["id"])
    path = f"/ports/{port['id']}"
    assert (await side.kuryr.delete(path)).status == 204
    for reply in (
        await side.kuryr.delete(path),
        await side.kuryr.get(path),
        await side.kuryr.put(path, {"port": {"name": "x"}}),
    ):
        assert reply.status == 404
        assert reply.error == {
            "type": "PortNotFound",
            "message": f"Port {port['id']} could not be found.",
            "detail": "",
        }


async def test_a_port_given_to_another_pod_keeps_addresses_and_mac(side: Side, pods: Json) -> None:
    port = await side.kuryr.create("port", network_id=pods["id"], device_id="pod-1", name="one")
    changes = {"device_id": "pod-2", "name": "two"}
    reply = await side.kuryr.put(f"/ports/{port['id']}", {"port": changes})
    assert reply.status == 200
    shown = (await side.kuryr.get(f"/ports/{port['id']}")).body["port"]
    assert shown["device_id"] == "pod-2"
    assert shown["name"] == "two"
    assert shown["fixed_ips"] == port["fixed_ips"]
    assert shown["mac_address"] == port["mac_address"]
    assert shown["revision_number"] > port["revision_number"]


async def test_security_groups_of_a_port_are_replaced_as_a_whole(side: Side, pods: Json) -> None:
    groups = [
        await side.kuryr.create("security_group", name=f"{side.mark}-{number}")
        for number in range(2)
    ]
    ids = [group["id"] for group in groups]
    port = await side.kuryr.create("port", network_id=pods["id"], security_groups=ids[:1])
    assert port["security_groups"] == ids[:1]
    for wanted in (ids, ids[1:], []):
        reply = await side.kuryr.put(f"/ports/{port['id']}", {"port": {"security_groups": wanted}})
        assert reply.status == 200
        assert sorted(reply.body["port"]["security_groups"]) == sorted(wanted)


async def test_a_group_that_a_port_uses_is_not_deleted(side: Side, pods: Json) -> None:
    group = await side.kuryr.create("security_group", name=side.mark)
    await side.kuryr.create("port", network_id=pods["id"], security_groups=[group["id"]])
    reply = await side.kuryr.delete(f"/security-groups/{group['id']}")
    assert reply.status == 409
    assert reply.error["type"] == "SecurityGroupInUse"


async def test_a_network_with_ports_is_not_deleted(side: Side, pods: Json) -> None:
    await side.kuryr.create("port", network_id=pods["id"])
    reply = await side.admin.delete(f"/networks/{pods['id']}")
    assert reply.status == 409
    assert reply.error["type"] == "NetworkInUse"


async def test_an_update_for_another_revision_is_refused(side: Side, pods: Json) -> None:
    port = await side.kuryr.create("port", network_id=pods["id"])
    path, revision = f"/ports/{port['id']}", port["revision_number"]
    pairs = {"allowed_address_pairs": [{"ip_address": "10.213.0.250"}]}
    reply = await side.kuryr.put(path, {"port": pairs}, If_Match=f"revision_number={revision + 5}")
    assert reply.status == 412
    assert reply.error["type"] == "RevisionNumberConstraintFailed"
    reply = await side.kuryr.put(path, {"port": pairs}, If_Match=f"revision_number={revision}")
    assert reply.status == 200
    assert reply.body["port"]["revision_number"] > revision
    assert reply.body["port"]["allowed_address_pairs"][0]["ip_address"] == "10.213.0.250"


async def test_a_port_that_is_taken_and_given_back_is_as_it_was(side: Side, pods: Json) -> None:
    port = await side.kuryr.create("port", network_id=pods["id"], name="theirs")
    path = f"/ports/{port['id']}"
    free = {"device_id": "", "device_owner": "", "binding:host_id": ""}
    assert {name: port[name] for name in free} == free
    taken = {
        "device_id": "pod-1",
        "device_owner": f"compute:kuryr-specific:{side.mark}",
        "binding:host_id": side.host,
    }
    reply = await side.kuryr.put(
        path, {"port": taken}, If_Match=f"revision_number={port['revision_number']}"
    )
    assert reply.status == 200
    assert {name: reply.body["port"][name] for name in taken} == taken
    assert reply.body["port"]["binding:vif_type"] == "ovs"
    found = await side.kuryr.get("/ports", device_owner=taken["device_owner"], fields="id")
    assert found.body["ports"] == [{"id": port["id"]}]
    assert (await side.kuryr.put(path, {"port": free})).status == 200
    shown = (await side.kuryr.get(path)).body["port"]
    changing = ("revision_number", "updated_at", "status")
    assert {name: shown[name] for name in shown.keys() - changing} == {
        name: port[name] for name in port.keys() - changing
    }


async def test_a_port_is_deleted_only_in_the_revision_that_is_named(
    side: Side, pods: Json
) -> None:
    port = await side.kuryr.create("port", network_id=pods["id"])
    path, revision = f"/ports/{port['id']}", port["revision_number"]
    reply = await side.kuryr.put(path, {"port": {"name": "other"}})
    current = reply.body["port"]["revision_number"]
    assert current > revision
    reply = await side.kuryr.delete(path, If_Match=f"revision_number={revision}")
    assert (reply.status, reply.error["type"]) == (412, "RevisionNumberConstraintFailed")
    assert (await side.kuryr.get(path)).status == 200
    assert (await side.kuryr.delete(path, If_Match=f"revision_number={current}")).status == 204
    reply = await side.kuryr.delete(path, If_Match=f"revision_number={current}")
    assert (reply.status, reply.error["type"]) == (404, "PortNotFound")


async def test_a_freed_address_comes_back_with_another_mac(side: Side) -> None:
    network = await side.network("10.214.0.0/29")
    first = await side.kuryr.create("port", network_id=network["id"])
    [address] = first["fixed_ips"]
    await side.kuryr.delete(f"/ports/{first['id']}")
    second = await side.kuryr.create("port", network_id=network["id"], fixed_ips=[address])
    assert second["fixed_ips"] == [address]
    assert second["mac_address"] != first["mac_address"]


async def test_addresses_come_from_the_pools_and_not_the_gateway(side: Side) -> None:
    network = await side.network()
    pool = {"start": "10.214.1.10", "end": "10.214.1.12"}
    subnet = await side.subnet(network["id"], "10.214.1.0/24", allocation_pools=[pool])
    assert subnet["gateway_ip"] == "10.214.1.1"
    v6 = await side.subnet(network["id"], "fd00:2141::/64")
    assert v6["gateway_ip"] == "fd00:2141::"
    seen = set()
    for _ in range(3):
        port = await side.kuryr.create("port", network_id=network["id"])
        for fixed_ip in port["fixed_ips"]:
            if fixed_ip["subnet_id"] == subnet["id"]:
                seen.add(fixed_ip["ip_address"])
            else:
                assert ip_address(fixed_ip["ip_address"]) in ip_network("fd00:2141::/64")
    assert seen == {"10.214.1.10", "10.214.1.11", "10.214.1.12"}


@pytest.mark.parametrize("mode", ["slaac", "dhcpv6-stateless"])
async def test_every_port_has_the_automatic_address_that_follows_from_its_mac(
    side: Side, mode: str
) -> None:
    network = await side.network("10.214.2.0/24")
    [v4] = network["subnets"]

    async def port(number: int, *subnets: str) -> Json:
        body = {
            "network_id": network["id"],
            "mac_address": f"fa:16:3e:12:34:0{number}",
            "fixed_ips": [{"subnet_id": subnet_id} for subnet_id in subnets],
        }
        return await side.kuryr.create("port", **body)

    made = {1: await port(1, v4)}
    modes = {"ipv6_address_mode": mode, "ipv6_ra_mode": mode, "enable_dhcp": True}
    v6 = (await side.subnet(network["id"], "fd00:2142::/64", **modes))["id"]
    made |= {2: await port(2, v4), 3: await port(3, v4, v6), 4: await port(4)}
    for number, before in made.items():
        shown = (await side.kuryr.get(f"/ports/{before['id']}")).body["port"]
        addresses = {ip["subnet_id"]: ip["ip_address"] for ip in shown["fixed_ips"]}
        assert addresses.keys() == ({v6} if number == 4 else {v4, v6})
        assert addresses[v6] == f"fd00:2142::f816:3eff:fe12:340{number}"  # RFC 4291, appendix A
    wrong = [{"subnet_id": v6, "ip_address": "fd00:2142::7"}]
    body = {"port": {"network_id": network["id"], "fixed_ips": wrong}}
    reply = await side.kuryr.post("/ports", body)
    assert (reply.status, reply.error["type"]) == (400, "AllocationOnAutoAddressSubnet")


async def test_an_address_pair_without_a_mac_gets_that_of_the_port(side: Side, pods: Json) -> None:
    pairs = [{"ip_address": "10.255.0.9"}]
    port = await side.kuryr.create("port", network_id=pods["id"], allowed_address_pairs=pairs)
    whole = [{"ip_address": "10.255.0.9", "mac_address": port["mac_address"]}]
    assert port["allowed_address_pairs"] == whole
    reply = await side.kuryr.put(f"/ports/{port['id']}", {"port": {"allowed_address_pairs": []}})
    assert reply.body["port"]["allowed_address_pairs"] == []
