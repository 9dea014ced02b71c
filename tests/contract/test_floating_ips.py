"""Floating IPs: what marks them from the first instant, what they may lead to, what is refused."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kuryr_k8s import config, errors
from kuryr_k8s.cloud.connect import ServiceAdapter
from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.cloud.neutron import floating_ips
from kuryr_k8s.cloud.neutron.api import Neutron as Client
from kuryr_k8s.cloud.neutron.floating_ips import FloatingIPs
from kuryr_k8s.cloud.transport import Transport
from kuryr_k8s.drivers.base import Owned, PublicIPInUse, PublicIPRequest
from kuryr_k8s.drivers.public_ip.neutron_floating_ip import NeutronFloatingIP, NotPermitted
from kuryr_k8s.model.owner import Owner, Role
from tests.kit.contexts import driver_context

from .sides import Neutron, Reply, Side

Json = dict[str, Any]
PATH = "/floatingips"
NOBODY = "1b0bf90d-8c51-4c3b-9ad1-4a3d5b7d9b5e"


@pytest.fixture
async def public(side: Side) -> Json:
    """An external network of the admin's with four addresses besides a router's."""
    return await side.network("203.0.113.0/29", owner=side.admin, **{"router:external": True})


@pytest.fixture
async def vip(side: Side, public: Json) -> AsyncIterator[Json]:
    """A port in a network of the cluster's project, from which a router leads outside."""
    inside = await side.network("10.215.0.0/24")
    gateway = {"network_id": public["id"]}
    router = await side.kuryr.create("router", name=side.mark, external_gateway_info=gateway)
    path, interface = f"/routers/{router['id']}", {"subnet_id": inside["subnets"][0]}
    assert (await side.kuryr.put(f"{path}/add_router_interface", interface)).status == 200
    yield await side.kuryr.create("port", network_id=inside["id"], name=side.mark)
    for left in (await side.admin.get(PATH, floating_network_id=public["id"])).body["floatingips"]:
        await side.admin.delete(f"{PATH}/{left['id']}")
    assert (await side.kuryr.put(f"{path}/remove_router_interface", interface)).status == 200


@pytest.fixture
async def transport(side: Side) -> AsyncIterator[Transport]:
    transport = Transport(ServiceAdapter(side.kuryr.connection, "network"), limit=2)
    yield transport
    transport.close()


@pytest.fixture
def client(transport: Transport) -> FloatingIPs:
    return FloatingIPs(transport)


@pytest.fixture
def start(
    side: Side, transport: Transport, public: Json, tmp_path: Path
) -> Callable[[], NeutronFloatingIP]:
    """A new life of the driver."""
    path = tmp_path / "kuryr.conf"
    path.write_text(
        f"[neutron_defaults]\nresource_tags = {side.mark}\nexternal_svc_net = {public['id']}\n"
        f"project = {side.kuryr.project_id}\n"
    )
    conf = config.load(["--config-file", str(path)], "test")
    neutron = Client(transport, ClusterMark(side.mark))
    context = driver_context(conf, neutron)
    return lambda: NeutronFloatingIP(context)


async def add(user: Neutron, network: Json, **attributes: Any) -> Reply:
    body = {"floating_network_id": network["id"], **attributes}
    return await user.post(PATH, {"floatingip": body})


async def make(user: Neutron, network: Json, **attributes: Any) -> Json:
    reply = await add(user, network, **attributes)
    assert reply.status == 201, reply.body
    found: Json = reply.body["floatingip"]
    return found


