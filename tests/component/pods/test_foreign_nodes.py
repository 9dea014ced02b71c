"""Nodes whose Pods get their network from somebody else, such as Virtual Kubelet's."""

import pytest

from kuryr_k8s.model.annotations import HOST_ID
from tests.kit.confs import NODE

MARKS = {
    "label of Virtual Kubelet": {"metadata": {"labels": {"type": "virtual-kubelet"}}},
    "taint of Virtual Kubelet": {
        "spec": {"taints": [{"key": "virtual-kubelet.io/provider", "effect": "NoSchedule"}]}
    },
    "pod_vif=none": {"metadata": {"labels": {"pod_vif": "none"}}},
}
VIRTUAL = "virtual"


@pytest.fixture(params=MARKS.values(), ids=MARKS)
async def marked(stage, request):
    """A Node with a mark."""
    await stage.cluster.add_node(VIRTUAL)
    await stage.client.patch(f"/api/v1/nodes/{VIRTUAL}", request.param)


@pytest.mark.usefixtures("marked")
async def test_pods_on_foreign_nodes_are_left_alone(stage):
    await stage.cluster.add_pod("foreign", node=VIRTUAL)
    async with stage.controller():
        await stage.cluster.add_pod("foreign-too", node=VIRTUAL)
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        assert [item["metadata"]["name"] for item in await stage.kuryrports()] == ["web"]
        assert not await stage.events()


async def test_a_pod_that_waits_on_a_node_is_left_alone_once_the_node_is_marked(stage):
    await stage.cluster.add_node(VIRTUAL)
    async with stage.controller():
        await stage.cluster.add_pod("waits", node=VIRTUAL)
        await stage.until_event("KuryrNodeNotReady")
        await stage.client.patch(f"/api/v1/nodes/{VIRTUAL}", MARKS["pod_vif=none"])
        await stage.until_gone("waits")


async def test_a_pod_of_a_node_that_is_no_longer_foreign_gets_its_port(stage):
    await stage.cluster.add_node(VIRTUAL, annotations={HOST_ID: "chassis2"})
    await stage.client.patch(f"/api/v1/nodes/{VIRTUAL}", MARKS["pod_vif=none"])
    async with stage.controller():
        pod = await stage.cluster.add_pod("foreign", node=VIRTUAL)
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        assert not stage.ports_of(pod)
        unmarked = {"metadata": {"labels": {"pod_vif": None}}}
        await stage.client.patch(f"/api/v1/nodes/{VIRTUAL}", unmarked)
        await stage.until_plugged_in("foreign")
    assert len(stage.ports_of(pod)) == 1


async def test_a_pod_with_a_port_keeps_it_when_its_node_is_marked(stage):
    await stage.cluster.add_node(VIRTUAL, annotations={HOST_ID: "chassis2"})
    async with stage.controller():
        pod = await stage.cluster.add_pod("old", node=VIRTUAL)
        await stage.until_plugged_in("old")
        await stage.client.patch(f"/api/v1/nodes/{VIRTUAL}", MARKS["pod_vif=none"])
        await stage.cluster.add_pod("new", node=VIRTUAL)
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        names = {item["metadata"]["name"] for item in await stage.kuryrports()}
        assert names - {"new"} == {"old", "web"}
        await stage.until_gone("new")
        assert len(stage.ports_of(pod)) == 1
