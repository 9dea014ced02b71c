"""Pods that name Neutron ports which their users made."""

import json

import pytest

from tests.component.pools.pods import end
from tests.kit.confs import NODE, VM, add_vm
from tests.kit.fakes.faults import answer
from tests.kit.kube.objects import path_of

ANNOTATION = "openstack.org/spec-ports"
DEFAULT = "openstack.org/spec-default-port"
PATIENCE = {"first_refused": 0.2, "refused": 0.2, "first_retry": 0.1, "unneeded": 0.1}
CHANGING = ("revision_number", "updated_at", "status")


def naming(*ports):
    return {ANNOTATION: json.dumps([port["id"] for port in ports])}


def made(stage, **fields):
    """A port that a user made, in a network of its own."""
    network = stage.cloud.add_network("storage", "10.70.0.0/24", "fd70::/64")
    return stage.cloud.add_port(network["id"], name="theirs", **fields)


def as_it_is(stage, port):
    live = stage.cloud.ports[port["id"]]
    return {name: value for name, value in live.items() if name not in CHANGING}


@pytest.mark.parametrize("annotation", [ANNOTATION, "spec-ports"])
async def test_named_port_is_an_interface_and_is_given_back_as_it_was(stage, annotation):
    port = made(stage, security_groups=[], description="of the user")
    before = as_it_is(stage, port)
    async with stage.controller():
        annotations = {annotation: json.dumps([port["id"]])}
        pod = await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_plugged_in("web")
        found = await stage.port_ids("web")
        assert list(found) == ["eth0", "eth1"]
        assert found["eth1"] == port["id"]
        live = stage.cloud.ports[port["id"]]
        assert live["device_id"] == pod["metadata"]["uid"]
        assert live["binding:host_id"] == "chassis1"
        kept = ("name", "description", "security_groups", "mac_address", "fixed_ips", "tags")
        assert {name: live[name] for name in kept} == {name: before[name] for name in kept}
        await end(stage, "web", pod)
    assert as_it_is(stage, port) == before
    assert set(stage.cloud.ports) == {port["id"]}


async def test_named_port_may_be_the_default_interface(stage):
    port = made(stage)
    async with stage.controller():
        annotations = {DEFAULT: port["id"]}
        pod = await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_plugged_in("web")
        assert await stage.port_ids("web") == {"eth0": port["id"]}
        await end(stage, "web", pod)
    assert set(stage.cloud.ports) == {port["id"]}


REFUSED = {  # what of the port is so, and the words of the Event
    "in use": ({"device_owner": "compute:nova", "device_id": "vm"}, "is in use by compute:nova"),
    "direct": ({"binding:vnic_type": "direct"}, "vnic_type is direct"),
    "down": ({"admin_state_up": False}, "admin_state_up is false"),
    "open": (
        {"port_security_enabled": False, "security_groups": []},
        "no port security, which is not granted",
    ),
    "tenant": ({}, "there is no port"),
    "missing": ({}, "there is no port"),
    "twice": ({}, "is named twice"),
    "policy": ({}, "is not granted to namespace"),
    "no JSON": ({}, "is no JSON"),
}


@pytest.fixture(params=list(REFUSED))
def refused(request, stage):
    """What is asked for, the words of its Event, and the policy."""
    cloud, (fields, words) = stage.cloud, REFUSED[request.param]
    if request.param == "tenant":
        fields = {"project_id": cloud.add_project("tenant")}
    port = made(stage, **fields)
    annotations = {
        "missing": {ANNOTATION: json.dumps([cloud.pods["id"]])},
        "twice": naming(port, port),
        "no JSON": {ANNOTATION: port["id"]},
    }
    policy = {"ports": "elsewhere:*"} if request.param == "policy" else {}
    return annotations.get(request.param, naming(port)), words, policy


async def test_what_cannot_be_is_an_event_and_nothing_is_changed(stage, refused):
    annotations, words, policy = refused
    before = {port_id: as_it_is(stage, port) for port_id, port in stage.cloud.ports.items()}
    async with stage.controller(policy=policy):
        await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_told(words)
        assert "vifs" not in ((await stage.kuryrport("web")).get("status") or {})
        await stage.cloud.wait_for(
            lambda: (
                {port_id: as_it_is(stage, port) for port_id, port in stage.cloud.ports.items()}
                == before
            )
        )


async def test_port_of_another_project_can_be_granted_by_its_id(stage):
    port = made(stage, project_id=stage.cloud.add_project("tenant"))
    policy = {"ports": f"{stage.cluster.namespace}:{port['id']}"}
    async with stage.controller(policy=policy):
        await stage.cluster.add_pod("web", node=NODE, annotations=naming(port))
        await stage.until_plugged_in("web")
        assert (await stage.port_ids("web"))["eth1"] == port["id"]


async def test_of_two_pods_that_name_one_port_the_second_has_it_after_the_first(stage):
    port = made(stage)
    before = as_it_is(stage, port)
    async with stage.controller(patience={"first_refused": 600.0, "refused": 600.0}):
        first = await stage.cluster.add_pod("first", node=NODE, annotations=naming(port))
        await stage.until_plugged_in("first")
        second = await stage.cluster.add_pod("second", node=NODE, annotations=naming(port))
        assert await stage.until_told(port["id"], "is in use") == "KuryrPortInUse"
        assert not stage.ports_of(second)
        await end(stage, "first", first)
        await stage.until_plugged_in("second")
        assert (await stage.port_ids("second"))["eth1"] == port["id"]
        await end(stage, "second", second)
    assert as_it_is(stage, port) == before