def refusal(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.error["type"]


def address_of(port: Json) -> str:
    address: str = port["fixed_ips"][0]["ip_address"]
    return address


async def test_tags_are_refused_at_the_creation_so_the_description_must_tell(
    side: Side, public: Json
) -> None:
    refused = await add(side.kuryr, public, tags=[side.mark])
    assert refusal(refused) == (400, "HTTPBadRequest")
    assert "tags" in refused.error["message"]
    made = await make(side.kuryr, public, description=f"kuryr-service:x {side.mark}")
    await make(side.kuryr, public, description=f"kuryr-service:y {side.mark}")
    both = await side.kuryr.get(
        PATH, description=[f"kuryr-service:{name} {side.mark}" for name in ("x", "y")]
    )
    assert len(both.body["floatingips"]) == 2
    query = {"description": f"kuryr-service:x {side.mark}"}
    [found] = (await side.kuryr.get(PATH, **query)).body["floatingips"]
    assert (found["id"], found["tags"]) == (made["id"], [])


async def test_life_by_our_client(
    side: Side, public: Json, vip: Json, client: FloatingIPs
) -> None:
    leads = {"port_id": vip["id"], "fixed_ip_address": address_of(vip)}
    body = {"floating_network_id": public["id"], "project_id": side.kuryr.project_id}
    made = await client.create({**body, **leads, "description": side.mark})
    assert (made.port_id, made.fixed_ip_address) == (vip["id"], address_of(vip))
    assert (made.description, made.tags, made.forwards) == (side.mark, (), False)
    await client.set_tags(made.id, [side.mark, "b", "a"])
    [found] = await client.list_all({"tags": f"{side.mark},a"})
    assert found.tags == tuple(sorted([side.mark, "b", "a"]))
    assert found in await client.list_all({})
    assert [found] == await client.list_all(
        {"floating_ip_address": made.address, "floating_network_id": public["id"]}
    )
    freed = await client.update(made.id, {"port_id": None, "description": ""})
    assert (freed.port_id, freed.fixed_ip_address, freed.description) == (None, None, "")
    assert (freed.address, freed.tags) == (made.address, found.tags)
    back = await client.update(made.id, leads)
    assert (back.port_id, back.fixed_ip_address) == (vip["id"], address_of(vip))
    await client.delete(made.id)
    await client.delete(made.id)
    assert await client.list_all({"tags": side.mark}) == []


async def test_network_and_subnets_by_our_client(
    side: Side, public: Json, client: FloatingIPs
) -> None:
    await side.subnet(public["id"], "2001:db8:113::/64")
    [subnet] = await client.subnets_of(public["id"])
    assert (subnet.name, subnet.cidr, subnet.tags) == (side.mark, "203.0.113.0/29", ())
    await side.admin.put(f"/subnets/{subnet.id}/tags", {"tags": ["gold"]})
    assert (await client.get_subnet(subnet.id)).tags == ("gold",)
    inside = await side.network("10.216.0.0/24")
    assert await client.is_external(public["id"])
    assert not await client.is_external(inside["id"])
    with pytest.raises(errors.NotFound):
        await client.is_external(NOBODY)
    with pytest.raises(errors.NotFound):
        await client.get_subnet(NOBODY)


async def test_it_outlives_the_port_that_it_leads_to(
    side: Side, public: Json, vip: Json, client: FloatingIPs
) -> None:
    made = await make(side.kuryr, public, port_id=vip["id"])
    assert (await side.kuryr.delete(f"/ports/{vip['id']}")).status == 204
    [found] = await client.list_all({"id": made["id"]})
    assert (found.port_id, found.fixed_ip_address) == (None, None)
    assert found.address == made["floating_ip_address"]


async def test_a_port_has_one_of_a_network(side: Side, public: Json, vip: Json) -> None:
    await make(side.kuryr, public, port_id=vip["id"])
    taken = (409, floating_ips.PORT_HAS_ONE)
    assert refusal(await add(side.kuryr, public, port_id=vip["id"])) == taken
    other = await make(side.kuryr, public)
    body = {"floatingip": {"port_id": vip["id"], "fixed_ip_address": address_of(vip)}}
    assert refusal(await side.kuryr.put(f"{PATH}/{other['id']}", body)) == taken


async def test_what_it_leads_to_must_be_reached_by_a_router_and_be_there(
    side: Side, public: Json
) -> None:
    inside = await side.network("10.217.0.0/24")
    port = await side.kuryr.create("port", network_id=inside["id"])
    refused = await add(side.kuryr, public, port_id=port["id"])
    assert refusal(refused) == (404, floating_ips.NO_ROUTER)
    made = await make(side.kuryr, public)
    path, body = f"{PATH}/{made['id']}", {"floatingip": {"port_id": port["id"]}}
    assert refusal(await side.kuryr.put(path, body)) == (404, floating_ips.NO_ROUTER)
    nobodys = {"floatingip": {"port_id": NOBODY}}
    assert refusal(await side.kuryr.put(path, nobodys)) == (404, "PortNotFound")
    listed = (await side.kuryr.get(PATH, floating_network_id=public["id"])).body["floatingips"]
    assert [floating_ip["id"] for floating_ip in listed] == [made["id"]]


async def test_an_address_is_chosen_by_administrators(side: Side, public: Json) -> None:
    refused = await add(side.kuryr, public, floating_ip_address="203.0.113.4")
    assert refusal(refused) == (403, "PolicyNotAuthorized")
    ours = {"floating_ip_address": "203.0.113.4", "project_id": side.kuryr.project_id}
    await make(side.admin, public, **ours)
    again = await add(side.admin, public, **ours)
    assert refusal(again) == (409, floating_ips.ADDRESS_TAKEN)
    elsewhere = await add(side.admin, public, floating_ip_address="192.0.2.7")
    assert refusal(elsewhere) == (400, "InvalidIpForNetwork")


async def test_exhausted_network_or_subnet_is_told_as_a_quota(
    side: Side, public: Json, client: FloatingIPs
) -> None:
    whole = {"floating_network_id": public["id"]}
    small = await side.subnet(
        public["id"],
        "198.51.100.0/29",
        allocation_pools=[{"start": "198.51.100.5", "end": "198.51.100.5"}],
    )
    part = {**whole, "subnet_id": small["id"]}
    made = [await client.create(part)]
    assert made[0].address == "198.51.100.5"
    with pytest.raises(errors.OverQuota) as told:
        await client.create(part)
    assert told.value.kind != floating_ips.QUOTA
    made += [await client.create(whole) for _ in range(5)]
    with pytest.raises(errors.OverQuota) as told:
        await client.create(whole)
    assert told.value.kind != floating_ips.QUOTA
    for floating_ip in made:
        await client.delete(floating_ip.id)


async def test_quota(side: Side, public: Json, client: FloatingIPs) -> None:
    project = uuid.uuid4().hex if side.fake is None else side.kuryr.project_id
    path = f"/quotas/{project}"
    assert (await side.admin.put(path, {"quota": {"floatingip": 0}})).status == 200
    refused = await add(side.admin, public, project_id=project)
    assert refusal(refused) == (409, floating_ips.QUOTA)
    await side.admin.delete(path)


async def test_networks_of_which_there_are_none(side: Side, public: Json) -> None:
    inside = await side.network("10.218.0.0/24")
    refused = await add(side.kuryr, inside)
    assert refusal(refused) == (400, "BadRequest")
    assert "not a valid external network" in refused.error["message"]
    nobodys = await add(side.kuryr, {"id": NOBODY})
    assert refusal(nobodys) == (404, floating_ips.NO_NETWORK)


async def test_those_of_other_projects_are_not_to_be_seen(side: Side, public: Json) -> None:
    theirs = await make(side.stranger, public)
    query = {"floating_ip_address": theirs["floating_ip_address"]}
    assert (await side.kuryr.get(PATH, **query)).body["floatingips"] == []
    for reply in (
        await side.kuryr.get(f"{PATH}/{theirs['id']}"),
        await side.kuryr.put(f"{PATH}/{theirs['id']}", {"floatingip": {"port_id": None}}),
        await side.kuryr.delete(f"{PATH}/{theirs['id']}"),
    ):
        assert reply.status == 404


async def test_what_is_gone_is_told_so(side: Side, public: Json, client: FloatingIPs) -> None:
    with pytest.raises(errors.NotFound) as told:
        await client.update(NOBODY, {"port_id": None})
    assert told.value.kind == floating_ips.GONE
    with pytest.raises(errors.CloudError) as broken:
        await client.set_tags(NOBODY, ["a"])
    assert broken.value.status == 500
    await client.delete(NOBODY)


async def test_life_of_the_driver(
    side: Side, public: Json, vip: Json, start: Callable[[], NeutronFloatingIP]
) -> None:
    def wanted(**changes: Any) -> PublicIPRequest:
        values: Json = {
            "owner": Owner(NOBODY),
            "namespace": "default",
            "name": "web",
            "project_id": side.kuryr.project_id,
            "port_id": vip["id"],
            "vip_address": address_of(vip),
        }
        return PublicIPRequest(**(values | changes))

    async def shown() -> list[Json]:
        query = {"floating_network_id": public["id"]}
        found: list[Json] = (await side.kuryr.get(PATH, **query)).body["floatingips"]
        return found

    await start().start()
    address = await start().ensure(wanted())
    [made] = await shown()
    assert (made["floating_ip_address"], made["port_id"]) == (address, vip["id"])
    assert {f"kuryr-service:{NOBODY}", side.mark} <= set(made["tags"])
    clusters = frozenset({side.mark})
    assert await start().list_owned() == [Owned(Owner(NOBODY), "default", made["id"], clusters)]
    await side.kuryr.put(f"{PATH}/{made['id']}", {"floatingip": {"port_id": None}})
    assert await start().ensure(wanted()) == address
    [made] = await shown()
    assert made["port_id"] == vip["id"]
    await start().release(Owner(NOBODY), keep=True)
    [made] = await shown()
    assert (made["port_id"], made["tags"], made["description"]) == (None, [], "")

    assert await start().ensure(wanted(address=address)) == address
    with pytest.raises(PublicIPInUse):
        await start().ensure(wanted(owner=Owner(NOBODY, Role.EXTERNAL), address=address))
    another = next(
        candidate for candidate in ("203.0.113.5", "203.0.113.6") if candidate != address
    )
    with pytest.raises(NotPermitted):
        await start().ensure(wanted(address=another))
    await start().release(Owner(NOBODY), keep=False)
    [made] = await shown()
    assert (made["port_id"], made["tags"]) == (None, [])

    await start().ensure(wanted())
    await start().release(Owner(NOBODY), keep=False)
    assert [other["id"] for other in await shown()] == [made["id"]]
