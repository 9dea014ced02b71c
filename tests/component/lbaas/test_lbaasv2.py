"""The driver lbaasv2 against the fake Octavia: what stands there afterwards, and for how many
calls."""

import asyncio
import dataclasses
import math

import pytest
from aiohttp import web

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.drivers.base import Owned
from kuryr_k8s.drivers.base import tags as owner_tags
from kuryr_k8s.drivers.lbaas import pending as lb_pending
from kuryr_k8s.drivers.lbaas import turns
from kuryr_k8s.drivers.lbaas.pending import PendingLoadBalancers
from kuryr_k8s.drivers.lbaas.work import NotTaken
from kuryr_k8s.model.load_balancer import HealthMonitor
from kuryr_k8s.model.owner import Owner
from kuryr_k8s.patience import PATIENCE
from tests.component.lbaas.octavia_calls import FAULTS, calls
from tests.kit.clock import ManualClock
from tests.kit.confs import CLUSTER, MARK, TAG
from tests.kit.contexts import driver_context
from tests.kit.fakes.faults import lose_reply
from tests.kit.fakes.octavia.kinds import POOL
from tests.kit.load_balancer_worker import wanted

OWNER = Owner("6f1c9a52-1111-4222-8333-444455556666")
OTHER = Owner("0e3b7d10-1111-4222-8333-444455556666")


def trees(cloud):
    return [cloud.octavia.tree(balancer_id) for balancer_id in cloud.load_balancers]


def ids(cloud, kind):
    return list(cloud.octavia.store._by_kind[kind])


async def test_service_is_one_write_and_everything_is_active_when_it_is_done(worker, cloud):
    found = await worker.have(OWNER, wanted(cloud, OWNER))
    assert calls(cloud, writes=True) == ["POST loadbalancers"]
    assert found.statuses() == {"ACTIVE"}
    assert list(cloud.load_balancers) == [found.id]
    shown = await Octavia(worker.transport).read(found.id)
    assert sorted(found.listeners, key=str) == sorted(shown.listeners, key=str)
    assert _sorted_pools(found) == _sorted_pools(shown)
    assert (found.vip_address, found.vip_port_id) == (shown.vip_address, shown.vip_port_id)


def _sorted_pools(found):
    """Octavia tells members in the order of their ids."""
    pools = []
    for pool in sorted(found.pools, key=lambda pool: pool.pool.name):
        members = tuple(sorted(pool.pool.members, key=lambda member: member.key))
        pools.append(
            dataclasses.replace(pool, pool=dataclasses.replace(pool.pool, members=members))
        )
    return pools


async def test_unchanged_service_asks_octavia_nothing(worker, cloud):
    await worker.have(OWNER, wanted(cloud, OWNER))
    cloud.calls.clear()
    await worker.have(OWNER, wanted(cloud, OWNER))
    assert calls(cloud, writes=True) == calls(cloud, writes=False) == []


@pytest.mark.parametrize("provider", ["amphora", "ovn"])
async def test_changed_endpoints_are_one_write_for_each_pool_and_no_read_before_it(
    worker, cloud, provider
):
    new = {"provider": provider}
    old = wanted(cloud, OWNER, ports=["http"], **new)
    if provider == "ovn":
        pool = dataclasses.replace(old.pools[0], lb_algorithm="SOURCE_IP_PORT", members=())
        old = dataclasses.replace(old, pools=(pool,))
    await worker.have(OWNER, old)
    cloud.calls.clear()
    member = dataclasses.replace(
        wanted(cloud, OWNER).pools[0].members[0], subnet_id=cloud.pods["subnets"][0]
    )
    pool = dataclasses.replace(old.pools[0], members=(member,))
    found = await worker.have(OWNER, dataclasses.replace(old, pools=(pool,)))
    assert calls(cloud, writes=True) == ["PUT pools/{pool_id}/members"]
    first = next(call.method for call in cloud.calls if "/lbaas/" in call.path)
    assert first == "PUT"
    assert [member.address for member in found.pools[0].pool.members] == ["10.62.1.1"]
    assert found.statuses() == {"ACTIVE"}


