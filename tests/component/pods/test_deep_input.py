"""JSON that users nest more deeply than Python's parser can read ends no program."""

import json

import pytest

from tests.kit.kube.objects import make_pod

LEVELS = 1500  # the server keeps up to 10,000, and Python reads about 1,000
PLACE = "@@"


def deep(levels):
    return '{"f:metadata":' + '{"f:a":' * levels + "{}" + "}" * (levels + 1)


def with_fields(body, levels=LEVELS):
    """Return a request that creates the object with deep managed fields."""
    entry = {"manager": "user", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    body["metadata"]["managedFields"] = [entry | {"fieldsV1": PLACE}]
    return json.dumps(body).replace(f'"{PLACE}"', deep(levels)).encode()


async def add_deep_pod(stage, name):
    namespace = stage.cluster.namespace
    pod = make_pod(name, namespace, node=stage.node)
    await stage.client.request("POST", f"/api/v1/namespaces/{namespace}/pods", with_fields(pod))


async def test_deep_managed_fields_of_pods_end_no_controller(stage):
    async with stage.controller():
        await add_deep_pod(stage, "deep")
        await stage.cluster.add_pod("web", node=stage.node)
        await stage.until_plugged_in("deep")
        await stage.until_plugged_in("web")
    await add_deep_pod(stage, "deeper")
    async with stage.controller():  # it lists them
        await stage.until_plugged_in("deeper")
    assert len(stage.cloud.ports) == 3


@pytest.mark.parametrize("levels", [300, 970, 980, 990, 1500])
async def test_deep_interfaces_of_a_kuryrport_end_no_controller(stage, levels):
    async with stage.controller():
        await stage.cluster.add_pod("web", node=stage.node)
        await stage.until_plugged_in("web")
        path = f"{stage.path('web')}/status"
        vifs = {"eth0": {"vif": {"versioned_object.data": PLACE}}}
        body = json.dumps({"status": {"vifs": vifs}}).replace(f'"{PLACE}"', deep(levels)).encode()
        await stage.client.request("PATCH", path, body, "application/merge-patch+json")
        await stage.cluster.add_pod("other", node=stage.node)
        await stage.until_plugged_in("other")
    async with stage.controller():
        await stage.cluster.add_pod("late", node=stage.node)
        await stage.until_plugged_in("late")
