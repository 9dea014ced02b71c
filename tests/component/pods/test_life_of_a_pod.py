"""The whole controller, a real API server, a fake Neutron: one Pod's life and its turns."""

import asyncio

import pytest

from kuryr_k8s.cloud.neutron.specific_ports import ON_TRUNK
from kuryr_k8s.handlers.nodes.ports import NODE_DEVICE_OWNER
from kuryr_k8s.model.annotations import HOST_ID
from tests.kit.confs import HOST, NODE, TAG
from tests.kit.fakes.faults import Hang, answer


async def test_scheduled_pod_gets_a_kuryrport_and_a_port(stage):
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node=NODE)
        vif = await stage.until_plugged_in("web")
        recorded = await stage.kuryrport("web")
    assert recorded["spec"] == {
        "podUid": pod["metadata"]["uid"],
        "podNodeName": NODE,
        "podStatic": False,
    }
    assert recorded["metadata"]["finalizers"] == stage.both_finalizers()
    assert recorded["metadata"]["labels"] == {"kuryr.openstack.org/nodeName": NODE}
    assert recorded["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert recorded["status"]["projectId"] == stage.cloud.project_id
    assert recorded["status"]["securityGroupIds"] == [stage.cloud.group["id"]]
    (port,) = stage.ports_of(pod)
    assert port["id"] == vif["id"]
    assert port["binding:host_id"] == HOST


async def test_pod_waits_for_its_node(stage):
    async with stage.controller():
        pod = await stage.cluster.add_pod("web")
        other = await stage.cluster.add_pod("other", node=NODE)
        await stage.until_plugged_in("other")
        assert await stage.kuryrport("web") is None
        await stage.cluster.bind(pod, NODE)
        await stage.until_plugged_in("web")
    assert len(stage.ports_of(pod)) == len(stage.ports_of(other)) == 1


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_finished_pod_gives_its_port_back_while_it_is_still_there(stage, phase):
    async with stage.controller():
        pod = await stage.cluster.add_pod("job", node=NODE)
        await stage.until_plugged_in("job")
        await stage.cluster.set_phase(pod, phase)
        await stage.until_deleting("job")
        await stage.let_go("job")
        await stage.until_gone("job")
    assert not stage.cloud.ports


async def test_pods_of_the_host_network_and_finished_ones_are_left_alone(stage):
    await stage.cluster.add_pod("host", node=NODE, host_network=True)
    done = await stage.cluster.add_pod("done", node=NODE)
    await stage.cluster.set_phase(done, "Succeeded")
    async with stage.controller():
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        assert [item["metadata"]["name"] for item in await stage.kuryrports()] == ["web"]


async def test_port_stays_until_the_node_has_let_go(stage):
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        await stage.cluster.delete_pod(pod)  # as by force: the Pod is gone, its sandbox may not be
        await stage.until_deleting("web")
        witness = await stage.cluster.add_pod("witness", node=NODE)
        await stage.until_plugged_in("witness")
        assert len(stage.ports_of(pod)) == 1
        await stage.let_go("web")
        await stage.until_gone("web")
    assert not stage.ports_of(pod)
    assert len(stage.ports_of(witness)) == 1


async def test_pod_made_again_under_its_name_gets_a_port_of_its_own(stage):
    async with stage.controller():
        old = await stage.cluster.add_pod("web-0", node=NODE)
        old_vif = await stage.until_plugged_in("web-0")
        await stage.cluster.delete_pod(old)
        new = await stage.cluster.add_pod("web-0", node=NODE)  # before anybody let go of the old
        await stage.until_deleting("web-0")
        assert not stage.ports_of(new)
        await stage.let_go("web-0")

        async def follows():
            recorded = await stage.kuryrport("web-0")
            return recorded and recorded["spec"]["podUid"] == new["metadata"]["uid"]

        await stage.until(follows)
        new_vif = await stage.until_plugged_in("web-0")
    assert new_vif["id"] != old_vif["id"]
    assert [port["id"] for port in stage.cloud.ports.values()] == [new_vif["id"]]


async def test_kuryrport_deleted_by_hand_keeps_the_port_of_its_running_pod(stage):
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node=NODE)
        vif = await stage.until_plugged_in("web")
        await stage.client.delete(stage.path("web"))
        await stage.cluster.add_pod("witness", node=NODE)
        await stage.until_plugged_in("witness")
        assert vif["id"] in stage.cloud.ports  # the node still has it plugged
        # its sandbox ends, so the node lets go; the Pod lives and needs another port
        await stage.let_go("web")

        async def another():
            fresh = await stage.kuryrport("web")
            return fresh and "deletionTimestamp" not in fresh["metadata"]

        await stage.until(another)
        again = await stage.until_plugged_in("web")
    assert again["id"] != vif["id"]
    assert [port["id"] for port in stage.ports_of(pod)] == [again["id"]]