async def test_endpoints_that_change_while_octavia_works_wait_and_go_together(worker, cloud):
    cloud.octavia_pending = math.inf
    worker.want(OWNER, wanted(cloud, OWNER, ports=["http"]))
    await cloud.wait_for(lambda: cloud.load_balancers)
    for pods in (3, 4, 5):
        worker.want(OWNER, wanted(cloud, OWNER, ports=["http"], pods=pods))
    cloud.octavia_pending = 0.05
    cloud.octavia.progress.finish(next(iter(cloud.load_balancers)))
    found = await worker.done(OWNER)
    assert calls(cloud, writes=True) == ["POST loadbalancers", "PUT pools/{pool_id}/members"]
    reads = calls(cloud, writes=False)
    assert reads.count("GET loadbalancers/{id}/status") == 2, "after each of the two"
    assert "GET pools/{pool_id}/members" not in reads
    assert len(found.pools[0].pool.members) == 5


async def test_ports_come_and_go(worker, cloud):
    await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"]))
    ports = ["dns", "dns-tcp", "sip"]
    await worker.have(OWNER, wanted(cloud, OWNER, ports=ports, pods=1))
    [tree] = trees(cloud)
    [now] = await _fresh_trees(worker, cloud, wanted(cloud, OTHER, ports=ports, pods=1), OTHER)
    assert _comparable(tree) == _comparable(now)


async def _fresh_trees(worker, cloud, load_balancer, owner):
    """What an undisturbed creation makes."""
    before = set(cloud.load_balancers)
    await worker.have(owner, load_balancer)
    return [
        cloud.octavia.tree(balancer_id)
        for balancer_id in cloud.load_balancers
        if balancer_id not in before
    ]


def _comparable(tree):
    """Without what is its own: names and addresses."""
    own = {**tree, "vip_address": ""}
    return str(own).replace(OTHER.uid, OWNER.uid)


async def test_another_provider_or_address_makes_it_anew(worker, cloud):
    first = await worker.have(OWNER, wanted(cloud, OWNER, address="10.3.0.10"))
    second = await worker.have(OWNER, wanted(cloud, OWNER, address="10.3.0.11"))
    assert list(cloud.load_balancers) == [second.id] != [first.id]
    assert second.vip_address == "10.3.0.11"
    assert len([port for port in cloud.ports.values() if "lb" in port["name"]]) == 1


async def test_release_returns_when_it_is_gone(worker, cloud):
    await worker.have(OWNER, wanted(cloud, OWNER))
    cloud.octavia_pending = math.inf
    worker.want(OWNER, None)
    await cloud.wait_for(lambda: calls(cloud, writes=True)[-1].startswith("DELETE"))
    assert OWNER not in worker.found
    [found] = cloud.load_balancers
    cloud.octavia.progress.finish(found)
    await worker.done(OWNER)
    assert not cloud.load_balancers
    assert not [port for port in cloud.ports.values() if "lb" in port["name"]]
    cloud.calls.clear()
    await worker.have(OWNER, None)
    assert calls(cloud, writes=True) == calls(cloud, writes=False) == []


async def test_deletion_that_ends_in_error_is_told_and_tried_again(worker, cloud):
    found = await worker.have(OWNER, wanted(cloud, OWNER))
    cloud.octavia_pending = math.inf
    worker.want(OWNER, None)
    await cloud.wait_for(lambda: calls(cloud, writes=True)[-1].startswith("DELETE"))
    cloud.octavia.set_error(found.id)
    assert (await worker.trouble(OWNER)).reason == "KuryrLoadBalancerError"
    cloud.octavia_pending = 0.0
    cloud.octavia.progress.finish(found.id)
    await worker.done(OWNER)
    assert not cloud.load_balancers


async def test_service_deleted_while_its_load_balancer_is_being_made_leaves_nothing(worker, cloud):
    worker.want(OWNER, wanted(cloud, OWNER))
    await cloud.wait_for(lambda: cloud.load_balancers)
    await worker.have(OWNER, None)
    assert not cloud.load_balancers


