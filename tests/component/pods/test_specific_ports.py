"""Pods that name Neutron ports which their users made."""

import json

import pytest

from kuryr_k8s.cloud.neutron.specific_ports import ATTACHED_TO, ON_TRUNK, TAKEN
from tests.component.pools.pods import end
from tests.kit.confs import CLUSTER, MACHINE, NODE, VM, add_machine, add_vm
from tests.kit.fakes.faults import answer
from tests.kit.kube.objects import path_of

ANNOTATION = "openstack.org/spec-ports"
DEFAULT = "openstack.org/spec-default-port"
PATIENCE = {"first_refused": 0.2, "refused": 0.2, "first_retry": 0.1, "unneeded": 0.1}
OTHER_VM = "10.63.0.77"
GONE = "6f1c1d1e-0000-4000-8000-000000000001"  # the uid of a Pod
TAG = f"{ON_TRUNK}{CLUSTER}"  # of a port that is, or was, a subport
CHANGING = ("revision_number", "updated_at", "status")


def naming(*ports):
    return {ANNOTATION: json.dumps([port["id"] for port in ports])}


def made(stage, **fields):
    """A port that a user made, in a network of its own."""
    network = stage.cloud.add_network("storage", "10.70.0.0/24", "fd70::/64", mtu=1442)
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


@pytest.fixture(params=["bare metal", "VM"])
async def node(request, stage):
    """A node's name, and the options for it."""
    if request.param == "bare metal":
        return NODE, {}
    await stage.cluster.add_node("vm", addresses=(VM,))
    return "vm", add_vm(stage.cloud)


async def test_named_port_is_a_subport_on_a_vm_and_is_given_back_as_it_was(stage):
    port = made(stage, tags=["of the user"], **{"binding:host_id": "of-the-user"})
    before = as_it_is(stage, port)
    options = add_vm(stage.cloud) | {"neutron_defaults": {"sweep_interval": "1"}}
    await stage.cluster.add_node("vm", addresses=(VM,))
    trunk = stage.cloud.trunk
    async with stage.controller(**options):
        for name in ("first", "second"):  # the second one has it after the first
            pod = await stage.cluster.add_pod(name, node="vm", annotations=naming(port))
            await stage.until_plugged_in(name)
            assert (await stage.port_ids(name))["eth1"] == port["id"]
            vifs = (await stage.kuryrport(name))["status"]["vifs"]
            vlan_ids = {
                vif["id"]: vif["vlan_id"]
                for vif in (entry["vif"]["versioned_object.data"] for entry in vifs.values())
            }
            assert vlan_ids == {
                subport["port_id"]: subport["segmentation_id"] for subport in trunk["sub_ports"]
            }
            live = as_it_is(stage, port)
            assert live["binding:profile"]["parent_name"] == trunk["port_id"]
            assert live["device_owner"] == "trunk:subport"
            assert live["device_id"].endswith(f":{pod['metadata']['uid']}")
            await end(stage, name, pod)
            assert not trunk["sub_ports"]
            await stage.cloud.wait_for(lambda: as_it_is(stage, port) == before)