async def test_static_pod_keeps_its_port_when_its_mirror_is_deleted_and_made_again(stage):
    value = "5f0c9b3a7d6e4f218a90b7c6d5e4f302"
    marks = {"kubernetes.io/config.mirror": value, "kubernetes.io/config.hash": value}
    async with stage.controller():
        mirror = await stage.cluster.add_pod("static", node=NODE, annotations=marks)
        vif = await stage.until_plugged_in("static")
        recorded = await stage.kuryrport("static")
        assert recorded["spec"] == {"podUid": value, "podNodeName": NODE, "podStatic": True}
        assert "ownerReferences" not in recorded["metadata"]
        await stage.cluster.delete_pod(mirror)
        await stage.cluster.add_pod("witness", node=NODE)
        await stage.until_plugged_in("witness")  # by then the deletion has been worked on
        await stage.cluster.add_pod("static", node=NODE, annotations=marks)
        await stage.cluster.add_pod("another-witness", node=NODE)
        await stage.until_plugged_in("another-witness")
    after = await stage.kuryrport("static")
    assert "deletionTimestamp" not in after["metadata"]
    assert after["status"]["vifs"]["eth0"]["vif"]["versioned_object.data"]["id"] == vif["id"]


async def test_namespace_that_goes_takes_nothing_new_and_leaves_nothing(stage):
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        await stage.client.delete(f"/api/v1/namespaces/{stage.cluster.namespace}")
        await stage.client.delete(stage.path("web"))  # as the namespace controller does
        await stage.cluster.delete_pod(pod)
        await stage.let_go("web")
        await stage.until_gone("web")
    assert not stage.cloud.ports


async def test_node_that_vanished_cannot_hold_a_port(stage):
    await stage.cluster.add_node("lost", annotations={HOST_ID: "chassis2"})
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node="lost")
        await stage.until_plugged_in("web")
        await stage.client.delete("/api/v1/nodes/lost")
        await stage.cluster.add_pod("witness", node=NODE)
        await stage.until_plugged_in("witness")
        assert len(stage.ports_of(pod)) == 1  # the Pod has not been given up yet
        await stage.cluster.delete_pod(pod)
        await stage.until_gone("web")
    assert not stage.ports_of(pod)


async def test_node_taken_out_of_service_lets_go_of_pods_that_are_gone(stage):
    await stage.cluster.add_node("broken", annotations={HOST_ID: "chassis2"})
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node="broken")
        await stage.until_plugged_in("web")
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("web")
        taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute", "value": "x"}
        await stage.client.patch("/api/v1/nodes/broken", {"spec": {"taints": [taint]}})
        await stage.until_gone("web")
    assert not stage.cloud.ports


async def test_pod_on_a_node_without_a_daemon_says_so_and_starts_when_it_comes(stage):
    await stage.cluster.add_node("new")
    stage.cloud.add_host("chassis3")
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node="new")
        note = await stage.until_event("KuryrNodeNotReady")
        assert note == "node new has no kuryr-k8s-daemon that has started yet"
        published = {"metadata": {"annotations": {HOST_ID: "chassis3"}}}
        await stage.client.patch("/api/v1/nodes/new", published)
        await stage.until_plugged_in("web")
    (port,) = stage.ports_of(pod)
    assert port["binding:host_id"] == "chassis3"


async def test_pod_that_never_ran_on_a_node_without_a_daemon_can_go(stage):
    await stage.cluster.add_node("new")
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node="new")
        await stage.until_event("KuryrNodeNotReady")
        await stage.cluster.delete_pod(pod)
        await stage.until_gone("web")


async def test_pod_deleted_before_it_has_a_port_is_given_up_while_it_still_stands(stage):
    """The kubelet ends it only after the ADD, and the ADD waits for the KuryrPort."""
    await stage.cluster.add_node("new")
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node="new")
        await stage.until_event("KuryrNodeNotReady")
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/web"
        await stage.client.delete(path, gracePeriodSeconds=60)
        await stage.until_gone("web")
        assert "deletionTimestamp" in (await stage.client.get(path))["metadata"]