async def test_service_that_comes_back_while_its_load_balancer_goes_gets_another(worker, cloud):
    first = await worker.have(OWNER, wanted(cloud, OWNER))
    worker.want(OWNER, None)
    await cloud.wait_for(lambda: calls(cloud, writes=True)[-1].startswith("DELETE"))
    second = await worker.have(OWNER, wanted(cloud, OWNER))
    assert list(cloud.load_balancers) == [second.id] != [first.id]


async def test_restarted_controller_reads_lists_and_members_and_writes_nothing(make_worker, cloud):
    owners = [OWNER, OTHER, Owner("third"), Owner("fourth")]
    async with make_worker() as worker:
        for owner in owners:
            worker.want(owner, wanted(cloud, owner))
        for owner in owners:
            await worker.done(owner)
    cloud.calls.clear()
    async with make_worker() as worker:
        for owner in owners:
            worker.want(owner, wanted(cloud, owner))
        for owner in owners:
            await worker.done(owner)
        for owner in owners:
            await worker.have(owner, wanted(cloud, owner))
    assert calls(cloud, writes=True) == []
    lists = ["GET loadbalancers", "GET listeners", "GET pools"]
    members = ["GET pools/{pool_id}/members"] * len(owners) * 2
    assert sorted(calls(cloud, writes=False)) == sorted([*lists, *members])


async def test_lists_in_pages_tell_the_same_as_single_reads(worker, cloud):
    owners = [OWNER, OTHER, Owner("third"), Owner("fourth"), Owner("fifth")]
    monitor = HealthMonitor(type="TCP", delay=5, timeout=3, max_retries=1, max_retries_down=3)
    for number, owner in enumerate(owners):
        balancer = wanted(cloud, owner, pods=number)
        first, second = balancer.pools
        first = dataclasses.replace(first, health_monitor=monitor)
        await worker.have(owner, dataclasses.replace(balancer, pools=(first, second)))
    octavia = Octavia(worker.transport, page=2)
    await octavia.create_pool(
        {
            "name": "loose",
            "protocol": "TCP",
            "lb_algorithm": "ROUND_ROBIN",
            "loadbalancer_id": next(iter(cloud.load_balancers)),
        }
    )
    cloud.octavia.progress.finish(next(iter(cloud.load_balancers)))
    cloud.calls.clear()
    listed = await octavia.survey({"tags": TAG}, concerns=lambda _row: True)
    assert calls(cloud, writes=False).count("GET loadbalancers") == 3
    assert len(calls(cloud, writes=False)) == 3 + 7 + 6 + 3  # two at a time
    assert len(listed) == len(owners)
    for parts in listed:
        single = await octavia.read(parts.load_balancer["id"])
        assert await octavia.complete(parts) == single


@pytest.mark.parametrize("status", ["PENDING_UPDATE", "ERROR"])
async def test_restarted_controller_looks_again_at_what_is_not_active(make_worker, cloud, status):
    async with make_worker() as worker:
        await worker.have(OWNER, wanted(cloud, OWNER))
        before = trees(cloud)
    pool = cloud.octavia.store.get(POOL, ids(cloud, "pool")[0])
    cloud.octavia.store.set_status(pool, status)
    async with make_worker() as worker:
        worker.want(OWNER, wanted(cloud, OWNER))
        if status == "PENDING_UPDATE":
            await cloud.wait_for(lambda: "GET loadbalancers/{id}" in calls(cloud, writes=False))
            cloud.octavia.store.set_status(pool, "ACTIVE")
        found = await worker.done(OWNER)
    assert found.statuses() == {"ACTIVE"}
    assert trees(cloud) == before


# -- faults


async def _live(worker, cloud):
    """A life with all kinds of writes but deletion; the tree afterwards."""
    await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"], pods=1))
    await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"], pods=2))
    await worker.have(OWNER, wanted(cloud, OWNER, ports=["http", "dns"], pods=2))
    changed = wanted(cloud, OWNER, ports=["http", "dns"], pods=2)
    listeners = tuple(
        dataclasses.replace(listener, timeout_client_data=1000) for listener in changed.listeners
    )
    pools = tuple(dataclasses.replace(pool, persistence="SOURCE_IP") for pool in changed.pools)
    changed = dataclasses.replace(changed, listeners=listeners, pools=pools)
    await worker.have(OWNER, changed)
    await worker.have(
        OWNER, dataclasses.replace(changed, listeners=listeners[1:], pools=pools[1:])
    )
    return trees(cloud)


