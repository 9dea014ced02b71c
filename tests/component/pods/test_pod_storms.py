"""Many Pods at once: who waits for a port goes first, and comes back when Neutron does."""

import asyncio

import pytest

from kuryr_k8s.k8s.api import CALLS
from tests.kit.confs import NODE
from tests.kit.fakes.faults import Hang, answer

MANY = 12
FEW = {"kubernetes": {"pod_workers": "4"}, "neutron": {"max_calls": "4", "call_timeout": "300"}}
LATE = {"first_retry": 600.0}  # nobody tries again by himself


async def add_all(stage, count, prefix="web"):
    async with asyncio.TaskGroup() as group:
        pods = [
            group.create_task(stage.cluster.add_pod(f"{prefix}-{number}", node=NODE))
            for number in range(count)
        ]
    return [pod.result() for pod in pods]


async def until_all_plugged_in(stage, count, prefix="web"):
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(stage.until_plugged_in(f"{prefix}-{number}"))


async def another_is_served_before(stage, held):
    """Give one more Pod its port, and let go of the calls that were held only then."""
    try:
        await stage.cluster.add_pod("another", node=NODE)
        await stage.until_plugged_in("another")
    finally:
        held.release()


async def test_new_pod_gets_its_port_while_those_of_many_are_deleted(stage):
    held = Hang()
    async with stage.controller(**_few()):
        pods = await add_all(stage, MANY)
        await until_all_plugged_in(stage, MANY)
        deletions = stage.cloud.faults.add(
            method="DELETE", path=r"/ports/", times=None, action=held
        )
        for number, pod in enumerate(pods):
            await stage.cluster.delete_pod(pod)
            await stage.until_deleting(f"web-{number}")
            await stage.let_go(f"web-{number}")
        await stage.until(lambda: _held(deletions))
        await another_is_served_before(stage, held)
        await stage.cloud.wait_for(lambda: len(stage.cloud.ports) == 1)


async def test_new_pod_gets_its_port_while_the_api_server_lets_none_of_many_go(stage):
    held, many = Hang(), CALLS + 4
    async with stage.controller(patience={"kube_call": 300.0}):
        pods = await add_all(stage, many)
        await until_all_plugged_in(stage, many)
        releases = stage.proxy.faults.add(
            method="PATCH", path=r"/kuryrports/web-\d+$", times=None, action=held
        )

        async def delete(number):
            await stage.cluster.delete_pod(pods[number])
            await stage.until_deleting(f"web-{number}")
            await stage.let_go(f"web-{number}")

        async with asyncio.TaskGroup() as group:
            for number in range(many):
                group.create_task(delete(number))
        await stage.proxy.wait_for(lambda: releases.hits >= CALLS * 3 // 4)
        await another_is_served_before(stage, held)
        await stage.cloud.wait_for(lambda: len(stage.cloud.ports) == 1)


async def test_new_pod_gets_its_port_while_those_of_many_get_other_groups(stage):
    async with stage.controller(**_few()):
        await add_all(stage, MANY)
        await until_all_plugged_in(stage, MANY)
    group = stage.cloud.add_security_group("other")["id"]
    held = Hang()
    changes = stage.cloud.faults.add(method="PUT", path=r"/ports/", times=None, action=held)
    async with stage.controller(**_few(), neutron_defaults={"pod_security_groups": group}):
        await stage.until(lambda: _held(changes))
        await another_is_served_before(stage, held)
        await stage.cloud.wait_for(
            lambda: {(group,)} == {tuple(p["security_groups"]) for p in stage.cloud.ports.values()}
        )


@pytest.mark.parametrize("status", [500, 503])
async def test_pods_that_an_outage_delayed_get_their_ports_when_neutron_serves_again(
    stage, status
):
    outage = stage.cloud.faults.add(
        method="POST", path=r"/ports$", times=None, action=answer(status)
    )
    async with stage.controller(patience=LATE) as app:
        await add_all(stage, MANY)
        await stage.until(lambda: _failed(app, MANY))
        outage.remove()
        await stage.cluster.add_pod("first", node=NODE)
        await until_all_plugged_in(stage, MANY)
        assert len(stage.cloud.ports) == MANY + 1


async def test_pods_that_found_no_quota_get_their_ports_when_there_is_some(stage):
    stage.cloud.set_quota(stage.cloud.project_id, port=0)
    async with stage.controller(patience=LATE) as app:
        await add_all(stage, MANY)
        await stage.until(lambda: _failed(app, MANY))
        stage.cloud.set_quota(stage.cloud.project_id, port=MANY + 1)
        await stage.cluster.add_pod("first", node=NODE)
        await until_all_plugged_in(stage, MANY)


def _few():
    return {group: dict(options) for group, options in FEW.items()}


async def _held(rule):
    """Return whether as many requests are held as calls that no Pod waits for may be in flight."""
    return rule.hits == 3


async def _failed(app, count):
    labels = {"handler": "kuryrport", "outcome": "error"}
    return (app.registry.get_sample_value("kuryr_reconciles_total", labels) or 0) >= count
