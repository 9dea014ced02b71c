"""Pods that have NeutronPorts: each has one of its own, and leaves it to the next one."""

import json

import pytest

from kuryr_k8s.model.annotations import HOST_ID
from tests.component.neutron_ports import ports
from tests.component.neutron_ports.ports import NAME, NETWORK, STICKY
from tests.component.pools.pods import end
from tests.kit.confs import NODE
from tests.kit.kube.objects import path_of


@pytest.fixture
def storage(stage):
    """A second network of the project."""
    return stage.cloud.add_network("storage", "10.70.0.0/24")


async def test_pod_has_the_neutron_port_that_it_names(stage, storage):
    async with stage.controller(**ports.options()):
        await ports.add(stage, "db", network="storage")
        free = await ports.until(stage, "db", "Available")
        pod, port = await ports.run(stage, "web", **{NAME: "db"})
        assert port["id"] == free["portId"]
        assert (port["device_id"], port["binding:host_id"]) == (
            pod["metadata"]["uid"],
            "chassis1",
        )
        bound = await ports.until(stage, "db", "Bound")
        assert bound["boundTo"] == {
            "namespace": stage.cluster.namespace,
            "name": "web",
            "uid": pod["metadata"]["uid"],
            "node": NODE,
            "kuryrPortUid": (await stage.kuryrport("web"))["metadata"]["uid"],
        }

        async def says_so():
            live = await stage.client.find(path_of(pod))
            annotations = live["metadata"].get("annotations") or {}
            return annotations.get("openstack.org/port_id") == port["id"]

        await stage.until(says_so)
        await end(stage, "web", pod)
        after = await ports.until(stage, "db", "Available")
        assert "boundTo" not in after
        assert after["addresses"] == free["addresses"]
        assert set(stage.cloud.ports) == {port["id"]}


async def test_pods_select_neutron_ports_by_their_labels(stage, storage):
    async with stage.controller(**ports.options()):
        for name in ("green-1", "blue-1", "green-2"):
            colour = name.partition("-")[0]
            await ports.add(stage, name, labels={"colour": colour}, network="storage")
            await ports.until(stage, name, "Available")
        await ports.run(stage, "web", **{NAME: "colour=blue"})
        assert (await ports.status(stage, "blue-1"))["boundTo"]["name"] == "web"
        await ports.run(stage, "other", **{NAME: "colour!=blue"})
        assert (
            "green-1"
            in [
                name
                for name in ("green-1", "green-2")
                if "boundTo" in await ports.status(stage, name)
            ]
            or (await ports.status(stage, "green-2"))["boundTo"]
        )


async def test_pod_that_names_a_network_has_any_that_is_free_there(stage, storage):
    other = stage.cloud.add_network("other", "10.71.0.0/24")
    async with stage.controller(**ports.options()):
        await ports.add(stage, "other", network=other["id"])
        await ports.until(stage, "other", "Available")
        await ports.add(stage, "right", network=storage["id"], fixedIPs=["10.70.0.7"])
        await ports.until(stage, "right", "Available")
        _pod, port = await ports.run(stage, "web", **{NETWORK: "storage"})
        assert ports.ips(port) == {"10.70.0.7"}
        _pod, port = await ports.run(stage, "plain")  # as without NeutronPorts
        assert port["network_id"] == stage.cloud.pods["id"]


async def test_pod_waits_with_an_event_until_there_is_one(stage, storage):
    async with stage.controller(**ports.options(patience=ports.LATE)):
        pod = await stage.cluster.add_pod("web", node=NODE, annotations={NAME: "db"})
        assert await stage.until_told("there is no NeutronPort db") == "KuryrNoNeutronPort"
        assert not stage.ports_of(pod)
        await ports.add(stage, "db", network="storage")
        await stage.until_plugged_in("web")
        assert len(stage.cloud.ports) == 1


async def test_of_two_pods_that_name_one_the_second_has_it_after_the_first(stage, storage):
    async with stage.controller(**ports.options(patience=ports.LATE)):
        await ports.add(stage, "db", network="storage")
        await ports.until(stage, "db", "Available")
        first, port = await ports.run(stage, "first", **{NAME: "db"})
        await stage.cluster.add_pod("second", node=NODE, annotations={NAME: "db"})
        assert await stage.until_told("is bound to Pod", "first") == "KuryrNoNeutronPort"
        await end(stage, "first", first)
        vif = await stage.until_plugged_in("second")
        assert vif["id"] == port["id"]


