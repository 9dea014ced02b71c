"""The VFs of a node: which Pod has which one, with the daemon's own permissions."""

import asyncio
import contextlib

import pytest

from kuryr_k8s.cni.bindings.base import BindingContext
from kuryr_k8s.cni.bindings.sriov.cards import Cards
from kuryr_k8s.cni.bindings.sriov.devices import Devices
from kuryr_k8s.cni.caches import Caches
from kuryr_k8s.k8s.connect import connect
from kuryr_k8s.k8s.resources import Key
from tests.kit.confs import new_socket
from tests.kit.kube.objects import path_of
from tests.kit.node.cards import PRODUCT, VENDOR, add_card, set_up, take_away
from tests.kit.node.kubelet import Kubelet

RESOURCE = "intel.com/sriov_net"
OPAQUE = "pod.alpha.kubernetes.io/opaque-int-resource-sriov-vf-physnet2"
NODE = "node1"


class Node:
    """A node with a card, a kubelet, and ADDs of Pods that are under way."""

    def __init__(self, cluster, sysfs):
        self.cluster = cluster
        self.sysfs = sysfs
        self.slots = add_card(sysfs)
        self.kubelet = Kubelet()
        self.adding = set()
        self.in_use = set()

    def under_way(self, pod_uid):
        return pod_uid in self.adding

    def __len__(self):
        return len(self.adding)

    async def ask(self, name, *ifnames, adding=True, physnet="physnet2"):
        """The controller asks for VFs of a Pod; its KuryrPort's path."""
        made = await self.cluster.client.create(
            {
                "apiVersion": "openstack.org/v1",
                "kind": "KuryrPort",
                "metadata": {"name": name, "namespace": self.cluster.namespace},
                "spec": {"podUid": f"uid-of-{name}", "podNodeName": NODE},
            }
        )
        asked = {ifname: {"physnet": physnet} for ifname in ifnames}
        await self.cluster.client.patch(
            f"{path_of(made)}/status", {"status": {"requestedDevices": asked}}
        )
        if adding:
            self.adding.add(f"uid-of-{name}")
        return path_of(made)

    async def named(self, path, count=1):
        """Wait until the daemon has named so many VFs; their PCI addresses by interface."""
        async with asyncio.timeout(30):
            while True:
                devices = await self.devices(path)
                if len(devices) == count:
                    for device in devices.values():
                        assert device["pciVendorInfo"] == f"{VENDOR}:{PRODUCT}"
                    return {ifname: device["pciSlot"] for ifname, device in devices.items()}
                await asyncio.sleep(0.05)

    async def devices(self, path):
        found = await self.cluster.client.get(path)
        return (found.get("status") or {}).get("devices") or {}

    async def offered(self):
        """Wait until VFs are in the capacity of the Node; all of that."""
        async with asyncio.timeout(30):
            while True:
                found = await self.cluster.client.get(f"/api/v1/nodes/{NODE}")
                if OPAQUE in found["status"]["capacity"]:
                    return found["status"]["capacity"]
                await asyncio.sleep(0.05)


@pytest.fixture
async def node(shipped_permissions, tmp_path):
    made = await shipped_permissions.add_node(NODE)
    by_kubelet = {"status": {"capacity": {"cpu": "2"}, "allocatable": {"cpu": "2"}}}
    await shipped_permissions.client.patch(f"{path_of(made)}/status", by_kubelet)
    return Node(shipped_permissions, tmp_path / "sys")


@pytest.fixture
def daemon(node, kube_server, load_conf, tmp_path):
    """Runs the part of the daemon that names VFs."""
    token = tmp_path / "daemon"
    token.write_text(kube_server.token_for("daemon"))
    socket = new_socket()

    @contextlib.asynccontextmanager
    async def run(**sriov):
        options = {
            "api_root": kube_server.base_url,
            "ssl_ca_crt_file": str(kube_server.ca_file),
            "token_file": str(token),
        }
        sriov = {"resource_physnets": f"{RESOURCE}:physnet2"} | sriov
        conf = load_conf(kubernetes=options, sriov=sriov | {"pod_resources_socket": str(socket)})
        api = await connect(conf)
        caches = Caches(api)
        context = BindingContext(
            conf=conf,
            node=Key("", NODE),
            api=api,
            caches=caches,
            links=None,
            switch=None,
            adds=node,
            settled=asyncio.Event(),
        )
        devices = Devices(context, Cards(node.sysfs), lambda: node.in_use)
        async with node.kubelet.serving(socket), asyncio.TaskGroup() as group:
            loops = [*caches.loops(), *devices.loops()]
            tasks = [group.create_task(loop.run()) for loop in loops]
            yield
            for task in tasks:
                task.cancel()
        await api.close()

    return run


async def test_vfs_that_the_kubelet_has_given_are_named(node, daemon):
    node.kubelet.admit("other", "web", [(RESOURCE, node.slots[0])])
    node.kubelet.admit(
        node.cluster.namespace,
        "web",
        [(RESOURCE, node.slots[3]), (RESOURCE, node.slots[1]), ("a.org/b", node.slots[2])],
    )
    async with daemon():
        path = await node.ask("web", "eth1", "eth2")
        assert await node.named(path, 2) == {"eth1": node.slots[1], "eth2": node.slots[3]}


