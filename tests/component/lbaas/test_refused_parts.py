"""Calls that parts of a router cost that cannot be had, as long as they cannot."""

import dataclasses
from functools import partial

import pytest

from kuryr_k8s import errors
from tests.component.lbaas.octavia_calls import calls
from tests.component.lbaas.test_creation_in_steps import ROUTER, led, router
from tests.kit.fakes.faults import answer
from tests.kit.fakes.octavia.kinds import L7POLICY

POOLS = "POST pools"


@pytest.fixture
async def patient(make_worker):
    """A worker for which refusals last longer than the test."""
    async with make_worker({"first_refused": 0.03, "refused": 600.0}) as worker:
        yield worker


async def until_refused_again(worker, times=3):
    """Look at the router, until that was refused so often; the last refusal."""
    for _ in range(times):
        worker.want(ROUTER, worker.wanted[ROUTER])
        problem = await worker.trouble(ROUTER)
    return problem


async def test_refused_policy_costs_no_call_at_all_while_nothing_changes(patient, cloud):
    await patient.have(ROUTER, router(cloud, "a"))
    fault = cloud.faults.add(
        method="POST", path="/l7policies$", times=None, action=answer(400, message="No.")
    )
    patient.want(ROUTER, router(cloud, "a", "b"))
    await until_refused_again(patient)
    cloud.calls.clear()
    assert "No." in str(await until_refused_again(patient))
    assert calls(cloud, writes=True) + calls(cloud, writes=False) == []
    fault.remove()


async def test_members_follow_by_few_calls_while_pools_are_over_quota(patient, cloud):
    hosts = [f"host-{number}" for number in range(10)]
    await patient.have(ROUTER, router(cloud, *hosts))
    cloud.octavia.set_quota(cloud.project_id, pool=len(hosts))
    refused = [f"more-{number}" for number in range(10)]
    patient.want(ROUTER, router(cloud, *hosts, *refused))
    await until_refused_again(patient)
    cloud.calls.clear()
    patient.want(ROUTER, router(cloud, *hosts, *refused, count=3))
    await cloud.wait_for(lambda: len(calls(cloud, writes=True)) >= len(hosts))
    assert isinstance(await until_refused_again(patient), errors.OverQuota)
    assert calls(cloud, writes=True).count("PUT pools/{pool_id}/members") == len(hosts)
    reads = calls(cloud, writes=False)
    assert "GET pools/{pool_id}/members" not in reads, reads
    assert calls(cloud, writes=True).count(POOLS) <= 2


async def test_one_pool_over_quota_is_tried_in_a_pass_and_policies_that_need_none_go_on(
    patient, cloud
):
    await patient.have(ROUTER, router(cloud, "a"))
    cloud.octavia.set_quota(cloud.project_id, pool=1)
    cloud.calls.clear()
    refused = [f"more-{number}" for number in range(10)]
    desired = router(cloud, "a", *refused)
    [listener] = desired.listeners
    first, *others = listener.policies
    rule = dataclasses.replace(first.rules[0], value="again")
    again = dataclasses.replace(first, name="again", rules=(rule,))
    listener = dataclasses.replace(listener, policies=(first, *others, again))
    patient.want(ROUTER, dataclasses.replace(desired, listeners=(listener,)))
    await cloud.wait_for(lambda: led(cloud) == {"a": "a", "again": "a"})
    await until_refused_again(patient)
    assert calls(cloud, writes=True).count(POOLS) == 2


def is_without(cloud, policy_id):
    """Is another policy in the place of this one?"""
    policies = cloud.octavia.store.of(L7POLICY)
    return policies and policy_id not in policies and bool(led(cloud))


async def test_what_breaks_again_is_mended_again_however_long_another_part_is_over_quota(
    make_worker, cloud
):
    async with make_worker() as worker:
        await worker.have(ROUTER, router(cloud, "a"))
        cloud.octavia.set_quota(cloud.project_id, pool=1)
        desired = router(cloud, "a", "b")
        worker.want(ROUTER, desired)
        await until_refused_again(worker)
        policies = cloud.octavia.store.of(L7POLICY)
        for _ in range(5):
            [broken] = policies
            cloud.octavia.set_error(broken)
            worker.driver._records.doubt(ROUTER)
            worker.want(ROUTER, desired)
            await cloud.wait_for(partial(is_without, cloud, broken))
            assert led(cloud) == {"a": "a"}
            await until_refused_again(worker)


async def test_pool_that_there_is_room_for_again_is_created(make_worker, cloud):
    async with make_worker() as worker:
        await worker.have(ROUTER, router(cloud, "a"))
        cloud.octavia.set_quota(cloud.project_id, pool=1)
        worker.want(ROUTER, router(cloud, "a", "b", "c"))
        await until_refused_again(worker)
        cloud.octavia.set_quota(cloud.project_id, pool=-1)
        await worker.done(ROUTER)
        assert led(cloud) == {"a": "a", "b": "b", "c": "c"}
