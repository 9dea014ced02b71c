"""Lives of a Pod that gets its port from a pool; as in pods.py.

At each moment to be compared the books balance: each port is one Pod's or lies in a pool.
"""

import asyncio
import contextlib

from tests.kit.ledger import pod_ports, settle
from tests.lives.life import life
from tests.lives.pods import LONG, POD
from tests.lives.pods import run as begin

POOL = "/apis/openstack.org/v1/kuryrportpools/{}"


def options(**changes):
    """A small pool that is looked after every second."""
    limits = {
        "ports_pool_min": "1",
        "ports_pool_batch": "1",
        "ports_pool_cooldown": "0",
        "ports_pool_update_frequency": "1",
        "ports_pool_fill_rate": "100",
        "ports_pool_cleanup_rate": "100",
        "port_names": "false",
        "park_ports": "false",
    }
    return {
        "kubernetes": {"vif_pool_driver": "neutron"},
        "neutron_defaults": {"sweep_interval": "2"},
        "vif_pool": limits | changes,
        "patience": {"pooled_port_name": 3.0},  # the KuryrPort names the port before
    }


def changes_in_neutron(place):
    """Say whether a write changes or deletes a port that is there already."""
    return place.side == "neutron" and place.verb in ("PUT", "DELETE")


@life(
    options=options(),
    plain=True,
    writes=(
        "kube create kuryrports",
        "kube patch kuryrports/status",
        "kube delete kuryrports",
        "kube patch kuryrports",
        "neutron POST /ports",
        "neutron POST /ports #2",
    ),
)
async def pooled(stage, keeper, at):
    """Its port is taken from the pool, and goes back into it."""
    pod = await _run(stage, keeper)
    await at("running")
    await _end(stage, keeper, pod)
    await at("end")


@life(
    options=options(ports_pool_min="3", ports_pool_batch="3"),
    struck=lambda place: (place.verb, place.nth) == ("POST", 2),
    answers=frozenset(),
)
async def filled(stage, keeper, at):
    """Its pool is filled by one request for several ports."""
    await _run(stage, keeper)
    await at("running")
    requests = stage.cloud.calls.count("POST", "/v2.0/ports")
    assert requests < len(pod_ports(stage)), "no request was for several ports"


@life(options=options(port_names="true"), struck=changes_in_neutron)
async def named(stage, keeper, at):
    """Its port gets its name, and loses it."""
    pod = await _run(stage, keeper)
    await _until_names(stage, f"{stage.cluster.namespace}/{POD}", "available-port")
    await at("running")
    await _end(stage, keeper, pod)
    await _until_names(stage, "available-port")
    await at("end")


@life(options=options(ports_pool_max="1"), struck=changes_in_neutron)
async def surplus(stage, keeper, at):
    """Its port is one too many when it comes back."""
    pod = await _run(stage, keeper)
    await at("running")
    await _end(stage, keeper, pod, left=1)
    await at("end")


@life(
    options=options(ports_pool_max="1", park_ports="true"),
    struck=lambda place: place.what == "kuryrportpools" or changes_in_neutron(place),
    answers=frozenset(),
    batched={"kuryrportpools": 2, "kuryrportpools/status": 0},
)
async def parked(stage, keeper, at):
    """Its port is plugged before it comes and after it went, until it is one too many."""
    async with _daemon(stage):
        pod = await _run(stage, keeper)
        await _until_map(stage)
        await at("running")
        await _end(stage, keeper, pod, left=1, stays_plugged=True)
        await _until_map(stage)
        await at("end")


@life(
    options=options(ports_pool_min="0"),
    struck=changes_in_neutron,
    batched={"/v2.0/ports/{id}": 1},  # it gets back the groups of the pool it came from
)
async def regrouped(stage, keeper, at):
    """It runs on while other security groups are configured; its port goes back into its pool."""
    pod = await _run(stage, keeper)
    group = stage.cloud.add_security_group("other")["id"]
    await keeper.restart(neutron_defaults={"sweep_interval": "2", "pod_security_groups": group})

    async def followed():
        recorded = await stage.kuryrport(POD)
        return recorded["status"]["securityGroupIds"] == [group]

    await stage.until(followed, within=LONG)
    await settle(stage, lambda: keeper.app)
    await at("running with other groups")
    await _end(stage, keeper, pod)  # in the one pool or in the other, as the restarts have it


@life(options=options(ports_pool_min="0"))
async def handed_on(stage, keeper, at):
    """Its port goes to another Pod after it, while a third one keeps its own."""
    pod = await _run(stage, keeper)
    await _run_another(stage, "third")
    await settle(stage, lambda: keeper.app)
    await at("two run")
    await _end(stage, keeper, pod)
    await at("one has ended")
    await _run_another(stage, "other")
    await settle(stage, lambda: keeper.app)
    await at("two run again")


LIVES = (pooled, filled, named, surplus, parked, regrouped)
PAIRED = (*LIVES, handed_on)


async def _run_another(stage, name):
    await stage.cluster.add_pod(name, node=stage.node)
    await stage.until_plugged_in(name, within=LONG)
    await stage.activate(name)


async def _run(stage, keeper):
    pod = await begin(stage)
    await settle(stage, lambda: keeper.app)
    return pod


async def _end(stage, keeper, pod, *, left=0, stays_plugged=False):
    port = (await stage.until_plugged_in(POD))["id"]
    await stage.cluster.delete_pod(pod)
    await stage.until_deleting(POD, within=LONG)
    await stage.let_go(POD)
    if port in stage.cloud.ports and not (stays_plugged or _is_subport(stage, port)):
        stage.cloud.set_status(port, "DOWN")
    await stage.until_gone(POD, within=LONG)
    if left:
        await stage.cloud.wait_for(lambda: len(pod_ports(stage)) == left)
    await settle(stage, lambda: keeper.app)


def _is_subport(stage, port):
    """Say whether a trunk has the port: then it stays ACTIVE."""
    trunks = stage.cloud.trunks.values()
    return any(port == sub["port_id"] for trunk in trunks for sub in trunk["sub_ports"])


async def _until_names(stage, *names):
    """Wait until the ports bear these names, and no others."""

    async def found():
        return {port["name"] for port in stage.cloud.ports.values()} == set(names)

    await stage.until(found, within=LONG)


@contextlib.asynccontextmanager
async def _daemon(stage):
    """The node's daemon plugs what it is to keep, and unplugs the rest."""
    path = POOL.format(stage.node)

    async def follow():
        while True:
            pool = await stage.client.find(path)
            ports = (pool or {}).get("spec", {}).get("ports") or {}
            keep = {port for port, entry in ports.items() if entry["state"] == "keep"}
            known = set(((pool or {}).get("status") or {}).get("parked") or {})
            for port in keep & set(stage.cloud.ports):
                stage.cloud.set_status(port, "ACTIVE")
            if keep != known:
                patch = dict.fromkeys(known - keep) | {port: {} for port in keep - known}
                await stage.client.patch(f"{path}/status", {"status": {"parked": patch}})
            await asyncio.sleep(0.1)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(follow())
        yield
        task.cancel()


async def _until_map(stage):
    """Wait until all ports are plugged, and nothing else."""

    async def followed():
        pool = await stage.client.find(POOL.format(stage.node)) or {}
        ports = set(stage.cloud.ports)
        known = pool.get("spec", {}).get("ports", {})
        return ports == set(known) == set(pool.get("status", {}).get("parked", ()))

    await stage.until(followed, within=LONG)
