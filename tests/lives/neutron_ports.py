"""Lives of NeutronPorts and the Pods that have them."""

import contextlib

from tests.kit.kube.client import KubeRefusal
from tests.kit.kube.objects import make_neutron_port, make_neutron_port_pool, path_of
from tests.kit.stage import NEUTRONPORTS
from tests.lives.life import life
from tests.lives.pods import LONG, POD, run

NETWORK, ADDRESS = "openstack.org/network_id", "openstack.org/ip_address"
NAME, STICKY = "openstack.org/neutron_port", "openstack.org/sticky"
PORT = "port"
POOL = "pooled"  # as the states know the names of its NeutronPorts by


def _options(mode, handlers="vif,kuryrport,neutron_port"):
    kubernetes = {
        "multi_vif_drivers": "named_network",
        "enabled_handlers": handlers,
        "neutron_ports": mode,
    }
    return {"kubernetes": kubernetes, "neutron_defaults": {"sweep_interval": "5"}}


@life(options=_options("bind"))
async def bound(stage, _keeper, at):
    """A user makes it, changes it, has a Pod run with it, and deletes it."""
    made = await _make(stage, PORT)
    await _until(stage, PORT, "Available")
    await at("available")
    await stage.client.patch(path_of(made), {"spec": {"securityGroups": ["web"]}})
    await _until_observed(stage, PORT, 2)
    pod = await run(stage, annotations={NAME: PORT})
    await at("running")
    await stage.cluster.delete_pod(pod)
    await _let_go(stage)
    await _until(stage, PORT, "Available")
    await at("available again")
    await stage.client.delete(path_of(made))
    await _until_gone(stage, PORT)
    await at("end")


@life(options=_options("bind"))
async def held(stage, _keeper, at):
    """Its user deletes it while a Pod runs with it."""
    made = await _make(stage, PORT)
    await _until(stage, PORT, "Available")
    pod = await run(stage, annotations={NAME: PORT})
    await stage.client.delete(path_of(made))
    await _until_reason(stage, PORT, "Bound")
    await at("held")
    await stage.cluster.delete_pod(pod)
    await _let_go(stage)
    await _until_gone(stage, PORT)
    await at("end")


@life(options=_options("bind"))
async def claimed(stage, _keeper, at):
    """It claims a port that its user made, and leaves it as it was."""
    network = stage.cloud.add_network("storage", "10.70.0.0/24", mtu=1442)
    theirs = stage.cloud.add_port(network["id"], name="theirs")
    made = await _make(stage, PORT, portId=theirs["id"], reclaimPolicy="Retain")
    await _until(stage, PORT, "Available")
    pod = await run(stage, annotations={NAME: PORT})
    await at("running")
    await stage.cluster.delete_pod(pod)
    await _let_go(stage)
    await _until(stage, PORT, "Available")
    await stage.client.delete(path_of(made))
    await _until_gone(stage, PORT)
    await at("end")


@life(options=_options("create"))
async def made_for_a_pod(stage, _keeper, at):
    """A Pod has it made, and it goes with the Pod."""
    storage = stage.cloud.add_network("storage", "10.70.0.0/24")
    pod = await run(stage, annotations={NETWORK: storage["id"], ADDRESS: "10.70.0.7"})
    await _until(stage, POD, "Bound")
    await at("running")
    await stage.cluster.delete_pod(pod)
    await _let_go(stage)
    await _until_gone(stage, POD)
    await at("end")


@life(options=_options("create"))
async def sticky(stage, _keeper, at):
    """A Pod has it made; it stays, and is that of the next Pod of the name."""
    storage = stage.cloud.add_network("storage", "10.70.0.0/24")
    asked = {NETWORK: storage["id"], ADDRESS: "10.70.0.7", STICKY: "true"}
    old = await run(stage, annotations=asked)
    await _until(stage, POD, "Bound")
    await stage.cluster.delete_pod(old)
    new = await stage.cluster.add_pod(POD, node=stage.node, annotations=asked)
    await stage.until_deleting(POD, within=LONG)
    await stage.let_go(POD)

    async def follows():
        bound_to = (await _status(stage, POD)).get("boundTo") or {}
        return bound_to.get("uid") == new["metadata"]["uid"]

    await stage.until(follows, within=LONG)
    await stage.until_plugged_in(POD, within=LONG)
    await stage.activate(POD)
    await at("running again")
    await stage.cluster.delete_pod(new)
    await _let_go(stage)
    await _until(stage, POD, "Available")
    await at("available")
    await stage.client.delete(_path(stage, POD))
    await _until_gone(stage, POD)
    await at("end")


