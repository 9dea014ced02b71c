"""Stages side by side on one API server: a lane has its own namespace, node, proxy and cloud.

The proxy of a lane shows its controller nothing but the lane's namespace and node, and its Lease
bears that namespace's name: controllers of other lanes are not there for it.
"""

import asyncio
from contextlib import asynccontextmanager
from typing import ClassVar

from kuryr_k8s import config
from kuryr_k8s.model.annotations import HOST_ID
from tests.kit import confs
from tests.kit.confs import HOST
from tests.kit.fakes.cloud import FakeCloud
from tests.kit.kube.client import KubeClient
from tests.kit.kube.cluster import Cluster
from tests.kit.kube.proxy import KubeProxy
from tests.kit.stage import Stage

LEASE = "600"  # seconds: no life ends because many at once left no time to renew a Lease
AT_ONCE = 20  # lanes; most of their time is waiting for back-offs
ROLE = "lanes-leases"
ACCOUNT = "kuryr-controller"  # of etc/rbac
RULES = [  # what lanes grant it besides: a lane has its Lease and its ConfigMap under other names
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["create", "get", "watch", "update"],
    },
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get", "patch"]},
]


class Lanes:
    """Opens lanes, so many at once and the others afterwards."""

    options: ClassVar[dict] = {"annotations": {HOST_ID: HOST}}  # of the node
    kind = Stage
    lease_namespace: str | None = "kube-system"  # None: that of the lane

    def __init__(self, server, client, directory, session):
        self.server, self.client = server, client
        self._session = session
        self._directory = directory
        self._places = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def open(self, *, made=True):
        """A Stage of its own; `made=False` leaves the namespace and the node to the test."""
        async with self._places:
            cluster = Cluster(self.client)
            node = f"node-of-{cluster.namespace}"
            directory = self._directory / cluster.namespace
            directory.mkdir()
            async with (
                FakeCloud(hosts=[HOST, "chassis2"]) as cloud,
                KubeProxy(
                    self.server, namespace=cluster.namespace, node=node, session=self._session
                ) as proxy,
            ):
                confs.furnish(cloud)
                load = _loader(
                    directory,
                    cloud,
                    self.conf(cloud),
                    lease_name=cluster.namespace,
                    lease_namespace=self.lease_namespace or cluster.namespace,
                )
                stage = self.kind(cluster, cloud, proxy, load, node)
                try:
                    if made:
                        await cluster.add_namespace()
                        await cluster.add_node(node, **self.options)
                    yield stage
                finally:
                    await cluster.clean()

    def conf(self, _cloud):
        """Groups of options besides those of all tests."""
        return {}


class CrowdedLanes(Lanes):
    """Of their two IPv4 subnets for Pods, the first is full."""

    def conf(self, cloud):
        cidrs = ("10.62.0.0/30", "10.62.1.0/24", "fd62::/64")
        cloud.pods = cloud.add_network("crowded", *cidrs, mtu=1442)
        cloud.store.allocators[cloud.pods["subnets"][0]].take_any()
        return {}


class NestedLanes(Lanes):
    """Their nodes are VMs."""

    options: ClassVar[dict] = {"addresses": (confs.VM,)}

    def conf(self, cloud):
        return confs.add_vm(cloud)


class MacvlanLanes(Lanes):
    """Their nodes are VMs in the network of Pods."""

    options: ClassVar[dict] = {"addresses": (confs.MACHINE,)}

    def conf(self, cloud):
        confs.add_machine(cloud)
        return {
            "kubernetes": {"pod_vif_driver": "nested-macvlan"},
            "pod_vif_nested": {"worker_nodes_subnets": cloud.pods["subnets"][0]},
        }


def _loader(directory, cloud, more, **lease):
    def load(**groups):
        own = lease | {"lease_duration": LEASE} | more.get("kubernetes", {})
        groups = {
            name: more.get(name, {}) | groups.get(name, {}) for name in more.keys() | groups.keys()
        }
        groups["kubernetes"] = own | groups["kubernetes"]
        path = confs.write_conf(directory, cloud, **groups)
        return config.load(["--config-file", str(path)], "test")

    return load


async def permit(client, server):
    """Let the controller have Leases and ConfigMaps of all names; in effect afterwards."""
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    if await client.find(f"{roles}/{ROLE}") is None:
        head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": ROLE}}
        role = {"kind": "ClusterRole", "rules": RULES}
        await client.request("POST", roles, head | role)
        api_group = "rbac.authorization.k8s.io"
        binding = {
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": api_group, "kind": "ClusterRole", "name": ROLE},
            "subjects": [
                {"kind": "User", "name": "controller", "apiGroup": api_group},
                {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kube-system"},
            ],
        }
        await client.request("POST", roles.replace("roles", "rolebindings"), head | binding)
    wanted = {"group": "coordination.k8s.io", "resource": "leases", "verb": "update"}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    review |= {"spec": {"resourceAttributes": wanted | {"namespace": "kube-system"}}}
    token = server.token_for("controller")
    async with KubeClient(server.base_url, token, server.ca_file) as user, asyncio.timeout(60):
        while True:
            path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            if (await user.request("POST", path, review))["status"]["allowed"]:
                return
            await asyncio.sleep(0.05)
