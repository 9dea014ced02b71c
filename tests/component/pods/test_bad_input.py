"""Wrong input and things that are gone: one Event, no busy loop, and recovery when it is mended.

All cases run side by side, since each takes its time until it is tried again.
"""

import asyncio

import pytest
from aiohttp import web

from kuryr_k8s.model.annotations import PROJECT
from tests.kit.fakes.faults import answer
from tests.tables.runs import PATIENCE

POD = "web"
# seconds: the shortest back-off, which doubles, and the time until a refusal is tried again
PATIENT = {"first_retry": 0.1, "first_refused": 0.2, "refused": 0.5}
TRIES = 4  # besides those until the Event
# Seconds: 0.1 + 0.2 + 0.4, less a tenth. What is left of the wait when the Event is seen, and
# whatever a busy machine adds, does not count.
SHORTEST = 0.63


def gone(kind):
    """An object of the cloud is deleted under the controller, and comes back."""

    async def spoil(stage):
        objects = getattr(stage.cloud, kind)
        wanted = {
            "networks": stage.cloud.pods["id"],
            "subnets": stage.cloud.pods["subnets"][0],
            "security_groups": stage.cloud.group["id"],
        }[kind]
        lost = objects.pop(wanted)
        known = stage.cloud.pods["subnets"]
        if kind == "subnets":
            known.remove(wanted)

        async def mend():
            objects[wanted] = lost
            if kind == "subnets":
                known.insert(0, wanted)

        return mend

    return spoil


async def quota_of_zero(stage):
    stage.cloud.set_quota(stage.cloud.project_id, port=0)

    async def mend():
        stage.cloud.set_quota(stage.cloud.project_id, port=-1)

    return mend


async def no_free_address(stage):
    """Nobody of ours has an address that could be freed: the operator makes room."""
    allocator = stage.cloud.store.allocators[stage.cloud.pods["subnets"][0]]
    stage.cloud.store.allocators[stage.cloud.pods["subnets"][0]] = type(allocator)([])

    async def mend():
        stage.cloud.store.allocators[stage.cloud.pods["subnets"][0]] = allocator

    return mend


def neutron_that_answers(method, path, action):
    async def spoil(stage):
        rule = stage.cloud.faults.add(method=method, path=path, times=None, action=action)

        async def mend():
            rule.remove()

        return mend

    return spoil


async def nothing_of_a_port(_request, _proceed):
    return web.json_response({"port": {}, "ports": [{}]}, status=201)


async def junk_for_a_project(stage):
    path = f"/api/v1/namespaces/{stage.cluster.namespace}"
    annotation = {PROJECT: "{no: [project"}
    passed = stage.proxy.events.passed
    await stage.client.patch(path, {"metadata": {"annotations": annotation}})
    await stage.proxy.wait_for(lambda: stage.proxy.events.passed > passed)

    async def mend():
        await stage.client.patch(path, {"metadata": {"annotations": {PROJECT: None}}})

    return mend


CASES = {
    "network deleted": (gone("networks"), "OpenStackObjectNotFound", "etwork"),
    "subnet deleted": (gone("subnets"), "OpenStackObjectNotFound", "ubnet"),
    "security group deleted": (gone("security_groups"), "OpenStackObjectNotFound", "ecurity"),
    "quota of zero": (quota_of_zero, "OpenStackQuotaExceeded", "quota for ports is exhausted"),
    "no free address": (no_free_address, "OpenStackQuotaExceeded", "no free address in network"),
    "Neutron that fails": (
        neutron_that_answers("POST", "/ports$", answer(503, message="come later")),
        "OpenStackFailed",
        "come later",
    ),
    "answer that makes no sense": (
        neutron_that_answers("POST", "/ports$", nothing_of_a_port),
        "KuryrFailed",
        "'id'",
    ),
    "junk for a project": (junk_for_a_project, "KuryrRefused", "does not grant"),
}


