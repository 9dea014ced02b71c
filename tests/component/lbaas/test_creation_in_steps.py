"""Load balancers that cannot be created with all that they contain by one call."""

import dataclasses
import json

from kuryr_k8s import errors
from kuryr_k8s.model.load_balancer import L7Policy, L7Rule, Listener, Member, Pool
from kuryr_k8s.model.owner import Owner, Role
from tests.component.lbaas.octavia_calls import calls
from tests.kit.fakes.faults import answer
from tests.kit.fakes.octavia.kinds import L7POLICY, POOL
from tests.kit.load_balancer_worker import wanted

OWNER = Owner("6f1c9a52-1111-4222-8333-444455556666")
ROUTER = Owner(OWNER.uid, Role.L7_ROUTER)
CREATION = "POST loadbalancers"


def members(count, *, name=""):
    return tuple(
        Member(address=f"10.62.{each // 200}.{each % 200 + 1}", port=8080, name=name)
        for each in range(count)
    )


def router(cloud, *names, count=2, name=""):
    """A router with a pool and a policy for each host.

    :param count: of the members of each pool.
    :param name: of each of them.
    """
    pools = tuple(
        Pool(
            name=host,
            protocol="HTTP",
            lb_algorithm="ROUND_ROBIN",
            members=members(count, name=name),
        )
        for host in names
    )
    policies = tuple(
        L7Policy(
            name=host,
            action="REDIRECT_TO_POOL",
            rules=(L7Rule("HOST_NAME", "EQUAL_TO", host),),
            redirect_pool=host,
        )
        for host in names
    )
    listener = Listener(name="http", protocol="HTTP", port=80, pool="", policies=policies)
    return wanted(cloud, ROUTER, listeners=(listener,), pools=pools)


def led(cloud):
    """{name of a policy: name of the pool where it leads}, of those that are complete."""
    pools = cloud.octavia.store.of(POOL)
    return {
        policy["name"]: pools[policy["redirect_pool_id"]]["name"]
        for policy in cloud.octavia.store.of(L7POLICY).values()
        if cloud.octavia.store.rules(policy["id"])
    }


def is_populated(request):
    """Has the load balancer anything in it?"""
    return bool(json.loads(request._read_bytes)["loadbalancer"]["listeners"])


def refuse_populated(cloud, status, **how):
    """Refuse all creations of load balancers with something in them."""
    return cloud.faults.add(
        method="POST",
        path="/loadbalancers$",
        times=None,
        when=is_populated,
        action=answer(status, **how),
    )


async def test_router_that_is_too_large_for_one_call_is_created_step_by_step(worker, cloud):
    desired = router(cloud, "a", "b", "c", count=250, name="n" * 100)
    found = await worker.have(ROUTER, desired)
    assert led(cloud) == {"a": "a", "b": "b", "c": "c"}
    assert sorted(len(pool.pool.members) for pool in found.pools) == [250, 250, 250]
    assert calls(cloud, writes=True).count(CREATION) == 1
    assert ROUTER not in worker.problems


async def test_service_with_very_many_pods_is_created_step_by_step(worker, cloud):
    desired = wanted(cloud, OWNER, ports=["http"])
    [pool] = desired.pools
    pool = dataclasses.replace(pool, members=members(1000, name="n" * 255))
    found = await worker.have(OWNER, dataclasses.replace(desired, pools=(pool,)))
    assert [len(pool.pool.members) for pool in found.pools] == [1000]
    added = ["PUT pools/{pool_id}/members"] * 4
    assert calls(cloud, writes=True) == [CREATION, "POST pools", *added, "POST listeners"]
    assert OWNER not in worker.problems


async def test_pool_over_quota_does_not_keep_a_router_away(worker, cloud):
    cloud.octavia.set_quota(cloud.project_id, pool=2)
    worker.want(ROUTER, router(cloud, "a", "b", "c"))
    await cloud.wait_for(lambda: led(cloud) == {"a": "a", "b": "b"})
    assert isinstance(await worker.trouble(ROUTER), errors.OverQuota)
    cloud.octavia.set_quota(cloud.project_id, pool=-1)
    await worker.done(ROUTER)
    assert led(cloud) == {"a": "a", "b": "b", "c": "c"}


async def test_part_that_is_refused_does_not_keep_a_router_away(worker, cloud):
    fault = refuse_populated(cloud, 400, message="Validation failure: a part is bad.")
    await worker.have(ROUTER, router(cloud, "a", "b"))
    assert led(cloud) == {"a": "a", "b": "b"}
    assert fault.hits == 2


async def test_creation_with_all_parts_is_not_repeated_where_the_load_balancer_is_refused(
    worker, cloud
):
    populated = refuse_populated(cloud, 400)
    alone = cloud.faults.add(
        method="POST", path="/loadbalancers$", times=None, action=answer(400, message="Not you.")
    )
    worker.want(ROUTER, router(cloud, "a"))
    await cloud.wait_for(lambda: alone.hits > 3)
    assert populated.hits == 2
    worker.problems.clear()
    assert "Not you." in str(await worker.trouble(ROUTER))


async def test_quota_of_load_balancers_is_no_fault_of_a_part(worker, cloud):
    cloud.octavia.set_quota(cloud.project_id, loadbalancer=0)
    worker.want(ROUTER, router(cloud, "a", "b"))
    await cloud.wait_for(lambda: calls(cloud, writes=True).count(CREATION) > 4)
    cloud.octavia.set_quota(cloud.project_id, loadbalancer=-1)
    await worker.done(ROUTER)
    assert set(calls(cloud, writes=True)) == {CREATION}


async def test_router_whose_part_was_refused_keeps_its_address(worker, cloud):
    """The port that a refused creation has left is out of the way."""
    cloud.octavia.set_quota(cloud.project_id, pool=0)
    desired = dataclasses.replace(router(cloud, "a"), vip_address="10.3.0.5")
    worker.want(ROUTER, desired)
    await cloud.wait_for(lambda: cloud.load_balancers)
    cloud.octavia.set_quota(cloud.project_id, pool=-1)
    assert (await worker.done(ROUTER)).vip_address == "10.3.0.5"
    assert len(cloud.ports) == 1


async def test_creation_that_is_too_large_for_this_octavia_is_told_as_such_and_split(
    worker, cloud
):
    cloud.octavia.max_body = 1000
    worker.want(OWNER, wanted(cloud, OWNER, pods=4))
    problem = await worker.trouble(OWNER)
    assert isinstance(problem, errors.BadRequest)
    assert "larger than the API accepts (HTTP 413" in str(problem)
    found = await worker.done(OWNER)
    assert [len(pool.pool.members) for pool in found.pools] == [4, 4]