WRITES_OF_A_LIFE = 11


@pytest.mark.sampled(3)
@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_fault_at_any_write_leaves_what_an_undisturbed_life_leaves(
    make_worker, cloud, fault
):
    async with make_worker() as worker:
        undisturbed = await _live(worker, cloud)
        assert len(calls(cloud, writes=True)) == WRITES_OF_A_LIFE
        await worker.have(OWNER, None)
    for number in range(1, WRITES_OF_A_LIFE + 2):  # the last one is the deletion
        async with make_worker() as worker:
            cloud.calls.clear()
            cloud.faults.at_write(number, FAULTS[fault])
            after = await _live(worker, cloud)
            struck = number <= WRITES_OF_A_LIFE
            repeated = len(calls(cloud, writes=True)) - WRITES_OF_A_LIFE
            assert repeated in ((0, 1) if struck else (0,))
            assert _nameless(after) == _nameless(undisturbed)
            await worker.have(OWNER, None)
            assert not cloud.load_balancers


def _nameless(trees):
    """Addresses are of the allocation's choice."""
    return [{**tree, "vip_address": "", "vip_port_id": ""} for tree in trees]


async def test_lost_reply_to_a_create_makes_no_second_one_even_after_a_restart(make_worker, cloud):
    async with make_worker() as worker:
        cloud.faults.at_write(1, lose_reply())
        worker.want(OWNER, wanted(cloud, OWNER))
        await worker.trouble(OWNER)
    async with make_worker() as worker:
        found = await worker.have(OWNER, wanted(cloud, OWNER))
    assert list(cloud.load_balancers) == [found.id]
    assert calls(cloud, writes=True) == ["POST loadbalancers"]


async def test_load_balancer_deleted_by_hand_is_made_again_at_the_next_change(worker, cloud):
    first = await worker.have(OWNER, wanted(cloud, OWNER))
    cloud.octavia.remove(first.id)
    second = await worker.have(OWNER, wanted(cloud, OWNER, pods=3))
    assert list(cloud.load_balancers) == [second.id]
    assert len(second.pools[0].pool.members) == 3


@pytest.mark.parametrize("kind", ["loadbalancer", "listener", "pool", "member"])
async def test_what_was_deleted_by_hand_is_made_again_after_a_resync(worker, cloud, kind):
    """Be it in the same second as our own last change: that alone no time shows."""
    await worker.have(OWNER, wanted(cloud, OWNER))
    before = _nameless(trees(cloud))
    assert await worker.driver.list_owned()
    await worker.have(OWNER, wanted(cloud, OWNER))
    cloud.octavia.remove(ids(cloud, kind)[0])
    await worker.driver.list_owned()
    await worker.have(OWNER, wanted(cloud, OWNER))
    assert _nameless(trees(cloud)) == before


async def test_resync_of_what_nobody_changed_reads_five_lists(worker, cloud):
    await worker.have(OWNER, wanted(cloud, OWNER))
    await worker.driver.list_owned()
    await worker.have(OWNER, wanted(cloud, OWNER))
    cloud.calls.clear()
    [load_balancer] = cloud.load_balancers
    owned = Owned(OWNER, "default", load_balancer, frozenset({CLUSTER}))
    assert await worker.driver.list_owned() == [owned]
    await worker.have(OWNER, wanted(cloud, OWNER))
    assert calls(cloud, writes=True) == []
    shared = ["GET listeners", "GET pools"]  # in the load balancers of others
    lists = ["GET listeners", "GET loadbalancers", "GET pools"]
    assert sorted(calls(cloud, writes=False)) == sorted(lists + shared)


async def test_load_balancer_of_a_service_that_nobody_knows_can_be_released(make_worker, cloud):
    async with make_worker() as worker:
        await worker.have(OWNER, wanted(cloud, OWNER))
    async with make_worker() as worker:
        [owned] = await worker.driver.list_owned()
        await worker.have(owned.owner, None)
    assert not cloud.load_balancers


