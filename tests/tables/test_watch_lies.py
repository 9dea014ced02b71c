"""Each watch lies in each way, while a port is made and while it is given back.

Every kind matters to these lives: the Pod's project is named by its Namespace, its host by its
Node, which come after the controller; and where the Node's end is what frees the port, nobody
else says so. An event that got lost with its connection, that came late or twice, a stream that
expired: the lives must end alike, and no write may be made because of it.
"""

import asyncio

import pytest

from kuryr_k8s.model.annotations import HOST_ID, PROJECT
from tests.kit.stages import HOST
from tests.lives.pods import LONG
from tests.tables.lies import LIES, truth
from tests.tables.report import judge
from tests.tables.runs import LATE, Cell, Record, compare
from tests.tables.state import state_of
from tests.tables.targets import places

POD = "web"
KINDS = ("pods", "kuryrports", "nodes", "namespaces")
PHASES = ("making", "giving back")


async def life(stage, at, lie, phase, *, node_goes):
    """Namespace, Pod, Node and the daemon's word come in turn; then all of them go."""
    async with asyncio.TaskGroup() as group:
        if phase == "making":
            group.create_task(lie())
            await asyncio.sleep(0)  # it is armed before anything happens
        annotation = {PROJECT: stage.cloud.project_id}
        await stage.cluster.add_namespace(annotations=annotation)
        node = f"/api/v1/nodes/{stage.node}"
        await stage.cluster.add_node(stage.node)
        pod = await stage.cluster.add_pod(POD, node=stage.node)
        published = {"metadata": {"annotations": {HOST_ID: HOST}}}
        await stage.client.patch(node, published)
        await stage.until_plugged_in(POD, within=LONG)
        await stage.activate(POD)
        await at("running")
        if phase == "giving back":
            group.create_task(lie())
            await asyncio.sleep(0)
        await stage.client.patch(
            f"/api/v1/namespaces/{stage.cluster.namespace}", {"metadata": {"labels": {"x": "y"}}}
        )
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting(POD)
        if node_goes:
            await stage.client.delete(node)
        else:
            await stage.let_go(POD)
        await stage.until_gone(POD)
        await at("end")


async def live(lanes, kind, lie, phase):
    """One such life in a lane where nothing is yet; its record."""
    record = Record()
    async with lanes.open(made=False) as stage:
        # by its Namespace's word alone the Pod's port is of the project that has the group
        other = {"project": stage.cloud.add_project("other")}
        grants = {"projects": f"{stage.cluster.namespace}:{stage.cloud.project_id}"}
        driver = {"pod_project_driver": "annotation", "use_events": "false"}
        options = {"kubernetes": driver, "neutron_defaults": other, "policy": grants}

        async def at(moment):
            record.states[moment] = await state_of(stage)

        async with asyncio.timeout(200), stage.controller(**options):
            await stage.proxy.wait_for(
                lambda: all(stage.proxy.watching(resource) == 1 for resource in KINDS)
            )
            await life(stage, at, lambda: lie(stage, kind), phase, node_goes=kind == "nodes")
            await asyncio.sleep(LATE)  # nothing may come any more
        record.places = places(stage)
    return record


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
async def test_watch_that_lies_changes_nothing_in_the_end(lanes, kind, request):
    record = await live(lanes, kind, truth, "making")

    async def cell(phase, name, lie):
        made = Cell("lies of watches", f"{kind}, {phase}", name, [])
        try:
            compare(made, record, await live(lanes, kind, lie, phase))
        except (TimeoutError, BaseExceptionGroup) as error:
            made.problems.append(f"never came to its end: {error!r}")
        return made

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(cell(phase, name, lie))
            for phase in PHASES
            for name, lie in LIES.items()
        ]
    judge(request.config, [task.result() for task in tasks])