async def test_kubelet_is_not_asked_before_the_runtime_sets_the_pod_up(node, daemon):
    """What it says before may be of an earlier Pod of that name."""
    node.kubelet.admit(node.cluster.namespace, "web", [(RESOURCE, node.slots[0])])
    async with daemon():
        early = await node.ask("web", "eth1", adding=False)
        node.kubelet.admit(node.cluster.namespace, "later", [(RESOURCE, node.slots[1])])
        await node.named(await node.ask("later", "eth1"))
        assert not await node.devices(early)
        node.kubelet.pods.clear()
        node.kubelet.admit(node.cluster.namespace, "web", [(RESOURCE, node.slots[2])])
        node.adding.add("uid-of-web")
        assert await node.named(early) == {"eth1": node.slots[2]}


async def test_two_pods_of_one_name_at_the_kubelet_are_not_told_apart(node, daemon):
    for slot in node.slots[:2]:
        node.kubelet.admit(node.cluster.namespace, "web", [(RESOURCE, slot)])
    async with daemon():
        path = await node.ask("web", "eth1")
        node.kubelet.admit(node.cluster.namespace, "later", [(RESOURCE, node.slots[2])])
        await node.named(await node.ask("later", "eth1"))
        assert not await node.devices(path)
        del node.kubelet.pods[0]
        assert await node.named(path) == {"eth1": node.slots[1]}


async def test_vf_of_a_claim_is_named_by_its_slice(node, daemon):
    client, namespace = node.cluster.client, node.cluster.namespace
    group = "/apis/resource.k8s.io/v1"
    request = {"name": "vf", "exactly": {"deviceClassName": "fast"}}
    await client.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "claim", "namespace": namespace},
            "spec": {"devices": {"requests": [request]}},
        }
    )
    result = {"request": "vf", "driver": "d.example", "pool": NODE, "device": "vf-2"}
    await client.patch(
        f"{group}/namespaces/{namespace}/resourceclaims/claim/status",
        {"status": {"allocation": {"devices": {"results": [result]}}}},
    )
    attribute = {"resource.kubernetes.io/pciBusID": {"string": node.slots[2]}}
    await client.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "slice"},
            "spec": {
                "driver": "d.example",
                "nodeName": NODE,
                "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "vf-2", "attributes": attribute}],
            },
        }
    )
    node.kubelet.admit(namespace, "web", claims=[(namespace, "claim")])
    try:
        async with daemon(resource_physnets="fast:physnet2"):
            path = await node.ask("web", "eth1")
            assert await node.named(path) == {"eth1": node.slots[2]}
    finally:
        await client.delete(f"{group}/resourceslices/slice")


async def test_daemon_offers_and_chooses_vfs_itself(node, daemon):
    take_away(node.sysfs, node.slots[0])  # somebody has it
    set_up(node.sysfs, node.slots[2])  # and this one is the node's own link
    node.in_use.add(node.slots[1])  # another Pod's
    async with daemon(advertise="physnet2:ens1", resource_physnets=""):
        assert (await node.offered())[OPAQUE] == "4"
        first = await node.ask("first", "eth1")
        assert await node.named(first) == {"eth1": node.slots[3]}
        second = await node.ask("second", "eth1")
        node.in_use.clear()
        assert await node.named(second) == {"eth1": node.slots[1]}


async def test_vf_stays_named_while_the_controller_asks_again(node, daemon):
    async with daemon(advertise="physnet2:ens1", resource_physnets=""):
        path = await node.ask("web", "eth1")
        named = await node.named(path)
        await node.cluster.client.patch(
            f"{path}/status", {"status": {"requestedDevices": {"eth2": {"physnet": "physnet2"}}}}
        )
        assert await node.named(path, 2) == named | {"eth2": node.slots[1]}
        await node.cluster.client.patch(
            f"{path}/status", {"status": {"requestedDevices": {"eth2": None}}}
        )
        assert await node.named(path) == named


async def test_interface_that_comes_before_a_named_one_gets_another_vf(node, daemon):
    async with daemon(advertise="physnet2:ens1", resource_physnets=""):
        path = await node.ask("web", "eth2")
        (slot,) = (await node.named(path)).values()
        await node.cluster.client.patch(
            f"{path}/status", {"status": {"requestedDevices": {"eth1": {"physnet": "physnet2"}}}}
        )
        assert await node.named(path, 2) == {"eth1": node.slots[1], "eth2": slot}


async def test_capacity_that_is_not_offered_any_more_goes(node, daemon):
    other = OPAQUE.replace("physnet2", "physnet9")
    await node.cluster.client.patch(
        f"/api/v1/nodes/{NODE}/status", {"status": {"capacity": {other: "7"}}}
    )
    async with daemon(advertise="physnet2:ens1"):
        capacity = await node.offered()
        assert other not in capacity
        assert capacity["cpu"] == "2"
    async with daemon(), asyncio.timeout(30):
        while OPAQUE in capacity:
            found = await node.cluster.client.get(f"/api/v1/nodes/{NODE}")
            capacity = found["status"]["capacity"]
            await asyncio.sleep(0.05)