async def test_quota_is_told_once_and_a_freed_port_serves_the_pod_that_waits(stage):
    stage.cloud.set_quota(stage.cloud.project_id, port=1)
    async with stage.controller():
        first = await stage.cluster.add_pod("first", node=NODE)
        await stage.until_plugged_in("first")
        await stage.cluster.add_pod("second", node=NODE)
        note = await stage.until_event("OpenStackQuotaExceeded")
        expected = f"Neutron quota for ports is exhausted in project {stage.cloud.project_id}"
        assert note == expected
        await stage.cluster.delete_pod(first)
        await stage.until_deleting("first")
        await stage.let_go("first")
        await stage.until_plugged_in("second")
        told = [reason for reason, _note in await stage.events()]
    assert told == ["OpenStackQuotaExceeded"]


async def test_ports_follow_when_other_security_groups_are_configured(stage):
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
    other = stage.cloud.add_security_group("other")
    settings = {"pod_security_groups": other["id"]}
    async with stage.controller(neutron_defaults=settings):

        async def followed():
            recorded = await stage.kuryrport("web")
            return recorded["status"]["securityGroupIds"] == [other["id"]]

        await stage.until(followed)
    (port,) = stage.ports_of(pod)
    assert port["security_groups"] == [other["id"]]


async def test_restarted_controller_asks_neutron_nothing_about_pods_that_have_their_ports(stage):
    async with stage.controller():
        for number in range(5):
            await stage.cluster.add_pod(f"web-{number}", node=NODE)
        for number in range(5):
            await stage.until_plugged_in(f"web-{number}")
    ports = len(stage.cloud.calls)
    writes = len(stage.proxy.faults.writes)
    async with stage.controller():
        await stage.cluster.add_pod("witness", node=NODE)
        await stage.until_plugged_in("witness")
    about_ports = [
        call
        for call in list(stage.cloud.calls)[ports:]
        if "ports" in call.what
        and NODE_DEVICE_OWNER not in call.query
        and ON_TRUNK not in call.query
    ]
    # the sweep of Pods' own ports, the witness, and whether this Neutron kept the witness' tags
    assert sorted(call.method for call in about_ports) == ["GET", "GET", "POST"]
    written = [write.path for write in stage.proxy.faults.writes[writes:]]
    assert all("witness" in path or path.endswith("kuryrports") for path in written)


async def test_project_of_a_namespace_must_be_granted_and_the_network_shared(stage):
    tenant = stage.cloud.add_project("tenant")
    annotation = {"metadata": {"annotations": {"openstack.org/kuryr-project": tenant}}}
    await stage.client.patch(f"/api/v1/namespaces/{stage.cluster.namespace}", annotation)
    driver = {"pod_project_driver": "annotation"}
    async with stage.controller(kubernetes=dict(driver)):
        await stage.cluster.add_pod("web", node=NODE)
        note = await stage.until_event("KuryrRefused")
        assert "which [policy] projects does not grant to it" in note
    granted = {"projects": f"{stage.cluster.namespace}:{tenant},other-namespace:x"}
    async with stage.controller(kubernetes=dict(driver), policy=granted):

        async def refused_for_the_network():
            events = await stage.events()
            return any("neither belongs to project" in note for _reason, note in events)

        await stage.until(refused_for_the_network)
    assert not stage.cloud.ports


async def test_port_that_nothing_names_goes_and_others_stay(stage, neutron):
    async with stage.controller(neutron_defaults={"sweep_interval": "1"}):
        pod = await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        (port,) = stage.ports_of(pod)
        body = {name: port[name] for name in ("network_id", "project_id", "device_owner", "name")}
        body["device_id"] = "gone"
        leaked = await neutron.create_port(body | {"tags": [TAG]})
        foreign = await neutron.create_port(body | {"tags": ["other-cluster"]})
        await stage.cloud.wait_for(lambda: leaked["id"] not in stage.cloud.ports)
    assert {port["id"], foreign["id"]} == set(stage.cloud.ports)


async def test_leaked_port_that_cannot_be_deleted_does_not_save_the_others(stage, neutron):
    body = {"network_id": stage.cloud.pods["id"], "device_owner": "compute:kuryr", "tags": [TAG]}
    first = await neutron.create_port(body | {"device_id": "gone-1"})
    second = await neutron.create_port(body | {"device_id": "gone-2"})
    path = f"/ports/{min(first['id'], second['id'])}"
    stage.cloud.faults.add(method="DELETE", path=path, times=None, action=answer(409))
    async with stage.controller(neutron_defaults={"sweep_interval": "1"}):
        await stage.cloud.wait_for(lambda: len(stage.cloud.ports) == 1)


