"""The API server comes back with an older state of etcd, as after a restore from a backup.

Lives stand at different points when the copy is made, go on, and are all set back at once. The
cloud is not set back: what Neutron has is what was made in the past that never happened.
"""

import contextlib
import json

import pytest

from tests.kit.fakes.faults import Hang
from tests.kit.kube import KubeRefusal
from tests.kit.kube.objects import make_neutron_port, path_of
from tests.tables.past import lived_again

POD = "web"
NAME = "openstack.org/neutron_port"
BIND = {
    "multi_vif_drivers": "named_network",
    "enabled_handlers": "vif,kuryrport,neutron_port",
    "neutron_ports": "bind",
}


async def runs_with_one_port(stage, pod):
    """The Pod's KuryrPort names its one port, and nothing else is in the cloud."""

    async def right():
        recorded = await stage.kuryrport(POD)
        vifs = ((recorded or {}).get("status") or {}).get("vifs")
        return (
            vifs
            and recorded["spec"]["podUid"] == pod["metadata"]["uid"]
            and recorded["metadata"]["finalizers"] == stage.both_finalizers()
            and vifs["eth0"]["vif"]["versioned_object.data"]["id"]
        )

    named = await stage.until(right)
    assert [port["id"] for port in stage.ports_of(pod)] == [named]
    assert list(stage.cloud.ports) == [named]


async def go_away(stage, pod):
    await stage.cluster.delete_pod(pod)
    await stage.until_deleting(POD)
    await stage.let_go(POD)
    await stage.until_gone(POD)
    assert not stage.cloud.ports


async def before_the_kuryrport(stage, past, keeper):
    """The Pod is on its node, nobody has recorded it yet."""
    await set_back_at(stage, past, keeper, stage.proxy, "POST", "/kuryrports$", activate=True)


async def before_the_port(stage, past, keeper):
    """The KuryrPort is there, its port is just being made."""
    await set_back_at(stage, past, keeper, stage.cloud, "POST", "/ports$")


async def before_the_status(stage, past, keeper):
    """The port is there, the KuryrPort does not name it yet."""
    await set_back_at(stage, past, keeper, stage.proxy, "PATCH", "/status$")


async def set_back_at(stage, past, keeper, side, method, path, *, activate=False):
    """A Pod's port is made; then all is set back to where this write had yet to be carried out."""
    held = Hang()
    side.faults.add(method=method, path=path, action=held)
    pod = await stage.cluster.add_pod(POD, node=stage.node)
    await held.reached.wait()
    await past.copy()
    held.release()
    first = await stage.until_plugged_in(POD)
    if activate:
        await stage.activate(POD)
    await past.come_back(keeper)
    await runs_with_one_port(stage, pod)
    assert first["id"] in stage.cloud.ports, "the Pod runs with that port, plugged on its node"
    await go_away(stage, pod)


async def before_the_port_of_a_user_was_taken(stage, past, keeper):
    """The Pod names a port that its user made; nobody has recorded yet what that was like."""
    port = port_of_a_user(stage)
    held = Hang()
    stage.proxy.faults.add(method="PATCH", path="/status$", action=held)
    pod = await stage.cluster.add_pod(POD, node=stage.node, annotations=naming(port))
    await held.reached.wait()
    await past.copy()
    held.release()
    await stage.until_plugged_in(POD)
    await past.come_back(keeper)

    async def has_both():
        vifs = ((await stage.kuryrport(POD) or {}).get("status") or {}).get("vifs") or {}
        found = {each: vifs[each]["vif"]["versioned_object.data"]["id"] for each in vifs}
        return len(found) == 2 and found["eth1"] == port["id"] and found["eth0"]

    own = await stage.until(has_both)
    assert set(stage.cloud.ports) == {own, port["id"]}
    await stage.cluster.delete_pod(pod)
    await stage.until_deleting(POD)
    await stage.let_go(POD)
    await stage.until_gone(POD)
    assert is_free(stage, port)


async def before_the_pod_that_names_a_port(stage, past, keeper):
    """The Pod never was: what it had is its user's again."""
    port = port_of_a_user(stage)
    await past.copy()
    await stage.cluster.add_pod(POD, node=stage.node, annotations=naming(port))
    await stage.until_plugged_in(POD)
    await past.come_back(keeper)
    await nothing_is_left_of_the_pod(stage, lambda: is_free(stage, port))


def port_of_a_user(stage):
    """A port that somebody made in a network of its own."""
    network = stage.cloud.add_network("storage", "10.70.0.0/24")
    return stage.cloud.add_port(network["id"], name="theirs")


def naming(port):
    return {"openstack.org/spec-ports": json.dumps([port["id"]])}