async def test_many_pods_and_fewer_ports_never_share_one(stage, storage):
    async with stage.controller(**ports.options(patience=ports.LATE)):
        for number in range(6):
            await ports.add(stage, f"port-{number}", network="storage")
        pods = {}
        for number in range(10):
            name = f"web-{number}"
            pods[name] = await stage.cluster.add_pod(
                name, node=NODE, annotations={NETWORK: "storage"}
            )
        used = {}

        async def all_used():
            for recorded in await stage.kuryrports():
                vifs = (recorded.get("status") or {}).get("vifs")
                if vifs:
                    used[recorded["metadata"]["name"]] = vifs["eth0"]["vif"][
                        "versioned_object.data"
                    ]["id"]
            return len(used) == 6

        await stage.until(all_used)
        assert len(set(used.values())) == 6
        assert set(used.values()) == set(stage.cloud.ports)
        (name, port) = next(iter(used.items()))
        await end(stage, name, pods[name])
        waiting = set(pods) - set(used)

        async def passed_on():
            for each in waiting:
                vifs = ((await stage.kuryrport(each)).get("status") or {}).get("vifs") or {}
                if vifs and vifs["eth0"]["vif"]["versioned_object.data"]["id"] == port:
                    return True
            return False

        await stage.until(passed_on)


async def test_made_for_a_pod_it_goes_with_the_pod(stage, storage):
    async with stage.controller(**ports.options("create")):
        annotations = {NETWORK: "storage", "openstack.org/ip_address": "10.70.0.7"}
        pod, port = await ports.run(stage, "web", **annotations)
        assert ports.ips(port) == {"10.70.0.7"}
        bound = await ports.until(stage, "web", "Bound")
        assert bound["portId"] == port["id"]
        await end(stage, "web", pod)
        await ports.until_gone(stage, "web")
        assert not stage.cloud.ports


async def test_sticky_one_is_kept_for_the_next_pod_of_its_name(stage, storage):
    await stage.cluster.add_node("node2", annotations={HOST_ID: "chassis2"})
    annotations = {NETWORK: "storage", STICKY: "true"}
    async with stage.controller(**ports.options("create")):
        pod, port = await ports.run(stage, "web-0", **annotations)
        first = (ports.ips(port), port["mac_address"])
        await end(stage, "web-0", pod)
        free = await ports.until(stage, "web-0", "Available")
        assert free["reservedFor"] == "web-0"
        _pod, other = await ports.run(stage, "web-1", **annotations)
        assert other["id"] != port["id"]
        _pod, again = await ports.run(stage, "web-0", node="node2", **annotations)
        assert (ports.ips(again), again["mac_address"]) == first
        assert again["binding:host_id"] == "chassis2"


async def test_sticky_choice_among_ports_of_a_user_is_kept(stage, storage):
    annotations = {NAME: "for=web", STICKY: "true"}
    async with stage.controller(**ports.options()):
        for number in range(2):
            await ports.add(stage, f"p{number}", labels={"for": "web"}, network="storage")
            await ports.until(stage, f"p{number}", "Available")
        pod, port = await ports.run(stage, "web-0", **annotations)
        await end(stage, "web-0", pod)
        _pod, other = await ports.run(stage, "web-1", **annotations)
        assert other["id"] != port["id"]
        _pod, again = await ports.run(stage, "web-0", **annotations)
        assert again["id"] == port["id"]


async def test_object_that_a_pod_has_is_held_until_the_pod_is_gone(stage, storage):
    async with stage.controller(**ports.options()):
        await ports.add(stage, "db", network="storage")
        await ports.until(stage, "db", "Available")
        pod, port = await ports.run(stage, "web", **{NAME: "db"})
        await stage.client.delete(ports.path(stage, "db"))
        message = await ports.until_ready_is(stage, "db", "Bound")
        assert f"{stage.cluster.namespace}/web on node {NODE}" in message
        assert stage.cloud.ports[port["id"]]["device_id"] == pod["metadata"]["uid"]
        await end(stage, "web", pod)
        await ports.until_gone(stage, "db")
        assert not stage.cloud.ports


