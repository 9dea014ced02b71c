"""Pods on pooled ports: what the tests of pools have them do."""

from kuryr_k8s.model.annotations import HOST_ID
from tests.kit.confs import NODE
from tests.lives.pools import options

OTHER = "node2"
OPTIONS = {
    "ports_pool_min": "2",
    "ports_pool_batch": "3",
    "ports_pool_update_frequency": "1",
    "ports_pool_cooldown": "0",
    "ports_pool_fill_rate": "100",
    "ports_pool_cleanup_rate": "100",
    "port_names": "false",
    "park_ports": "false",
}


def pool(*, sweep="1", patience=None, **changes):
    groups = options(**changes)
    groups["neutron_defaults"]["sweep_interval"] = sweep
    groups["patience"] = groups["patience"] | (patience or {})
    return groups


async def add(stage, name, node=NODE):
    return await stage.cluster.add_pod(name, node=node)


async def run(stage, name, node=NODE):
    """Have a Pod run; it, and the id of its port."""
    pod = await add(stage, name, node)
    vif = await stage.until_plugged_in(name)
    await stage.activate(name)
    return pod, vif["id"]


async def end(stage, name, pod):
    await stage.cluster.delete_pod(pod)
    await stage.until_deleting(name)
    await stage.let_go(name)
    await stage.until_gone(name)


async def until_ports(stage, count):
    await stage.cloud.wait_for(lambda: len(stage.cloud.ports) == count)


async def add_other_node(stage, host="chassis2"):
    return await stage.cluster.add_node(OTHER, annotations={HOST_ID: host})


def available(stage, *ports):
    return [port for port in stage.cloud.ports if port not in ports]