def is_free(stage, port):
    """Whether the port is there as it was made, and no other one is."""
    live = stage.cloud.ports[port["id"]]
    used = (live["device_id"], live["device_owner"], live["binding:host_id"])
    return set(stage.cloud.ports) == {port["id"]} and not any(used)


async def before_the_pod_that_has_a_neutron_port(stage, past, keeper):
    """The Pod never was: its NeutronPort is free again."""
    await stage.client.create(make_neutron_port("port", stage.cluster.namespace))
    port_id = await until_available(stage)
    before = dict(stage.cloud.ports[port_id])
    await past.copy()
    await stage.cluster.add_pod(POD, node=stage.node, annotations={NAME: "port"})
    await stage.until_plugged_in(POD)
    await past.come_back(keeper)

    def is_as_before():
        live = stage.cloud.ports[port_id]
        marks = ("device_id", "device_owner", "binding:host_id")
        return all(live[name] == before[name] for name in marks)

    await nothing_is_left_of_the_pod(stage, is_as_before)
    assert await until_available(stage) == port_id


async def before_the_neutron_port_has_its_port(stage, past, keeper):
    """Its port is made in a past that never was, and found again."""
    held = Hang()
    stage.proxy.faults.add(method="PATCH", path="/neutronports/port/status$", action=held)
    await stage.client.create(make_neutron_port("port", stage.cluster.namespace))
    await held.reached.wait()
    await past.copy()
    held.release()
    port_id = await until_available(stage)
    await past.come_back(keeper)
    assert await until_available(stage) == port_id
    assert set(stage.cloud.ports) == {port_id}


async def until_available(stage):
    """Wait until the NeutronPort is Available; the id of its port."""
    path = path_of(make_neutron_port("port", stage.cluster.namespace))

    async def available():
        status = ((await stage.client.find(path)) or {}).get("status") or {}
        return status.get("phase") == "Available" and status["portId"]

    return await stage.until(available)


async def after_the_deletion_began(stage, past, keeper):
    """The Pod is gone, its KuryrPort waits for the node."""
    pod = await stage.cluster.add_pod(POD, node=stage.node)
    await stage.until_plugged_in(POD)
    await stage.cluster.delete_pod(pod)
    await stage.until_deleting(POD)
    await past.copy()
    await stage.let_go(POD)
    await stage.until_gone(POD)
    await past.come_back(keeper)
    await stage.until_deleting(POD)
    await stage.let_go(POD)
    await stage.until_gone(POD)
    assert not stage.cloud.ports


async def while_it_runs(stage, past, keeper):
    """The Pod runs, is deleted and forgotten; then it runs again, and its port is gone."""
    pod = await stage.cluster.add_pod(POD, node=stage.node)
    await stage.until_plugged_in(POD)
    await past.copy()
    await go_away(stage, pod)
    await past.come_back(keeper)
    # its kubelet sees to it that a Pod whose sandbox is gone goes as well
    await go_away(stage, pod)


async def before_the_pod(stage, past, keeper):
    """The Pod is made afterwards, so it never was: its port is nobody's."""
    await past.copy()
    await stage.cluster.add_pod(POD, node=stage.node)
    await stage.until_plugged_in(POD)
    await past.come_back(keeper)
    await nothing_is_left_of_the_pod(stage, lambda: not stage.cloud.ports)


async def nothing_is_left_of_the_pod(stage, is_as_before):
    async def nothing_is_left():
        recorded = await stage.kuryrport(POD)  # of a Pod that a cache still had, perhaps
        if recorded and "deletionTimestamp" in recorded["metadata"]:
            with contextlib.suppress(KubeRefusal):  # it went meanwhile
                await stage.let_go(POD)
        return recorded is None and is_as_before()

    await stage.until(nothing_is_left)


POINTS = (
    before_the_kuryrport,
    before_the_port,
    before_the_status,
    after_the_deletion_began,
    while_it_runs,
    before_the_pod,
    before_the_port_of_a_user_was_taken,
    before_the_pod_that_names_a_port,
    before_the_pod_that_has_a_neutron_port,
    before_the_neutron_port_has_its_port,
)
# sweeps see to what is left
SWEPT = (
    before_the_pod,
    before_the_pod_that_names_a_port,
    before_the_pod_that_has_a_neutron_port,
)
WITH_NEUTRON_PORTS = (
    before_the_pod_that_has_a_neutron_port,
    before_the_neutron_port_has_its_port,
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("restarted", [False, True], ids=["it lives on", "it is restarted"])
async def test_controller_over_a_rewound_api_server_leaves_each_pod_one_port(lanes, restarted):
    def groups_of(point):
        groups = {"kubernetes": BIND if point in WITH_NEUTRON_PORTS else {}}
        if point in SWEPT:
            groups["neutron_defaults"] = {"sweep_interval": "3"}
        return groups

    assert not await lived_again(lanes, POINTS, groups_of, restarted=restarted)
