"""Fixtures: a cloud with a dual-stack network for Pods, a cluster with a node, a kuryr.conf.

The conftest modules of component and tables import those that they use.
"""

import asyncio
import functools

import pytest
import yaml

from kuryr_k8s import config
from kuryr_k8s.cloud import connect
from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.cloud.transport import Transport
from kuryr_k8s.model.annotations import HOST_ID
from tests.kit import confs
from tests.kit import load_balancer_worker as load_balancers
from tests.kit.confs import HOST, LEASE, NODE
from tests.kit.fakes.cloud import FakeCloud
from tests.kit.kube.children import free_ports
from tests.kit.kube.client import KubeClient, KubeRefusal
from tests.kit.kube.cluster import Cluster
from tests.kit.kube.objects import path_of
from tests.kit.kube.proxy import KubeProxy, session_for
from tests.kit.l7 import RouterStage, furnish_routers
from tests.kit.load_balancer_services import furnish_outside
from tests.kit.node_credentials import ACCOUNT, UNBOUND, token_request
from tests.kit.paths import ETC
from tests.kit.service_stage import ServiceStage, furnish
from tests.kit.stage import Stage
from tests.kit.stages import Lanes, permit


@pytest.fixture
async def kube(kube_server):
    """The admin's client."""
    async with KubeClient(
        kube_server.base_url, kube_server.admin_token, kube_server.ca_file
    ) as client:
        yield client


@pytest.fixture
async def cluster(kube):
    """A namespace for this test; whatever is in it goes with it."""
    made = Cluster(kube)
    await made.add_namespace()
    try:
        yield made
    finally:
        await made.clean()


@pytest.fixture
async def kube_proxy(kube_server, cluster):
    """Show a controller the test's namespace, and all nodes, with nothing wrong yet."""
    async with KubeProxy(kube_server, namespace=cluster.namespace) as proxy:
        yield proxy


@pytest.fixture
async def whole_server(kube_server):
    """Show a controller all namespaces."""
    async with KubeProxy(kube_server) as proxy:
        yield proxy


@pytest.fixture
async def cloud():
    async with FakeCloud(hosts=[HOST, "chassis2"]) as cloud:
        confs.furnish(cloud)
        yield cloud


@pytest.fixture
def write_conf(tmp_path, cloud):
    """Write a kuryr.conf for the cloud; keyword arguments are groups of options."""

    return functools.partial(confs.write_conf, tmp_path, cloud)


@pytest.fixture
def load_conf(write_conf):
    def load(**groups):
        return config.load(["--config-file", str(write_conf(**groups))], "test")

    return load


@pytest.fixture
def transport(load_conf):
    """Our way to the fake Neutron."""
    adapter = connect.ServiceAdapter(connect.connect(load_conf(), connections=16), "network")
    transport = Transport(adapter, limit=16)
    yield transport
    transport.close()


@pytest.fixture
def neutron(transport):
    """Our client of the fake Neutron."""
    return Neutron(transport, ClusterMark(confs.CLUSTER))


@pytest.fixture
async def shipped_permissions(cluster, kube_server):
    """Install the CRDs and the permissions of etc/, once a session.

    What is granted to a ServiceAccount is granted to the user of its name, without «kuryr-», too.
    """
    if not kube_server.furnished:
        for directory in (ETC / "crds", ETC / "crds" / "optional"):
            await cluster.install_crds(directory)
        for path in sorted((ETC / "rbac").rglob("*.yaml")):
            for manifest in yaml.safe_load_all(path.read_text()):
                await _install(cluster.client, manifest)
        await permit(cluster.client, kube_server)
        await _enforced(cluster, kube_server)
        kube_server.furnished = True
    return cluster


async def _install(client, manifest):
    if "subjects" in manifest:
        user = manifest["subjects"][0]["name"].removeprefix("kuryr-")
        subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
        manifest["subjects"].append(subject)
    if await client.find(path_of(manifest)) is None:
        await client.create(manifest)


