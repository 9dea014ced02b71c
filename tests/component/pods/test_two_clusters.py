"""Two clusters with one kuryr.conf, copied: the same project, network and tags."""

import json

import pytest

from kuryr_k8s.model.annotations import HOST_ID
from tests.component.pools.pods import OPTIONS
from tests.kit.confs import add_vm
from tests.kit.kube.cluster import Cluster
from tests.kit.kube.proxy import KubeProxy
from tests.kit.ledger import settle
from tests.kit.stage import Stage

OTHER = "c1a57e40-0000-4000-8000-00000000000b"
HOST = "chassis2"
POOLED = {"kubernetes": {"vif_pool_driver": "neutron"}, "vif_pool": OPTIONS}
SWEEP = {"neutron_defaults": {"sweep_interval": "1"}}


@pytest.fixture
async def other_stage(stage, kube_server, kube, load_conf, tmp_path):
    """Another cluster with the same cloud, and with a Lease of its own."""
    cluster = Cluster(kube)
    await cluster.add_namespace()
    node = f"node-of-{cluster.namespace}"
    options = {
        "lease_name": cluster.namespace,
        "lock_file": str(tmp_path / "other.lock"),
    }

    def load(**groups):
        return load_conf(**groups | {"kubernetes": groups["kubernetes"] | options})

    narrow = {"namespace": cluster.namespace, "node": node}
    async with KubeProxy(kube_server, **narrow, cluster_uid=OTHER) as proxy:
        try:
            yield Stage(cluster, stage.cloud, proxy, load, node)
        finally:
            await cluster.clean()


def subports(cloud):
    return {
        subport["port_id"] for trunk in cloud.trunks.values() for subport in trunk["sub_ports"]
    }


def copy(ports):
    return json.loads(json.dumps(ports))


async def sweeps(stage, count):
    """Wait until so many searches for our ports have begun after now."""

    def begun():
        return sum(
            call.method == "GET" and "tags=" in call.query and "device_owner" in call.query
            for call in stage.cloud.calls
        )

    before = begun()
    await stage.cloud.wait_for(lambda: begun() >= before + count)


@pytest.mark.parametrize("kind", ["noop", "pool", "nested"])
async def test_sweeps_of_one_leave_everything_of_the_other(stage, other_stage, kind):
    cloud = stage.cloud
    groups = {"noop": {}, "pool": POOLED, "nested": {}}[kind]
    node = {"annotations": {HOST_ID: HOST}}
    if kind == "nested":
        options = add_vm(cloud, "10.63.0.8")
        groups = {**options, "kubernetes": options["kubernetes"]}
        node = {"addresses": ("10.63.0.8",)}
    await other_stage.cluster.add_node(other_stage.node, **node)
    async with other_stage.controller(**groups) as app:
        for name in ("web-0", "web-1"):
            await other_stage.cluster.add_pod(name, node=other_stage.node)
            await other_stage.until_plugged_in(name)
        if kind == "pool":
            await settle(other_stage, lambda: app)
    theirs = copy(cloud.ports)
    attached = subports(cloud)
    ours = {name: dict(values) for name, values in groups.items()} | SWEEP
    if kind == "nested":
        ours = SWEEP
    async with stage.controller(**ours):
        await sweeps(stage, 3)
        pod = await stage.cluster.add_pod("web", node="node1")
        vif = await stage.until_plugged_in("web")
        assert vif["id"] not in theirs
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("web")
        await stage.let_go("web")
        await stage.until_gone("web")
        await sweeps(stage, 3)
    assert {port_id: cloud.ports.get(port_id) for port_id in theirs} == theirs
    assert subports(cloud) == attached
