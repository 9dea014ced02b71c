"""A cloud with a dual-stack network for Pods, a cluster with a node, and a kuryr.conf."""

import configparser
from pathlib import Path

import pytest
import yaml

from kuryr_k8s import config
from kuryr_k8s.cloud import connect
from kuryr_k8s.cloud.neutron import Neutron
from kuryr_k8s.cloud.transport import Transport
from kuryr_k8s.model.annotations import HOST_ID
from tests.component.stage import Stage
from tests.fakes.cloud import FakeCloud
from tests.kube.fixtures import cluster, kube, kube_proxy, kube_server

__all__ = ["cluster", "kube", "kube_proxy", "kube_server"]

ETC = Path(__file__).parent.parent.parent / "etc"
TAG = "test-cluster"
HOST = "chassis1"
NODE = "node1"


@pytest.fixture
async def cloud():
    async with FakeCloud(hosts=[HOST, "chassis2"]) as cloud:
        cloud.pods = cloud.add_network("pods", "10.62.0.0/16", "fd62::/64", mtu=1442)
        cloud.group = cloud.add_security_group("pods")
        yield cloud


@pytest.fixture
def write_conf(tmp_path, cloud):
    """Write a kuryr.conf for the cloud; keyword arguments are groups of options."""

    def write(**groups):
        options = {
            "neutron": cloud.neutron_options(),
            "neutron_defaults": {
                "project": cloud.project_id,
                "pod_subnet": ",".join(cloud.pods["subnets"]),
                "pod_security_groups": cloud.group["id"],
                "resource_tags": TAG,
                "sweep_interval": "600",
            },
            "kubernetes": {"lock_file": str(tmp_path / "controller.lock")},
            "health_server": {"port": "0"},
        }
        for group, values in groups.items():
            options.setdefault(group, {}).update(values)
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_dict(options)
        path = tmp_path / "kuryr.conf"
        with path.open("w") as file:
            parser.write(file)
        return path

    return write


@pytest.fixture
def load_conf(write_conf):
    def load(**groups):
        return config.load(["--config-file", str(write_conf(**groups))], "test")

    return load


@pytest.fixture
def neutron(load_conf):
    """Our client of the fake Neutron."""
    adapter = connect.NetworkAdapter(connect.connect(load_conf(), connections=16))
    transport = Transport(adapter, limit=16)
    yield Neutron(transport)
    transport.close()


@pytest.fixture
async def shipped_permissions(cluster, kube_server):
    """The CRDs and the permissions of etc/, granted to the user that tests run as."""
    await cluster.install_crds(ETC / "crds")
    for path in (ETC / "rbac").glob("*.yaml"):
        for manifest in yaml.safe_load_all(path.read_text()):
            if manifest["kind"] != "ServiceAccount":
                await _grant(cluster.client, manifest)
    return cluster


async def _grant(client, manifest):
    """Create a role, or bind it to the user named like the ServiceAccount, without «kuryr-»."""
    if "subjects" in manifest:
        user = manifest["subjects"][0]["name"].removeprefix("kuryr-")
        subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
        manifest["subjects"] = [subject]
    plural = manifest["kind"].lower() + "s"
    namespace = manifest["metadata"].get("namespace")
    parts = [
        "/apis/rbac.authorization.k8s.io/v1",
        *(["namespaces", namespace] if namespace else []),
    ]
    collection = "/".join([*parts, plural])
    if await client.find(f"{collection}/{manifest['metadata']['name']}") is None:
        await client.request("POST", collection, manifest)


@pytest.fixture
async def stage(shipped_permissions, cloud, kube_proxy, load_conf):
    """Everything but the controller: a node whose daemon has published its host's name."""
    await shipped_permissions.add_node(NODE, annotations={HOST_ID: HOST})
    stage = Stage(shipped_permissions, cloud, kube_proxy, load_conf)
    yield stage
    kube_proxy.faults.clear()
    cloud.faults.clear()