async def test_load_balancers_of_others_are_none_of_ours(worker, cloud):
    octavia = Octavia(worker.transport)
    body = {"name": "x", "vip_subnet_id": cloud.services["subnets"][0], "tags": ["other-cluster"]}
    await octavia.create_load_balancer(body)
    await octavia.create_load_balancer({**body, "tags": ["test-cluster"]})
    assert await worker.driver.list_owned() == []
    await worker.have(OWNER, None)
    assert len(cloud.load_balancers) == 2


async def test_load_balancer_in_error_is_told_and_made_anew(worker, cloud):
    first = await worker.have(OWNER, wanted(cloud, OWNER))
    cloud.octavia.set_error(first.id)
    cloud.load_balancers[first.id]["updated_at"] = "2031-01-01T00:00:00"
    await worker.driver.list_owned()
    worker.want(OWNER, wanted(cloud, OWNER))
    problem = await worker.trouble(OWNER)
    assert (problem.reason, first.id in str(problem)) == ("KuryrLoadBalancerError", True)
    second = await worker.done(OWNER)
    assert list(cloud.load_balancers) == [second.id] != [first.id]


async def test_load_balancer_in_error_that_forwards_stays_until_none_of_its_members_is_left(
    worker, cloud
):
    first = await worker.have(OWNER, wanted(cloud, OWNER))
    cloud.octavia.set_error(first.id, forwards=True)
    cloud.load_balancers[first.id]["updated_at"] = "2031-01-01T00:00:00"
    await worker.driver.list_owned()
    worker.want(OWNER, wanted(cloud, OWNER, pods=5))
    problem = await worker.trouble(OWNER)
    assert "openstack loadbalancer failover" in str(problem)
    assert list(cloud.load_balancers) == [first.id]
    worker.want(OWNER, wanted(cloud, OWNER, pods=0))
    second = await worker.done(OWNER)
    assert list(cloud.load_balancers) == [second.id] != [first.id]


async def test_load_balancers_that_are_left_to_people_hold_up_none_that_is_made_anew(
    make_worker, cloud
):
    """They have no turn, as many as they may be."""
    owners = [Owner(f"u{number}") for number in range(turns.TOGETHER)]
    async with make_worker(octavia_defaults={"rebuild_limit": "1"}) as worker:

        async def fail():
            """All end in ERROR as soon as they are made."""
            await cloud.wait_for(lambda: len(cloud.load_balancers) == len(owners))
            for each in (made := list(cloud.load_balancers)):
                cloud.octavia.progress.finish(each)
                cloud.octavia.set_error(each)
            return made

        cloud.octavia_pending = math.inf
        for owner in owners:
            worker.want(owner, wanted(cloud, owner))
        for each in await fail():
            balancer = cloud.load_balancers[each]
            await cloud.wait_for(lambda it=balancer: it["provisioning_status"] == "PENDING_DELETE")
            cloud.octavia.progress.finish(each)
        await fail()
        await worker.until(
            lambda: all("left to people" in str(worker.problems.get(each)) for each in owners)
        )
        cloud.octavia_pending = 0.0
        last = await worker.have(OWNER, wanted(cloud, OWNER))
        cloud.octavia.set_error(last.id)
        cloud.load_balancers[last.id]["updated_at"] = "2031-01-01T00:00:00"
        await worker.driver.list_owned()
        assert (await worker.have(OWNER, wanted(cloud, OWNER))).id != last.id


async def test_member_that_never_works_holds_up_no_other_port(worker, cloud):
    """Its pool comes first in the plan."""
    await worker.have(OWNER, wanted(cloud, OWNER, ports=["dns", "http"]))

    async def accept(_request, _proceed):
        return web.Response(status=202)

    first, second = map(cloud.octavia.store.part, ids(cloud, "pool"))
    member = cloud.octavia.store.members(first["id"])[0]
    cloud.octavia.set_error(member["id"])
    cloud.faults.add(method="PUT", path=f"/{first['id']}/members$", times=None, action=accept)
    cloud.load_balancers[first["load_balancer_id"]]["updated_at"] = "2031-01-01T00:00:00"
    await worker.driver.list_owned()
    worker.want(OWNER, wanted(cloud, OWNER, ports=["dns", "http"], pods=1))
    await cloud.wait_for(lambda: len(cloud.octavia.store.members(second["id"])) == 1)
    await worker.trouble(OWNER)