async def _enforced(cluster, server):
    """Return when the API server goes by the daemons' policy: it learns of it in its own time."""
    node = await cluster.add_node(f"policy-{cluster.namespace}")
    body = token_request("")
    token = (await cluster.client.request("POST", f"{ACCOUNT}/token", body))["status"]["token"]
    async with (
        KubeClient(server.base_url, token, server.ca_file) as unbound,
        asyncio.timeout(60),
    ):
        while True:
            try:
                await unbound.patch(path_of(node), {}, dryRun="All")
            except KubeRefusal as refusal:
                if UNBOUND in str(refusal):
                    break
            await asyncio.sleep(0.05)
    await cluster.client.delete(path_of(node))  # no test expects another one of its own


@pytest.fixture
async def stage(shipped_permissions, cloud, kube_proxy, load_conf):
    """Everything but the controller: a node whose daemon has published its host's name."""
    await shipped_permissions.add_node(NODE, annotations={HOST_ID: HOST})
    stage = Stage(shipped_permissions, cloud, kube_proxy, load_conf)
    yield stage
    kube_proxy.faults.clear()
    cloud.faults.clear()
    if await stage.client.find(LEASE):  # of a controller that could not give it back
        await stage.client.delete(LEASE)


@pytest.fixture
async def lanes_of(shipped_permissions, kube_server, tmp_path):
    """Make stages of a class to be used at the same time, each with everything of its own."""
    async with session_for(kube_server) as session:

        def make(lanes):
            return lanes(kube_server, shipped_permissions.client, tmp_path, session)

        yield make


@pytest.fixture
def lanes(lanes_of):
    return lanes_of(Lanes)


@pytest.fixture
def make_worker(cloud, load_conf, neutron):
    """Lives of a controller that does nothing but load balancers, with delays that tests can wait
    for; keyword arguments are groups of options."""
    load_balancers.furnish(cloud)
    cloud.octavia_pending = 0.01

    def make(patience=None, options=None, deadline=120.0, **groups):
        conf = load_conf(**groups)
        worker = load_balancers.Worker(
            conf, neutron, options=options, deadline=deadline, **(patience or {})
        )
        return worker.running()

    return make


@pytest.fixture
async def worker(make_worker):
    """One such life."""
    async with make_worker() as worker:
        yield worker


@pytest.fixture
def short_calls():
    """Deadlines of calls that tests can wait for, and that no other call misses, though the loop
    be late."""
    return {"neutron": {"call_timeout": "10"}, "patience": {"kube_call": 12.0}}


@pytest.fixture
def controller_url():
    """Where the controller is to listen: options for it, and the URL."""
    (port,) = free_ports(1)
    return {"health_server": {"port": str(port)}}, f"http://127.0.0.1:{port}"


@pytest.fixture
def controller_socket():
    """Where the controller is to take changes: options for it, and the path."""
    path = confs.new_socket()
    return {"health_server": {"admin_socket": str(path)}}, path


@pytest.fixture
async def services(shipped_permissions, kube_server, cloud, load_conf):
    options = furnish(cloud)
    await shipped_permissions.add_node(NODE, annotations={HOST_ID: HOST})
    async with KubeProxy(kube_server, namespace=shipped_permissions.namespace, node=NODE) as proxy:
        stage = ServiceStage(shipped_permissions, cloud, proxy, load_conf, options=options)
        yield stage
        proxy.faults.clear()
        cloud.faults.clear()
        if await stage.client.find(LEASE):  # of a controller that could not give it back
            await stage.client.delete(LEASE)


class ServiceLanes(Lanes):
    """With subnets for Services, and the handlers."""

    kind = ServiceStage

    def conf(self, cloud):
        return furnish(cloud)


class OutsideLanes(ServiceLanes):
    """With an external network, and the provider that does everything."""

    def conf(self, cloud):
        return furnish_outside(cloud, super().conf(cloud))


class RouterLanes(ServiceLanes):
    """With the L7 router, and a ConfigMap of its own."""

    kind = RouterStage
    lease_namespace = None

    def conf(self, cloud):
        return furnish_routers(cloud, super().conf(cloud))