async def test_second_controller_stands_by_and_takes_over_when_the_first_ends(stage, tmp_path):
    first_ends = asyncio.Event()

    async def first():
        async with stage.controller():
            await stage.cluster.add_pod("one", node=NODE)
            await stage.until_plugged_in("one")
            started.set()
            await first_ends.wait()

    started = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(first())
        await started.wait()
        lock = {"lock_file": str(tmp_path / "other.lock")}
        async with stage.controller(leading=False, kubernetes=lock) as second:
            await stage.proxy.wait_for(lambda: stage.proxy.watching("pods") == 2)
            await stage.cluster.add_pod("two", node=NODE)
            await stage.until_plugged_in("two")
            assert not second.leading.is_set()
            assert keys_waiting(second) == 0  # who stands by gathers nothing
            first_ends.set()
            await second.leading.wait()
            await stage.cluster.add_pod("three", node=NODE)
            await stage.until_plugged_in("three")
    assert len(stage.cloud.ports) == 3


def keys_waiting(app):
    name, handlers = "kuryr_queue_keys", ("vif", "kuryrport")
    return sum(app.registry.get_sample_value(name, {"handler": handler}) for handler in handlers)


async def test_port_is_given_back_once_though_another_holds_the_kuryrport(stage):
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        finalizers = [*stage.both_finalizers(), "example.com/hold"]
        await stage.client.patch(stage.path("web"), {"metadata": {"finalizers": finalizers}})
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("web")
        await stage.let_go("web")

        async def held_by_the_other_alone():
            return (await stage.kuryrport("web"))["metadata"]["finalizers"] == finalizers[-1:]

        await stage.until(held_by_the_other_alone)
        await stage.client.patch(stage.path("web"), {"metadata": {"labels": {"look": "again"}}})
        await stage.cluster.add_pod("witness", node=NODE)
        await stage.until_plugged_in("witness")
        assert [write.method for write in stage.cloud.faults.writes] == ["POST", "DELETE", "POST"]
        await stage.client.patch(stage.path("web"), {"metadata": {"finalizers": None}})
        await stage.until_gone("web")


async def test_pod_that_is_being_ended_keeps_its_kuryrport_until_it_is_gone(stage):
    """Its containers have their grace, and their network with it."""
    async with stage.controller():
        pod = await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/web"
        await stage.client.delete(path, gracePeriodSeconds=60)
        await stage.cluster.add_pod("witness", node=NODE)
        await stage.until_plugged_in("witness")
        assert "deletionTimestamp" in (await stage.client.get(path))["metadata"]
        assert "deletionTimestamp" not in (await stage.kuryrport("web"))["metadata"]
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("web")


async def test_nothing_is_remembered_of_pods_that_are_gone(stage):
    def remembered():
        return {
            name: values
            for handler in app.handlers
            for name, values in vars(handler).items()
            if isinstance(values, dict) and values
        }

    async with stage.controller() as app:
        for name in ("web", "job", "never"):
            node = "nowhere" if name == "never" else NODE
            pod = await stage.cluster.add_pod(name, node=node)
            if name == "never":
                await stage.until_event("KuryrNodeNotReady")
            else:
                await stage.until_plugged_in(name)
            if name == "job":
                await stage.cluster.set_phase(pod, "Succeeded")
            else:
                await stage.cluster.delete_pod(pod)
            if name != "never":
                await stage.until_deleting(name)
                await stage.let_go(name)
            await stage.until_gone(name)
            if name == "job":
                await stage.cluster.delete_pod(pod)
        assert len(app.handlers) == 4

        async def nothing():
            return not remembered()

        try:
            await stage.until(nothing)
        except TimeoutError:
            pytest.fail(f"{remembered()}")


async def test_kuryrport_that_vanishes_while_its_port_is_made_leaves_no_port(stage):
    held = Hang(applied=True)
    async with stage.controller():
        stage.cloud.faults.add(method="POST", path=r"/ports$", action=held)
        pod = await stage.cluster.add_pod("web", node=NODE)
        await held.reached.wait()
        assert stage.ports_of(pod)
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("web")
        await stage.client.patch(stage.path("web"), {"metadata": {"finalizers": None}})
        held.release()
        await stage.cloud.wait_for(lambda: not stage.cloud.ports)