async def test_load_balancer_stays_while_the_next_provider_is_known_not_to_be_able_to(
    worker, cloud
):
    first = await worker.have(OWNER, wanted(cloud, OWNER))
    hashed = dataclasses.replace(wanted(cloud, OWNER), provider="ovn")  # and ROUND_ROBIN
    worker.want(OWNER, hashed)
    assert isinstance(await worker.trouble(OWNER), errors.Unsupported)
    assert list(cloud.load_balancers) == [first.id]


@pytest.mark.parametrize("kind", ["listener", "pool", "member"])
async def test_part_in_error_is_made_anew_and_the_load_balancer_stays(worker, cloud, kind):
    first = await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"]))
    before = trees(cloud)
    cloud.octavia.set_error(ids(cloud, kind)[0])
    cloud.load_balancers[first.id]["updated_at"] = "2031-01-01T00:00:00"
    await worker.driver.list_owned()
    again = await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"]))
    assert again.id == first.id
    assert again.statuses() == {"ACTIVE"}
    assert trees(cloud) == before


async def test_load_balancer_that_ends_in_error_each_time_is_left_after_so_many(
    make_worker, cloud
):
    async with make_worker(octavia_defaults={"rebuild_limit": "2"}) as worker:
        cloud.octavia_pending = math.inf
        worker.want(OWNER, wanted(cloud, OWNER))
        seen = []
        for _ in range(3):
            await cloud.wait_for(lambda: cloud.load_balancers.keys() - set(seen))
            [now] = cloud.load_balancers
            seen.append(now)
            cloud.octavia.progress.finish(now)
            cloud.octavia.set_error(now)
            cloud.octavia_pending = 0.0
            if len(seen) < 3:
                await cloud.wait_for(lambda: not cloud.load_balancers)
            cloud.octavia_pending = math.inf
        await worker.until(lambda: "left to people" in str(worker.problems.get(OWNER)))
        assert list(cloud.load_balancers) == seen[-1:]
        cloud.octavia.progress.finish(seen[-1])
        cloud.load_balancers[seen[-1]]["provisioning_status"] = "ACTIVE"  # by failover
        await worker.done(OWNER)
    assert len(set(seen)) == 3


async def test_of_load_balancers_of_the_same_second_the_one_that_serves_stays(worker, cloud):
    """A controller that has lost the Lease may have sent its creation late."""
    first = await worker.have(OWNER, wanted(cloud, OWNER))
    body = {"name": "twin", "vip_subnet_id": cloud.services["subnets"][0]}
    body |= {"tags": owner_tags.tags_of([TAG], "default", OWNER)}
    for _ in range(8):  # some ids sort before the first one's
        twin = await Octavia(worker.transport).create_load_balancer(body)
        created_at = cloud.load_balancers[first.id]["created_at"]
        cloud.load_balancers[twin.id]["created_at"] = created_at
    await worker.driver.list_owned()
    again = await worker.have(OWNER, wanted(cloud, OWNER, pods=3))
    assert again.id == first.id
    await cloud.wait_for(lambda: list(cloud.load_balancers) == [first.id])


async def test_second_load_balancer_of_an_owner_goes_and_the_oldest_stays(make_worker, cloud):
    async with make_worker() as worker:
        first = await worker.have(OWNER, wanted(cloud, OWNER))
        cloud.load_balancers[first.id]["created_at"] = "2020-01-01T00:00:00"
        body = {
            "name": "twin",
            "vip_subnet_id": cloud.services["subnets"][0],
            "tags": owner_tags.tags_of([TAG], "default", OWNER),
        }
        await Octavia(worker.transport).create_load_balancer(body)
    async with make_worker() as worker:
        found = await worker.have(OWNER, wanted(cloud, OWNER))
        await cloud.wait_for(lambda: len(cloud.load_balancers) == 1)
        assert found.id == first.id
        assert list(cloud.load_balancers) == [first.id]


