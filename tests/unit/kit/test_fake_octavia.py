"""What tests dial in the fake Octavia; that it is like a real one is for the contract tests."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import AsyncIterator
from typing import Any

import openstack
import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.connect import ServiceAdapter
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.cloud.transport import Transport
from kuryr_k8s.drivers.lbaas.vip_ports import load_balancer_of
from kuryr_k8s.model.load_balancer import Member
from tests.kit.fakes import FakeCloud, answer, from_proxy, lose_reply
from tests.kit.fakes.octavia.kinds import POOL

Json = dict[str, Any]
MEMBER = Member(address="10.2.0.101", port=80)

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    async with FakeCloud() as cloud:
        yield cloud


@pytest.fixture
async def client(cloud: FakeCloud) -> AsyncIterator[Octavia]:
    connection = openstack.connect(**cloud.connect_options())
    transport = Transport(ServiceAdapter(connection, "load_balancer"), limit=4)
    yield Octavia(transport)
    transport.close()
    connection.close()


@pytest.fixture
def body(cloud: FakeCloud) -> Json:
    network = cloud.add_network("services", "10.2.0.0/24")
    members = [{"address": "10.2.0.100", "protocol_port": 80}]
    pool = {"name": "one", "protocol": "TCP", "lb_algorithm": "SOURCE_IP_PORT"}
    listener = {"name": "one", "protocol": "TCP", "protocol_port": 80}
    return {
        "name": "web",
        "project_id": cloud.project_id,
        "vip_subnet_id": network["subnets"][0],
        "provider": "ovn",
        "tags": ["b", "a"],
        "listeners": [listener | {"default_pool": pool | {"members": members}}],
    }


async def test_without_a_dialled_time_everything_is_done_when_the_answer_is_there(
    client: Octavia, body: Json
) -> None:
    made = await client.create_load_balancer(body)
    assert made.statuses() == {"PENDING_CREATE"}
    assert (await client.read(made.id)).statuses() == {"ACTIVE"}
    await client.delete_load_balancer(made.id)
    with pytest.raises(errors.NotFound):
        await client.read(made.id)


async def test_with_ovn_the_load_balancer_is_active_before_its_parts(
    cloud: FakeCloud, client: Octavia, body: Json
) -> None:
    seen: set[tuple[str, str]] = set()

    def look() -> bool:
        """At each change: whoever asks in between may come too late for what is between them."""
        rows, pools = cloud.load_balancers.values(), cloud.octavia.store.of(POOL).values()
        now = [(a["provisioning_status"], b["provisioning_status"]) for a in rows for b in pools]
        seen.update(now)
        return now == [("ACTIVE", "ACTIVE")]

    cloud.octavia_pending = 0.1
    async with asyncio.TaskGroup() as group:
        group.create_task(cloud.wait_for(look))
        made = await client.create_load_balancer(body)
    assert ("ACTIVE", "PENDING_CREATE") in seen
    await client.set_members(made.pools[0].id, [MEMBER])


async def test_parts_that_are_pending_hold_up_their_own_changes(
    cloud: FakeCloud, client: Octavia, body: Json
) -> None:
    cloud.octavia_pending = math.inf
    made = await client.create_load_balancer(body)
    cloud.octavia.store.set_status(cloud.load_balancers[made.id], "ACTIVE")
    assert (await client.status_tree(made.id)).statuses == {"ACTIVE", "PENDING_CREATE"}
    with pytest.raises(errors.Immutable, match="Pool"):
        await client.set_members(made.pools[0].id, [MEMBER])
    cloud.octavia.progress.finish(made.id)
    await client.set_members(made.pools[0].id, [MEMBER])


async def test_with_amphora_all_is_active_at_once(
    cloud: FakeCloud, client: Octavia, body: Json
) -> None:
    cloud.octavia_pending = 0.05
    made = await client.create_load_balancer(body | {"provider": "amphora"})
    row = cloud.load_balancers[made.id]
    await cloud.wait_for(lambda: row["provisioning_status"] == "ACTIVE")
    await client.set_members(made.pools[0].id, [MEMBER])


async def test_pending_may_last_until_it_is_ended(
    cloud: FakeCloud, client: Octavia, body: Json
) -> None:
    cloud.octavia_pending = math.inf
    made = await client.create_load_balancer(body)
    with pytest.raises(errors.Immutable):
        await client.delete_load_balancer(made.id)
    cloud.octavia.progress.finish(made.id)
    await client.delete_load_balancer(made.id)
    assert await client.statuses({}) == {made.id: "PENDING_DELETE"}
    cloud.octavia.progress.finish(made.id)
    assert await client.statuses({}) == {}
    assert cloud.ports == {}


async def test_a_load_balancer_in_error_is_only_to_be_deleted(
    cloud: FakeCloud, client: Octavia, body: Json
) -> None:
    made = await client.create_load_balancer(body)
    cloud.octavia.set_error(made.id)
    with pytest.raises(errors.Immutable):
        await client.set_members(made.pools[0].id, [MEMBER])
    await client.delete_load_balancer(made.id)
    assert cloud.load_balancers == {}


async def test_a_pool_in_error_takes_no_members_but_may_go(
    cloud: FakeCloud, client: Octavia, body: Json
) -> None:
    made = await client.create_load_balancer(body)
    cloud.octavia.set_error(made.pools[0].id)
    with pytest.raises(errors.Immutable):
        await client.set_members(made.pools[0].id, [MEMBER])
    await client.delete_pool(made.pools[0].id)
    assert (await client.read(made.id)).pools == ()


async def test_the_status_of_every_part_is_told_by_one_call(
    cloud: FakeCloud, client: Octavia, body: Json
) -> None:
    for kind in ("listener", "pool", "member"):
        made = await client.create_load_balancer(body)
        part = {
            "listener": made.listeners[0].id,
            "pool": made.pools[0].id,
            "member": cloud.octavia.store.members(made.pools[0].id)[0]["id"],
        }[kind]
        cloud.octavia.set_error(part)
        assert (await client.status_tree(made.id)).statuses == {"ACTIVE", "ERROR"}
        assert (await client.read(made.id)).statuses() == {"ACTIVE", "ERROR"}


async def test_what_vanishes_by_hand_is_gone_with_what_is_in_it(
    cloud: FakeCloud, client: Octavia, body: Json
) -> None:
    made = await client.create_load_balancer(body)
    cloud.octavia.remove(made.pools[0].id)
    found = await client.read(made.id)
    assert (found.pools, found.listeners[0].pool_id) == ((), None)
    cloud.octavia.remove(made.id)
    assert (cloud.load_balancers, cloud.ports) == ({}, {})


async def test_two_load_balancers_of_the_same_kind_have_the_same_tree(
    cloud: FakeCloud, client: Octavia, body: Json
) -> None:
    trees = []
    for _ in range(2):
        made = await client.create_load_balancer(body | {"vip_address": "10.2.0.9"})
        trees.append(cloud.octavia.tree(made.id))
        await client.delete_load_balancer(made.id)
    assert trees[0] == trees[1]
    assert trees[0]["tags"] == ["a", "b"]
    assert trees[0]["listeners"][0]["pool"]["members"][0]["address"] == "10.2.0.100"


async def test_faults_are_as_those_of_neutron(
    cloud: FakeCloud, client: Octavia, body: Json
) -> None:
    cloud.faults.add(method="POST", path="/lbaas/", action=answer(503))
    with pytest.raises(errors.CloudError, match="Project busy") as caught:
        await client.create_load_balancer(body)
    assert caught.value.status == 503
    cloud.faults.add(method="POST", path="/lbaas/", action=answer(403))
    with pytest.raises(errors.BadRequest):
        await client.create_load_balancer(body)
    cloud.octavia.set_quota(cloud.project_id, loadbalancer=0)
    with pytest.raises(errors.OverQuota):
        await client.create_load_balancer(body)
    cloud.octavia.set_quota(cloud.project_id, loadbalancer=-1)
    cloud.faults.add(method="POST", path="/lbaas/", action=lose_reply())
    with pytest.raises(errors.CloudError):
        await client.create_load_balancer(body)
    assert len(cloud.load_balancers) == 1


async def test_what_a_provider_cannot_do_is_a_refusal(client: Octavia, body: Json) -> None:
    body["listeners"][0]["default_pool"]["lb_algorithm"] = "ROUND_ROBIN"
    with pytest.raises(errors.Refused, match="does not support ROUND_ROBIN") as caught:
        await client.create_load_balancer(body)
    assert isinstance(caught.value, errors.CloudError)
    assert caught.value.status == 501


@pytest.mark.parametrize(("provider", "ports"), [("ovn", 2), ("amphora", 1)])
async def test_additional_vips_have_ports_of_their_own_with_ovn_alone_and_all_go(
    cloud: FakeCloud, client: Octavia, body: Json, provider: str, ports: int
) -> None:
    network_id = cloud.subnets[body["vip_subnet_id"]]["network_id"]
    second = cloud.add_subnet(network_id, "10.4.0.0/24")["id"]
    del body["listeners"]
    further = {"provider": provider, "additional_vips": [{"subnet_id": second}]}
    made = await client.create_load_balancer(body | further)
    first, other = (await client.read(made.id)).vips()
    assert (first.startswith("10.2.0."), other.startswith("10.4.0.")) == (True, True)
    assert [load_balancer_of(port) for port in cloud.ports.values()] == [made.id] * ports
    twice = {"additional_vips": [{"subnet_id": body["vip_subnet_id"]}]}
    with pytest.raises(errors.BadRequest, match="Duplicate VIP subnet"):
        await client.create_load_balancer(body | twice)
    await client.delete_load_balancer(made.id)
    assert not cloud.ports


async def test_an_older_octavia_has_fewer_versions(cloud: FakeCloud, client: Octavia) -> None:
    cloud.octavia.newest = 11
    versions = await client.microversions()
    assert (2, 11) in versions
    assert (2, 12) not in versions


async def test_long_lists_are_read_to_their_end(client: Octavia, body: Json) -> None:
    made = await client.create_load_balancer(body)
    members = [
        Member(address=f"10.2.0.{1 + number % 250}", port=80 + number) for number in range(1100)
    ]
    await client.set_members(made.pools[0].id, members)
    found = await client.read(made.id)
    assert {member.key for member in found.pools[0].pool.members} == {
        member.key for member in members
    }


async def test_a_list_whose_marker_is_gone_is_no_refusal(
    cloud: FakeCloud, client: Octavia, body: Json
) -> None:
    made = await client.create_load_balancer(body)
    members = [Member(address="10.2.0.7", port=1 + number) for number in range(600)]
    await client.set_members(made.pools[0].id, members)
    path = "/members$"
    cloud.faults.add(
        path=path,
        action=answer(400, message="Supplied pagination marker is not valid."),
        when=lambda request: "marker" in request.query,
    )
    with pytest.raises(errors.CloudError) as caught:
        await client.read(made.id)
    assert not isinstance(caught.value, errors.Refused)


async def test_a_cloud_without_octavia_is_not_taken_for_a_load_balancer_that_is_gone(
    cloud: FakeCloud, client: Octavia
) -> None:
    del cloud.keystone.endpoints["load-balancer"]
    with pytest.raises(errors.CloudError, match="load-balancer") as caught:
        await client.read("lb")
    assert not isinstance(caught.value, errors.NotFound)


async def test_a_token_that_has_expired_is_replaced(
    cloud: FakeCloud, client: Octavia, body: Json
) -> None:
    made = await client.create_load_balancer(body)
    cloud.expire_tokens()
    assert (await client.read(made.id)).id == made.id


async def test_latency_is_that_of_the_method(
    cloud: FakeCloud, client: Octavia, body: Json
) -> None:
    await client.create_load_balancer(body)
    cloud.latency = {"GET": 0.1}
    started = asyncio.get_running_loop().time()
    await client.statuses({})
    assert asyncio.get_running_loop().time() - started >= 0.1


async def test_one_member_is_made_beside_the_others(
    cloud: FakeCloud, client: Octavia, body: Json
) -> None:
    made = await client.create_load_balancer(body)
    url = f"{cloud.url}/load-balancer/v2.0/lbaas/pools/{made.pools[0].id}/members"
    connection = openstack.connect(**cloud.connect_options())
    more = {"member": {"address": "10.2.0.101", "protocol_port": 80}}
    post = functools.partial(connection.session.post, url, json=more, raise_exc=False)
    assert (await asyncio.to_thread(post)).status_code == 201
    assert (await asyncio.to_thread(post)).status_code == 409
    connection.close()
    (pool,) = (await client.read(made.id)).pools
    assert {member.address for member in pool.pool.members} == {"10.2.0.100", "10.2.0.101"}


async def test_404_of_octavia_makes_a_part_gone_and_404_of_a_proxy_does_not(
    client: Octavia, cloud: FakeCloud, body: Json
) -> None:
    made = await client.create_load_balancer(body)
    unknown = "1b0bf90d-8c51-4c3b-9ad1-4a3d5b7d9b5e"
    with pytest.raises(errors.NotFound, match=f"^Pool {unknown} not found"):
        await client.set_members(unknown, [MEMBER])  # which is the framework's
    with pytest.raises(errors.NotFound):
        await client.read(unknown)
    cloud.faults.add(path="/lbaas/", times=None, action=from_proxy(404))
    for call in (client.read, client.delete_load_balancer, client.status_tree):
        with pytest.raises(errors.CloudError) as told:
            await call(made.id)
        assert not isinstance(told.value, errors.NotFound)
    cloud.faults.clear()
    assert made.id in cloud.load_balancers