async def test_groups_of_a_port_that_a_pod_has_follow(stage, storage):
    group = stage.cloud.add_security_group("web")["id"]
    async with stage.controller(**ports.options()):
        await ports.add(stage, "db", network="storage")
        await ports.until(stage, "db", "Available")
        _pod, port = await ports.run(stage, "web", **{NAME: "db"})
        await stage.client.patch(ports.path(stage, "db"), {"spec": {"securityGroups": ["web"]}})
        await stage.cloud.wait_for(lambda: port["security_groups"] == [group])
        assert (await ports.until(stage, "db", "Bound"))["boundTo"]["name"] == "web"


async def test_port_that_is_lost_under_a_pod_is_told_and_made_again_after_it(stage, storage):
    async with stage.controller(**ports.options()):
        await ports.add(stage, "db", network="storage")
        first = await ports.until(stage, "db", "Available")
        pod, port = await ports.run(stage, "web", **{NAME: "db"})
        stage.cloud.remove_port(port["id"])
        message = await ports.until_ready_is(stage, "db", "KuryrPortLost")
        assert "delete the Pod" in message
        await end(stage, "web", pod)

        async def again():
            found = await ports.status(stage, "db")
            is_free = found["phase"] == "Available" and found["portId"] != port["id"]
            return found if is_free else None

        second = await stage.until(again)
        assert second["addresses"] == first["addresses"]


async def test_port_that_is_lost_before_the_pod_has_it_is_made_again(stage, storage):
    async with stage.controller(**ports.options(neutron_defaults={"sweep_interval": "600"})):
        await ports.add(stage, "db", network="storage")
        first = await ports.until(stage, "db", "Available")
        stage.cloud.remove_port(first["portId"])
        _pod, port = await ports.run(stage, "web", **{NAME: "db"})
        assert ports.ips(port) == {first["addresses"][0]["ipAddress"]}


async def test_pod_that_names_the_port_itself_is_refused(stage, storage):
    async with stage.controller(**ports.options()):
        await ports.add(stage, "db", network="storage")
        free = await ports.until(stage, "db", "Available")
        annotations = {"openstack.org/spec-default-port": free["portId"]}
        await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        assert await stage.until_told("is that of a NeutronPort") == "KuryrPortInUse"


@pytest.mark.parametrize(
    ("mode", "annotations", "words"),
    [
        ("off", {NAME: "db"}, "neutron_ports is off"),
        ("bind", {NAME: "app in (db)"}, "neither the name of a NeutronPort nor a list of labels"),
        ("bind", {NAME: "db", STICKY: "often"}, "annotation openstack.org/sticky"),
        ("bind", {NAME: "db", NETWORK: "other"}, "is not as the Pod's annotations say"),
    ],
)
async def test_what_cannot_be_is_an_event(stage, storage, mode, annotations, words):
    stage.cloud.add_network("other", "10.71.0.0/24")
    async with stage.controller(**ports.options(mode)):
        await ports.add(stage, "db", network="storage")
        await ports.until(stage, "db", "Available")
        await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_told(words)


async def test_pod_of_another_namespace_does_not_get_it(stage, storage):
    """There is one of the same name in another namespace only."""
    async with stage.controller(**ports.options()):
        await stage.cluster.add_pod("web", node=NODE, annotations={NAME: "db"})
        assert await stage.until_told("there is no NeutronPort db") == "KuryrNoNeutronPort"


async def test_network_status_tells_of_the_network(stage, storage):
    async with stage.controller(**ports.options()):
        await ports.add(stage, "db", network="storage")
        await ports.until(stage, "db", "Available")
        pod, _port = await ports.run(stage, "web", **{NAME: "db"})

        async def told():
            live = await stage.client.find(path_of(pod))
            text = (live["metadata"].get("annotations") or {}).get(
                "k8s.v1.cni.cncf.io/network-status"
            )
            return text and json.loads(text)[0]["name"] == "storage"

        await stage.until(told)