@pytest.mark.parametrize("marked", [False, True])
async def test_tags_of_ours_in_a_project_of_no_service_are_nobodys(make_worker, cloud, marked):
    cloud.promote("admin")
    async with make_worker() as worker:
        body = {
            "name": "stranger's",
            "project_id": cloud.add_project("stranger"),
            "vip_subnet_id": cloud.services["subnets"][0],
            "tags": owner_tags.tags_of([TAG, MARK] if marked else [TAG], "default", OWNER),
        }
        theirs = await Octavia(worker.transport).create_load_balancer(body)
        cloud.octavia.progress.finish(theirs.id)
        cloud.load_balancers[theirs.id]["created_at"] = "2020-01-01T00:00:00"
        before = cloud.octavia.tree(theirs.id)
    async with make_worker() as worker:
        listed = [(each.id, each.elsewhere) for each in await worker.driver.list_owned()]
        assert listed == ([(theirs.id, True)] if marked else [])
        found = await worker.have(OWNER, wanted(cloud, OWNER))
        assert found.id != theirs.id
        assert await worker.driver.owner_of(theirs.id, OWNER) is None
        await worker.have(OWNER, None)
    assert list(cloud.load_balancers) == [theirs.id]
    assert cloud.octavia.tree(theirs.id) == before


async def test_second_load_balancer_that_is_being_made_goes_as_soon_as_it_can(make_worker, cloud):
    async with make_worker() as worker:
        first = await worker.have(OWNER, wanted(cloud, OWNER))
        cloud.load_balancers[first.id]["created_at"] = "2020-01-01T00:00:00"
        cloud.octavia_pending = math.inf
        body = {"name": "twin", "vip_subnet_id": cloud.services["subnets"][0]}
        body |= {"tags": owner_tags.tags_of([TAG], "default", OWNER)}
        twin = await Octavia(worker.transport).create_load_balancer(body)
        await worker.driver.list_owned()
        worker.want(OWNER, wanted(cloud, OWNER))
        await cloud.wait_for(lambda: "DELETE loadbalancers/{id}" in calls(cloud, writes=True))
        cloud.octavia_pending = 0.0
        cloud.octavia.progress.finish(twin.id)
        await worker.done(OWNER)
        await cloud.wait_for(lambda: list(cloud.load_balancers) == [first.id])


async def test_all_load_balancers_of_an_owner_are_released(make_worker, cloud):
    async with make_worker() as worker:
        await worker.have(OWNER, wanted(cloud, OWNER))
        body = {
            "name": "twin",
            "vip_subnet_id": cloud.services["subnets"][0],
            "tags": owner_tags.tags_of([TAG], "default", OWNER),
        }
        await Octavia(worker.transport).create_load_balancer(body)
    async with make_worker() as worker:
        await worker.have(OWNER, None)
        assert not cloud.load_balancers


async def test_somebody_elses_work_on_the_load_balancer_is_waited_for(worker, cloud):
    found = await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"]))
    cloud.octavia_pending = math.inf
    await worker.rename(found.id)
    worker.want(OWNER, wanted(cloud, OWNER, ports=["http"], pods=5))
    await cloud.wait_for(lambda: "GET loadbalancers/{id}" in calls(cloud, writes=False))
    cloud.octavia_pending = 0.05
    cloud.octavia.progress.finish(found.id)
    found = await worker.done(OWNER)
    assert len(found.pools[0].pool.members) == 5
    assert OWNER not in worker.problems


async def test_refusal_since_somebody_was_faster_is_waited_out_and_not_told(worker, cloud):
    await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"]))
    cloud.faults.add(method="PUT", path="/members$", action=FAULTS["409"])
    await worker.have(OWNER, wanted(cloud, OWNER, ports=["http", "dns"]))
    assert "PUT pools/{pool_id}/members" in calls(cloud, writes=True)[:-1]
    assert OWNER not in worker.problems