async def test_port_that_is_not_named_any_more_is_given_back(stage):
    """The Pod got none of its interfaces yet, and its annotation names another port now."""
    first = made(stage)
    second = stage.cloud.add_port(first["network_id"])
    before = as_it_is(stage, first)
    broken = stage.cloud.faults.add(
        method="POST", path="/v2.0/ports", times=None, action=answer(500)
    )
    async with stage.controller(patience=PATIENCE):
        pod = await stage.cluster.add_pod("web", node=NODE, annotations=naming(first))
        await stage.cloud.wait_for(lambda: as_it_is(stage, first) != before)
        await stage.client.patch(path_of(pod), {"metadata": {"annotations": naming(second)}})

        async def has_recorded_the_second():
            return second["id"] in (await stage.kuryrport("web"))["status"]["specificPorts"]

        await stage.until(has_recorded_the_second)
        broken.remove()
        await stage.until_plugged_in("web")
        assert (await stage.port_ids("web"))["eth1"] == second["id"]

        async def has_forgotten_the_first():
            recorded = (await stage.kuryrport("web"))["status"]["specificPorts"]
            return list(recorded) == [second["id"]]

        await stage.until(has_forgotten_the_first)
        assert as_it_is(stage, first) == before


async def test_host_that_the_user_changes_meanwhile_is_restored_as_it_is_then(stage):
    """The port was recorded, and not taken yet: what is recorded by then is out of date."""
    port = made(stage, **{"binding:host_id": "first"})
    live = stage.cloud.ports[port["id"]]

    async def change(_request, proceed):
        live.update({"binding:host_id": "second", "revision_number": live["revision_number"] + 1})
        return await proceed()

    stage.proxy.faults.add(method="PATCH", path="/kuryrports/web/status", action=change)
    async with stage.controller(patience=PATIENCE):
        pod = await stage.cluster.add_pod("web", node=NODE, annotations=naming(port))
        await stage.until_plugged_in("web")
        await end(stage, "web", pod)
    assert as_it_is(stage, port)["binding:host_id"] == "second"


async def test_node_that_cannot_have_such_ports_refuses_the_pod_and_lets_it_go(stage):
    port = made(stage)
    before = as_it_is(stage, port)
    options = add_vm(stage.cloud)
    await stage.cluster.add_node("vm", addresses=(VM,))
    async with stage.controller(**options, patience=PATIENCE):
        pod = await stage.cluster.add_pod("web", node="vm", annotations=naming(port))
        await stage.until_told("nested-vlan cannot honour port_id")
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("web")
        await stage.let_go("web")
        await stage.until_gone("web")
    assert as_it_is(stage, port) == before


async def test_port_is_given_back_if_another_interface_cannot_be_made(stage):
    port = made(stage)
    before = as_it_is(stage, port)
    options = {"multi_vif_drivers": "specific_ports,additional_subnets"}
    small = stage.cloud.add_network("small", "10.9.0.0/30")
    stage.cloud.add_port(small["id"])
    async with stage.controller(kubernetes=options, patience=PATIENCE):
        annotations = naming(port) | {
            "openstack.org/kuryr-additional-subnets": json.dumps(small["subnets"])
        }
        pod = await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_told("10.9.0.0/30")
        await stage.cloud.wait_for(
            lambda: as_it_is(stage, port) == before and not stage.ports_of(pod)
        )


async def test_pods_may_name_no_ports_where_the_operator_says_so(stage):
    port = made(stage)
    async with stage.controller(kubernetes={"specific_ports": "false"}):
        await stage.cluster.add_pod("web", node=NODE, annotations=naming(port))
        await stage.until_plugged_in("web")
        assert list(await stage.port_ids("web")) == ["eth0"]


async def test_port_of_a_pod_that_is_gone_is_given_back(stage):
    """Somebody has removed our finalizer, say."""
    port = made(stage)
    before = as_it_is(stage, port)
    groups = {"neutron_defaults": {"sweep_interval": "1"}, "patience": PATIENCE}
    async with stage.controller(**groups):
        await stage.cluster.add_pod("web", node=NODE, annotations=naming(port))
        await stage.until_plugged_in("web")
    pod = await stage.client.find(f"/api/v1/namespaces/{stage.cluster.namespace}/pods/web")
    await stage.cluster.delete_pod(pod)
    await stage.client.patch(stage.path("web"), {"metadata": {"finalizers": None}})
    await stage.client.request("DELETE", stage.path("web"))
    async with stage.controller(**groups):
        await stage.cloud.wait_for(lambda: as_it_is(stage, port) == before)


async def test_what_a_port_was_like_is_restored_where_others_have_changed_the_record(stage):
    port = made(stage, **{"binding:host_id": "of-the-user"})
    before = as_it_is(stage, port)
    path = f"/apis/openstack.org/v1/namespaces/{stage.cluster.namespace}/kuryrports/web/status"
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node=NODE, annotations=naming(port))
        await stage.until_plugged_in("web")
        recorded = (await stage.kuryrport("web"))["status"]["specificPorts"]
        assert recorded == {port["id"]: {"binding:host_id": "of-the-user"}}
        for forged in (None, {port["id"]: {"binding:host_id": "elsewhere"}, "another": {}}):
            await stage.client.patch(path, {"status": {"specificPorts": forged}})

            async def restored():
                return (await stage.kuryrport("web"))["status"].get("specificPorts") == recorded

            await stage.until(restored)
        await end(stage, "web", pod)
    assert as_it_is(stage, port) == before
