"""The life of load balancers, with either provider; partly through our client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia import bodies as octavia_bodies
from kuryr_k8s.cloud.octavia.api import Octavia as Client
from kuryr_k8s.model.load_balancer import Listener, LoadBalancer, Member, Pool

from .balancers import (
    ALGORITHMS,
    ANY_PROVIDER,
    BALANCERS,
    LISTENERS,
    POOLS,
    Octavia,
    bare,
    populated,
    statuses,
    vip_ports,
)
from .sides import Reply, Side

Json = dict[str, Any]


def wanted(side: Side, subnet_id: str, provider: str) -> LoadBalancer:
    """Two ports of the same number, one without endpoints."""
    members = tuple(
        Member(address=f"10.219.0.{number}", port=8080, name=f"pod-{number}", subnet_id=subnet_id)
        for number in (101, 102)
    )
    algorithm = ALGORITHMS[provider]
    return LoadBalancer(
        name=side.mark,
        project_id=side.kuryr.project_id,
        vip_subnet_id=subnet_id,
        vip_address="10.219.0.20",
        provider=provider,
        tags=("one", side.mark),
        listeners=(
            Listener(name="tcp", protocol="TCP", port=80, pool="tcp", timeout_client_data=20000),
            Listener(name="udp", protocol="UDP", port=80, pool="udp"),
        ),
        pools=(
            Pool(name="tcp", protocol="TCP", lb_algorithm=algorithm, members=members),
            Pool(
                name="udp",
                protocol="UDP",
                lb_algorithm=algorithm,
                persistence="SOURCE_IP",
                persistence_timeout=60,
            ),
        ),
    )


async def test_one_call_makes_everything_and_answers_with_it(
    side: Side, octavia: Octavia, subnet: str, client: Client, provider: str
) -> None:
    desired = wanted(side, subnet, provider)
    for _ in range(side.tries):
        made = await client.create_load_balancer(octavia_bodies.create_body(desired))
        octavia.made.append(f"{BALANCERS}/{made.id}")
        assert statuses(await octavia.settled(made.id)) == {"ACTIVE"}
        if made.statuses() == {"PENDING_CREATE"}:  # it answers with what it then reads
            break
        await client.delete_load_balancer(made.id)
        await octavia.gone(made.id)
    assert made.statuses() == {"PENDING_CREATE"}
    assert (await client.status_tree(made.id)).statuses == {"ACTIVE"}
    found = await client.read(made.id)
    for balancer in (made, found):
        assert (balancer.name, balancer.provider) == (desired.name, provider)
        assert balancer.vip_address == desired.vip_address
        assert sorted(balancer.tags) == sorted(desired.tags)
        pools = {pool.pool.name: pool for pool in balancer.pools}
        tcp, udp = pools["tcp"].pool, pools["udp"].pool
        assert sorted(tcp.members, key=lambda member: member.key) == list(desired.pools[0].members)
        assert udp == desired.pools[1]
        listeners = {listener.listener.protocol: listener for listener in balancer.listeners}
        assert listeners["TCP"].listener.pool == "tcp"
        assert listeners["TCP"].listener.timeout_client_data == 20000
        assert listeners["UDP"].listener.timeout_client_data == 50000
        assert listeners["UDP"].pool_id == pools["udp"].id
    assert not found.is_pending()
    [port] = await vip_ports(side)
    assert port["id"] == found.vip_port_id
    assert port["device_id"] == f"lb-{made.id}"
    assert port["name"] == ("ovn-lb-vip-" if provider == "ovn" else "octavia-lb-") + made.id
    assert port["fixed_ips"] == [{"subnet_id": subnet, "ip_address": desired.vip_address}]
    assert port["project_id"] == side.kuryr.project_id


@ANY_PROVIDER
async def test_nothing_is_changed_while_anything_is_pending(
    side: Side, octavia: Octavia, subnet: str, provider: str
) -> None:
    for _ in range(side.tries):  # on a busy machine ovn may be done before all are asked
        with side.held():
            reply = await octavia.post(BALANCERS, {"loadbalancer": populated(subnet, provider)})
            made = reply.body["loadbalancer"]
            replies = await _changes_at_once(octavia, made)
        if all(reply.status == 409 for reply in replies):
            break
        if replies[1].status == 204:
            await octavia.gone(made["id"])
    state = f"Invalid state PENDING_CREATE of loadbalancer resource {made['id']}"
    immutable = f"Load Balancer {made['id']} is immutable and cannot be updated."
    of_pool = f"Pool {made['pools'][0]['id']} is immutable and cannot be updated."
    texts = [state, state, immutable, immutable, of_pool]
    assert [reply.fault for reply in replies] == [(409, text) for text in texts]
    assert statuses(await octavia.settled(made["id"])) == {"ACTIVE"}


async def _changes_at_once(octavia: Octavia, made: Json) -> list[Reply]:
    """What they were answered: of the load balancer, its deletion, a listener, pool, members."""
    path, pool = f"{BALANCERS}/{made['id']}", f"{POOLS}/{made['pools'][0]['id']}"
    listener = {"loadbalancer_id": made["id"], "protocol": "TCP", "protocol_port": 81}
    async with asyncio.TaskGroup() as group:
        replies = [
            group.create_task(octavia.put(path, {"loadbalancer": {"name": "x"}})),
            group.create_task(octavia.delete(f"{path}?cascade=true")),
            group.create_task(octavia.post(LISTENERS, {"listener": listener})),
            group.create_task(octavia.put(pool, {"pool": {"name": "x"}})),
            group.create_task(octavia.put(f"{pool}/members", {"members": []})),
        ]
    return [task.result() for task in replies]


async def test_a_batch_of_members_replaces_or_adds(
    side: Side, octavia: Octavia, subnet: str, client: Client, provider: str
) -> None:
    made = await octavia.make(populated(subnet, provider))
    [pool] = made["pools"]
    ids = {entry["address"]: entry["id"] for entry in pool["members"]}

    async def members(*addresses: str) -> dict[str, int]:
        await octavia.until_members(pool["id"], *addresses)
        await octavia.settled(made["id"])
        found = await client.read(made["id"])
        assert found.statuses() == {"ACTIVE"}
        return {entry.address: entry.weight for entry in found.pools[0].pool.members}

    def member(number: int, weight: int = 1) -> Member:
        return Member(
            address=f"10.219.0.{number}", port=8080, weight=weight, name="n", subnet_id=subnet
        )

    second, third, fourth = (f"10.219.0.{number}" for number in (102, 103, 104))
    for _ in range(side.tries):  # it may be done before it is looked at
        with side.held():
            await client.set_members(pool["id"], [member(102, weight=0), member(103)])
            begun = (await client.status_tree(made["id"])).statuses
        assert await members(second, third) == {second: 0, third: 1}
        if "PENDING_UPDATE" in begun:
            break
    assert "PENDING_UPDATE" in begun
    await client.set_members(pool["id"], [member(104)], additive=True)
    assert await members(second, third, fourth) == {second: 0, third: 1, fourth: 1}
    reply = await octavia.get(f"{POOLS}/{pool['id']}/members", address=second)
    assert [entry["id"] for entry in reply.body["members"]] == [ids[second]]
    await client.set_members(pool["id"], [])
    assert await members() == {}
    await client.set_members(pool["id"], [])
    assert (await client.status_tree(made["id"])).statuses == {"ACTIVE"}


@ANY_PROVIDER
async def test_piece_by_piece_a_listener_comes_before_its_pool(
    octavia: Octavia, subnet: str, client: Client, provider: str
) -> None:
    balancer_id = (await octavia.make(bare(subnet, provider)))["id"]
    listener = Listener(name="one", protocol="TCP", port=80, pool="one")
    pool = Pool(name="one", protocol="TCP", lb_algorithm=ALGORITHMS[provider])
    listener_id = await client.create_listener(octavia_bodies.listener_body(listener, balancer_id))
    await octavia.settled(balancer_id)
    pool_id = await client.create_pool(octavia_bodies.pool_body(pool, listener_id=listener_id))
    await octavia.settled(balancer_id)
    found = await client.read(balancer_id)
    assert found.listeners[0].pool_id == pool_id
    assert found.listeners[0].listener.pool == "one"
    await client.delete_pool(pool_id)
    await octavia.settled(balancer_id)
    found = await client.read(balancer_id)
    assert (found.listeners[0].pool_id, found.pools) == (None, ())
    body = octavia_bodies.pool_body(pool, load_balancer_id=balancer_id)
    pool_id = await client.create_pool(body)
    await octavia.settled(balancer_id)
    await client.update_listener(listener_id, octavia_bodies.listener_changes(listener, pool_id))
    await octavia.settled(balancer_id)
    assert (await client.read(balancer_id)).listeners[0].pool_id == pool_id
    await client.delete_listener(listener_id)
    await octavia.settled(balancer_id)
    found = await client.read(balancer_id)
    assert found.listeners == ()
    assert [pool.id for pool in found.pools] == [pool_id]
    await client.delete_pool(NOBODY)
    await client.delete_listener(NOBODY)
    await client.delete_load_balancer(NOBODY)


async def test_what_may_be_changed_is(
    octavia: Octavia, subnet: str, client: Client, provider: str
) -> None:
    made = await octavia.make(populated(subnet, provider))
    balancer_id = made["id"]
    changed = {"loadbalancer": {"name": "new", "tags": ["a", "b"]}}
    reply = await octavia.put(f"{BALANCERS}/{balancer_id}", changed)
    await octavia.change(balancer_id, reply)
    cidrs = ("10.0.0.0/8", "192.0.2.0/24") if provider == "amphora" else ()
    listener = Listener(
        name="new", protocol="TCP", port=80, pool="new", timeout_member_data=1, allowed_cidrs=cidrs
    )
    changes = octavia_bodies.listener_changes(listener)
    await client.update_listener(made["listeners"][0]["id"], changes)
    await octavia.settled(balancer_id)
    pool = Pool(name="new", protocol="TCP", lb_algorithm="SOURCE_IP", persistence="SOURCE_IP")
    await client.update_pool(made["pools"][0]["id"], octavia_bodies.pool_changes(pool))
    await octavia.settled(balancer_id)
    found = await client.read(balancer_id)
    assert (found.name, sorted(found.tags)) == ("new", ["a", "b"])
    shown = found.listeners[0].listener
    assert (shown.name, shown.timeout_member_data) == ("new", 1)
    assert shown.allowed_cidrs == cidrs
    shown_pool = found.pools[0].pool
    assert (shown_pool.lb_algorithm, shown_pool.persistence) == ("SOURCE_IP", "SOURCE_IP")
    listener = Listener(name="new", protocol="TCP", port=80, pool="new")
    changes = octavia_bodies.listener_changes(listener)
    await client.update_listener(made["listeners"][0]["id"], changes)
    await octavia.settled(balancer_id)
    pool = Pool(name="new", protocol="TCP", lb_algorithm="SOURCE_IP")
    await client.update_pool(made["pools"][0]["id"], octavia_bodies.pool_changes(pool))
    await octavia.settled(balancer_id)
    found = await client.read(balancer_id)
    assert found.listeners[0].listener.allowed_cidrs == ()
    assert found.listeners[0].listener.timeout_member_data == 50000  # Octavia's own again
    assert found.pools[0].pool.persistence is None


async def test_a_cascade_takes_everything_and_the_port(
    side: Side, octavia: Octavia, subnet: str, client: Client, provider: str
) -> None:
    made = await octavia.make(populated(subnet, provider))
    reply = await octavia.delete(f"{BALANCERS}/{made['id']}")
    text = f"Validation failure: Cannot delete Load Balancer {made['id']} - it has children"
    assert reply.fault == (400, text)
    await client.delete_load_balancer(made["id"])
    await octavia.gone(made["id"])
    with pytest.raises(errors.NotFound):
        await client.read(made["id"])
    with pytest.raises(errors.NotFound):
        await client.status_tree(made["id"])
    for path in (LISTENERS, POOLS):
        reply = await octavia.get(path, loadbalancer_id=made["id"])
        assert reply.body[path.rpartition("/")[2]] == []
    assert (await octavia.get(f"{POOLS}/{made['pools'][0]['id']}")).status == 404
    assert await vip_ports(side) == []


async def test_a_load_balancer_whose_port_is_gone_is_deleted_all_the_same(
    side: Side, octavia: Octavia, subnet: str, provider: str
) -> None:
    made = await octavia.make(populated(subnet, provider))
    assert (await side.kuryr.delete(f"/ports/{made['vip_port_id']}")).status == 204
    found = (await octavia.get(f"{BALANCERS}/{made['id']}")).body["loadbalancer"]
    assert found["provisioning_status"] == "ACTIVE"
    assert (await octavia.delete(f"{BALANCERS}/{made['id']}?cascade=true")).status == 204
    await octavia.gone(made["id"])


@ANY_PROVIDER
async def test_a_member_is_deleted_by_hand(octavia: Octavia, subnet: str, provider: str) -> None:
    made = await octavia.make(populated(subnet, provider))
    [pool] = made["pools"]
    path = f"{POOLS}/{pool['id']}/members"
    await octavia.change(made["id"], await octavia.delete(f"{path}/{pool['members'][0]['id']}"))
    left = (await octavia.get(path)).body["members"]
    assert [member["id"] for member in left] == [pool["members"][1]["id"]]


NOBODY = "1b0bf90d-8c51-4c3b-9ad1-4a3d5b7d9b5e"