REFUSED = {  # what of the port is so, and the words of the Event
    "in use": ({"device_owner": "compute:nova", "device_id": "vm"}, "is in use by compute:nova"),
    "subport": ({"device_owner": "trunk:subport"}, "is in use by trunk:subport"),
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


async def test_of_two_pods_that_name_one_port_the_second_has_it_after_the_first(stage, node):
    port = made(stage)
    before = as_it_is(stage, port)
    name, options = node
    patience = {"first_refused": 600.0, "refused": 600.0}
    async with stage.controller(**options, patience=patience):
        first = await stage.cluster.add_pod("first", node=name, annotations=naming(port))
        await stage.until_plugged_in("first")
        second = await stage.cluster.add_pod("second", node=name, annotations=naming(port))
        assert await stage.until_told(port["id"], "is in use") == "KuryrPortInUse"
        assert not stage.ports_of(second)
        await end(stage, "first", first)
        await stage.until_plugged_in("second")
        assert (await stage.port_ids("second"))["eth1"] == port["id"]
        await end(stage, "second", second)
    assert as_it_is(stage, port) | {"tags": []} == before


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
    add_machine(stage.cloud)
    options = {
        "kubernetes": {"pod_vif_driver": "nested-macvlan"},
        "pod_vif_nested": {"worker_nodes_subnets": stage.cloud.pods["subnets"][0]},
    }
    await stage.cluster.add_node("vm", addresses=(MACHINE,))
    async with stage.controller(**options, patience=PATIENCE):
        pod = await stage.cluster.add_pod("web", node="vm", annotations=naming(port))
        await stage.until_told("nested-macvlan cannot honour port_id")
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


async def test_port_of_a_pod_that_is_gone_is_given_back(stage, node):
    """Somebody has removed our finalizer, say."""
    port = made(stage)
    before = as_it_is(stage, port)
    name, options = node
    groups = options | {"neutron_defaults": {"sweep_interval": "1"}, "patience": PATIENCE}
    async with stage.controller(**groups):
        await stage.cluster.add_pod("web", node=name, annotations=naming(port))
        await stage.until_plugged_in("web")
    pod = await stage.client.find(f"/api/v1/namespaces/{stage.cluster.namespace}/pods/web")
    await stage.cluster.delete_pod(pod)
    await stage.client.patch(stage.path("web"), {"metadata": {"finalizers": None}})
    await stage.client.request("DELETE", stage.path("web"))
    async with stage.controller(**groups):
        await stage.cloud.wait_for(lambda: as_it_is(stage, port) == before)


REMAINS = {  # of the fields, and whether the port is on the trunk
    "reserved": ({"device_owner": f"{TAKEN}{CLUSTER}:{GONE}"}, False),
    "attached": ({"device_owner": "trunk:subport", "binding:host_id": "of-the-user"}, True),
    "taken": ({"device_owner": "trunk:subport", "device_id": f"{TAG}:{GONE}"}, True),
    "detached": ({"device_id": f"{TAG}:{GONE}"}, False),
    "given back": ({}, False),
}


def attach(trunk, port):
    """Put the port onto the trunk; return the fields by which it shows that."""
    trunk["sub_ports"].append({"port_id": port["id"], "segmentation_id": 7})
    return {"binding:profile": {"parent_name": trunk["port_id"], "tag": 7}}


@pytest.mark.parametrize("what", REMAINS)
async def test_remains_of_an_attachment_that_nobody_finished_are_removed(stage, what):
    add_vm(stage.cloud)
    port = made(stage)
    fields, is_attached = REMAINS[what]
    kept = {name: value for name, value in fields.items() if name.startswith("binding")}
    before = as_it_is(stage, port) | {"tags": ["of the user"]} | kept
    parent = stage.cloud.trunk["port_id"]
    left = {"tags": ["of the user", TAG, f"{ATTACHED_TO}{parent}"], **fields}
    left |= attach(stage.cloud.trunk, port) if is_attached else {}
    stage.cloud.store.change("port", stage.cloud.ports[port["id"]], left)
    async with stage.controller(neutron_defaults={"sweep_interval": "1"}, patience=PATIENCE):
        await stage.cloud.wait_for(lambda: as_it_is(stage, port) == before)
    assert not stage.cloud.trunk["sub_ports"]


async def test_port_that_a_user_attached_to_another_trunk_stays_there(stage):
    """It was a Pod's on another trunk before."""
    add_vm(stage.cloud)
    port = made(stage)
    theirs = {"device_owner": "trunk:subport", **attach(stage.cloud.trunk, port)}
    tags = {"tags": [TAG, f"{ATTACHED_TO}another-port"]}
    stage.cloud.store.change("port", stage.cloud.ports[port["id"]], theirs | tags)
    before = as_it_is(stage, port) | {"tags": []}
    async with stage.controller(neutron_defaults={"sweep_interval": "1"}, patience=PATIENCE):
        await stage.cloud.wait_for(lambda: as_it_is(stage, port) == before)
    assert stage.cloud.trunk["sub_ports"]


@pytest.mark.parametrize("another", [True, False])
async def test_port_that_is_attached_after_its_pod_is_gone_is_detached(stage, another):
    """Neutron carries out a request that was sent long before.

    :param another: whether a Pod on another VM is just getting the port then.
    """
    port = made(stage, **{"binding:host_id": "of-the-user"})
    before, live = as_it_is(stage, port), stage.cloud.ports[port["id"]]
    options = add_vm(stage.cloud) | {"neutron_defaults": {"sweep_interval": "1"}}
    trunk = stage.cloud.trunk
    add_vm(stage.cloud, OTHER_VM)
    for name, address in (("vm", VM), ("other", OTHER_VM)):
        await stage.cluster.add_node(name, addresses=(address,))
    async with stage.controller(**options, patience=PATIENCE):
        pod = await stage.cluster.add_pod("web", node="vm", annotations=naming(port))
        await stage.until_plugged_in("web")
        await end(stage, "web", pod)
        if another:
            stage.cloud.faults.add(method="PUT", path=f"/ports/{port['id']}$", action=answer(500))
            pod = await stage.cluster.add_pod("next", node="other", annotations=naming(port))
            await stage.cloud.wait_for(lambda: stage.cloud.trunk["port_id"] in str(live["tags"]))
        late = {"device_owner": "trunk:subport", **attach(trunk, port)}
        stage.cloud.store.change("port", live, late)
        await stage.cloud.wait_for(lambda: not trunk["sub_ports"])
        if another:
            await stage.until_plugged_in("next")
            assert (await stage.port_ids("next"))["eth1"] == port["id"]
            await end(stage, "next", pod)
        # whether it is bound, Neutron says anew with the next change of its host
        bound = {"binding:vif_type": before["binding:vif_type"]}
        await stage.cloud.wait_for(lambda: as_it_is(stage, port) | bound == before)


async def test_port_that_is_detached_under_a_running_pod_is_attached_again(stage):
    """Neutron carries out a removal that was meant for an earlier Pod, say."""
    port = made(stage)
    options = add_vm(stage.cloud) | {"neutron_defaults": {"sweep_interval": "1"}}
    await stage.cluster.add_node("vm", addresses=(VM,))
    trunk, live = stage.cloud.trunk, stage.cloud.ports[port["id"]]
    async with stage.controller(**options, patience=PATIENCE):
        await stage.cluster.add_pod("web", node="vm", annotations=naming(port))
        await stage.until_plugged_in("web")
        before = {"port": as_it_is(stage, port), "subports": list(trunk["sub_ports"])}
        trunk["sub_ports"][:] = [
            each for each in trunk["sub_ports"] if each["port_id"] != port["id"]
        ]
        stage.cloud.store.change("port", live, {"device_owner": "", "binding:profile": {}})

        def as_before():
            subports = sorted(trunk["sub_ports"], key=before["subports"].index)
            return before == {"port": as_it_is(stage, port), "subports": subports}

        await stage.cloud.wait_for(
            lambda: len(trunk["sub_ports"]) == len(before["subports"]) and as_before()
        )


@pytest.mark.parametrize("goes_on", [True, False])
async def test_attachment_is_finished_even_if_others_remove_the_tags(stage, goes_on):
    """The controller ends between the attachment and the change after it."""
    port = made(stage, **{"binding:host_id": "of-the-user"})
    before = as_it_is(stage, port)
    options = add_vm(stage.cloud)
    await stage.cluster.add_node("vm", addresses=(VM,))
    live = stage.cloud.ports[port["id"]]

    def is_after_the_attachment(_request):
        return live["device_owner"] == "trunk:subport"

    cut = stage.cloud.faults.add(
        method="PUT", path="/ports/", when=is_after_the_attachment, times=None, action=answer(500)
    )
    async with stage.controller(**options):
        pod = await stage.cluster.add_pod("web", node="vm", annotations=naming(port))
        await stage.cloud.wait_for(lambda: cut.hits)
    assert (live["device_owner"], live["device_id"]) == ("trunk:subport", "")
    stage.cloud.store.change("port", live, {"tags": []})
    stage.cloud.faults.clear()
    if not goes_on:
        await stage.cluster.delete_pod(pod)
    async with stage.controller(**options):
        if goes_on:
            await stage.until_plugged_in("web")
            assert live["device_id"].endswith(f":{pod['metadata']['uid']}")
            await end(stage, "web", pod)
        else:
            await stage.until_deleting("web")
            await stage.let_go("web")
            await stage.until_gone("web")
    assert not stage.cloud.trunk["sub_ports"]
    assert as_it_is(stage, port) | {"tags": []} == before


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