async def told_once_and_recovered(lanes, case):
    """Wrong from before the Pod until it was tried again and again; then mended."""
    spoil, reason, words = CASES[case]
    driver = {"pod_project_driver": "annotation"}
    async with (
        lanes.open() as stage,
        stage.controller(kubernetes=driver, patience=PATIENT) as app,
    ):
        await stage.proxy.wait_for(lambda: stage.proxy.watching("namespaces") == 1)
        mend = await spoil(stage)
        pod = await stage.cluster.add_pod(POD, node=stage.node)
        note = await told(stage, reason)
        assert words in note, note
        begun, before = asyncio.get_running_loop().time(), failures(app)

        async def tried_again():
            return failures(app) >= before + TRIES

        await stage.until(tried_again)
        seconds = asyncio.get_running_loop().time() - begun
        assert seconds >= SHORTEST, f"{TRIES} tries in {seconds} s"
        await mend()
        # the next try is as far away as the back-off has grown by now
        await stage.until_plugged_in(POD, within=PATIENCE)
        assert [told for told, _note in await stage.events()] == [reason]
        assert len(stage.ports_of(pod)) == len(stage.cloud.ports) == 1


def failures(app):
    """The number of reconciles of KuryrPorts that failed."""
    of = [{"handler": "kuryrport", "outcome": outcome} for outcome in ("error", "refused")]
    values = [app.registry.get_sample_value("kuryr_reconciles_total", labels) for labels in of]
    return sum(value or 0 for value in values)


async def told(stage, reason):
    """The note of the Event of this reason, which must be the first one."""

    async def first():
        return await stage.events()

    ((found, note),) = await stage.until(first)
    assert found == reason, (found, note)
    return note


async def test_wrong_input_is_told_once_and_tried_again_slowly_until_it_is_mended(lanes):
    problems = []

    async def run(case):
        try:
            await told_once_and_recovered(lanes, case)
        except (AssertionError, TimeoutError, BaseExceptionGroup) as error:
            problems.append(f"{case}: {_first(error)!r}")

    async with asyncio.TaskGroup() as group:
        for case in CASES:
            group.create_task(run(case))
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


async def test_junk_in_a_kuryrport_is_told_and_its_port_goes_when_it_is_mended(lanes):
    async with lanes.open() as stage:
        async with stage.controller():
            pod = await stage.cluster.add_pod(POD, node=stage.node)
            await stage.until_plugged_in(POD)
        vifs = (await stage.kuryrport(POD))["status"]["vifs"]
        path = f"{stage.path(POD)}/status"
        junk = {"eth0": {"vif": {"versioned_object.name": "Junk"}}}
        replace = [{"op": "replace", "path": "/status/vifs", "value": junk}]
        await stage.client.patch(path, replace, "application/json-patch+json")
        async with stage.controller():
            await stage.cluster.set_phase(pod, "Succeeded")
            await stage.until_deleting(POD)
            await stage.let_go(POD)
            note = await told(stage, "KuryrRefused")
            assert "Junk" in note or "VIF" in note, note
            calls = len(stage.cloud.calls)
            assert len(stage.ports_of(pod)) == 1
            mended = [{"op": "replace", "path": "/status/vifs", "value": vifs}]
            await stage.client.patch(path, mended, "application/json-patch+json")
            await stage.until_gone(POD)
            assert not stage.cloud.ports
            assert [call.method for call in stage.cloud.calls[calls:]] == ["DELETE"]


async def test_junk_in_a_pods_annotations_is_nobodys_business(lanes):
    async with lanes.open() as stage, stage.controller():
        marks = {PROJECT: "{junk", "openstack.org/kuryr-host-id": "chassis2", "a/b": "\x00{]"}
        pod = await stage.cluster.add_pod(POD, node=stage.node, annotations=marks)
        await stage.until_plugged_in(POD)
        (port,) = stage.ports_of(pod)
        assert port["project_id"] == stage.cloud.project_id
        assert not await stage.events()


def _first(error):
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