@life(
    options=_options("bind", "vif,kuryrport,neutron_port,neutron_port_pool"),
    batched={"neutronportpools/status": 1},  # once a second
)
async def of_a_pool(stage, _keeper, at):
    """A pool makes it; a Pod has it, and another one comes; one is too many, and goes."""
    stage.cloud.add_security_group("web")
    pool = await stage.client.create(
        make_neutron_port_pool(POOL, stage.cluster.namespace, min=1, max=1)
    )
    await _until_counted(stage, pool, available=1)
    await at("available")
    pod = await run(stage, annotations={NAME: f"openstack.org/neutron-port-pool={POOL}"})
    await _until_counted(stage, pool, available=1, bound=1)
    await at("running")
    await stage.cluster.delete_pod(pod)
    await _let_go(stage)
    await _until_counted(stage, pool, available=1, bound=0)
    template = {"spec": {"securityGroups": ["web"]}}
    await stage.client.patch(path_of(pool), {"spec": {"template": template}})
    await _until_they_have_groups(stage, pool)
    await at("one is left")
    await stage.client.delete(path_of(pool))
    await _collect_garbage(stage)
    await at("end")


LIVES = (bound, held, claimed, made_for_a_pod, sticky, of_a_pool)


async def _make(stage, name, **spec):
    stage.cloud.add_security_group("web")
    return await stage.client.create(make_neutron_port(name, stage.cluster.namespace, **spec))


def _path(stage, name):
    return path_of(make_neutron_port(name, stage.cluster.namespace))


async def _status(stage, name):
    return ((await stage.client.find(_path(stage, name))) or {}).get("status") or {}


async def _until(stage, name, phase):
    async def reached():
        return (await _status(stage, name)).get("phase") == phase

    await stage.until(reached, within=LONG)


async def _names(stage):
    """The names of all NeutronPorts."""
    path = NEUTRONPORTS.format(stage.cluster.namespace)
    return [each["metadata"]["name"] for each in await stage.client.list(path)]


async def _collect_garbage(stage):
    """Delete all NeutronPorts, as the garbage collector does; wait until they are gone."""

    async def gone():
        names = await _names(stage)
        for name in names:
            with contextlib.suppress(KubeRefusal):  # it is gone
                await stage.client.delete(_path(stage, name))
        return not names

    await stage.until(gone, within=LONG)


async def _until_they_have_groups(stage, pool):
    """Wait until all NeutronPorts are as their specifications say, which name a group."""

    async def are():
        found = await stage.client.list(NEUTRONPORTS.format(stage.cluster.namespace))
        of_pool = await stage.client.find(path_of(pool))
        return of_pool["status"]["observedGeneration"] == 2 and all(
            each["spec"].get("securityGroups")
            and each["status"].get("observedGeneration") == each["metadata"]["generation"]
            for each in found
        )

    await stage.until(are, within=LONG)


async def _until_counted(stage, pool, **counts):
    """Wait until a pool has so many NeutronPorts, and its status says so."""

    async def counted():
        found = (await stage.client.find(path_of(pool))).get("status") or {}
        total = sum(counts.values())
        return counts.items() <= found.items() and len(await _names(stage)) == total

    await stage.until(counted, within=LONG)


async def _until_observed(stage, name, generation):
    async def reached():
        return (await _status(stage, name)).get("observedGeneration") == generation

    await stage.until(reached, within=LONG)


async def _until_reason(stage, name, reason):
    async def reached():
        conditions = (await _status(stage, name)).get("conditions") or ()
        return any(each["reason"] == reason for each in conditions)

    await stage.until(reached, within=LONG)


async def _until_gone(stage, name):
    async def gone():
        return await stage.client.find(_path(stage, name)) is None

    await stage.until(gone, within=LONG)


async def _let_go(stage):
    await stage.until_deleting(POD, within=LONG)
    await stage.let_go(POD)
    await stage.until_gone(POD, within=LONG)