async def test_change_that_octavia_accepts_and_does_not_make_is_told_and_not_repeated_at_once(
    worker, cloud
):
    await worker.have(OWNER, wanted(cloud, OWNER, ports=["http"]))

    async def accept(_request, _proceed):
        return web.Response(status=202)

    cloud.faults.add(method="PUT", path="/members$", times=1, action=accept)
    worker.want(OWNER, wanted(cloud, OWNER, ports=["http"], pods=5))
    assert isinstance(await worker.trouble(OWNER), NotTaken)
    found = await worker.done(OWNER)
    assert len(found.pools[0].pool.members) == 5


@pytest.mark.parametrize("provider", ["amphora", "ovn"])
async def test_load_balancer_that_stays_pending_is_told_and_used_once_it_is_active(
    make_worker, cloud, provider
):
    cloud.octavia_pending = math.inf
    options = {"lbaas_activation_timeout": "1"}
    async with make_worker({"pending_load_balancer": 0.1}, neutron_defaults=options) as worker:
        worker.want(OWNER, wanted(cloud, OWNER, ports=[], provider=provider))
        assert (await worker.trouble(OWNER)).reason == "KuryrLoadBalancerPending"
        cloud.octavia.progress.finish(next(iter(cloud.load_balancers)))
        await worker.done(OWNER)
    assert calls(cloud, writes=True) == ["POST loadbalancers"]


async def test_quota_is_told_as_such_and_met_when_there_is_room(worker, cloud):
    cloud.octavia.set_quota(cloud.project_id, loadbalancer=0)
    worker.want(OWNER, wanted(cloud, OWNER))
    assert isinstance(await worker.trouble(OWNER), errors.OverQuota)
    cloud.octavia.set_quota(cloud.project_id, loadbalancer=-1)
    await worker.done(OWNER)
    assert len(cloud.load_balancers) == 1


async def test_call_that_is_broken_off_is_followed_by_a_look(worker, cloud):
    """As when a reconcile has taken too long."""
    await worker.driver.list_owned()  # the survey is over
    hang = asyncio.Event()

    async def apply_and_hold(_request, proceed):
        response = await proceed()
        await hang.wait()
        return response

    cloud.faults.add(method="POST", path="/loadbalancers$", times=1, action=apply_and_hold)
    async with asyncio.TaskGroup() as group:
        ensuring = worker.driver.ensure(OWNER, wanted(cloud, OWNER))
        task = group.create_task(ensuring)
        await cloud.wait_for(lambda: cloud.load_balancers)
        task.cancel()
        hang.set()
    assert task.cancelled()
    await worker.have(OWNER, wanted(cloud, OWNER))
    assert len(cloud.load_balancers) == 1


async def test_one_list_looks_for_all_that_is_pending_ever_more_rarely_until_something_changes(
    worker, cloud
):
    octavia = Octavia(worker.transport)
    cloud.octavia_pending = math.inf
    bodies = [
        {"name": name, "vip_subnet_id": cloud.services["subnets"][0], "tags": [TAG]}
        for name in ("first", "second")
    ]
    first, second = [await octavia.create_load_balancer(body) for body in bodies]
    clock = ManualClock()
    woken, durations = [], []
    context = driver_context(None, None, octavia, clock=clock)
    pending = PendingLoadBalancers(context, [TAG], woken.append, durations.extend)
    pending.watch(first.id, OWNER, "PENDING_CREATE")
    delays = [await pending.reconcile("") for _ in range(20)]
    assert [timer.due for timer in clock.pending] == [PATIENCE.first_pending_look]
    assert delays == sorted(delays)
    assert delays[-1] == lb_pending.LONGEST
    pending.watch(second.id, OTHER, "PENDING_CREATE")
    clock.advance(1.0)
    cloud.octavia.progress.finish(first.id)
    cloud.calls.clear()
    assert await pending.reconcile("") == PATIENCE.first_pending_look
    assert calls(cloud, writes=False) == ["GET loadbalancers"]
    assert woken == [OWNER]
    assert first.id not in pending
    assert second.id in pending
    cloud.octavia.progress.finish(second.id)
    assert await pending.reconcile("") is None
    assert woken == [OWNER, OTHER]
    assert durations == [1.0, 1.0]
    cloud.calls.clear()
    assert await pending.reconcile("") is None
    assert calls(cloud, writes=False) == []
