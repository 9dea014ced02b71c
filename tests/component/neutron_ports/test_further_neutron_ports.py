"""NeutronPorts for further interfaces of a Pod, and those of virtual functions (VFs)."""

import pytest

from tests.component.neutron_ports import ports
from tests.component.neutron_ports.ports import NAME, NETWORK
from tests.component.pods import test_sriov as sriov
from tests.component.pools.pods import end
from tests.kit.confs import NODE
from tests.kit.kube.client import KubeRefusal

NAMES = "openstack.org/neutron_ports"
card = sriov.card


@pytest.fixture
def storage(stage):
    """A second network of the project."""
    return stage.cloud.add_network("storage", "10.70.0.0/24")


def with_vfs(card, mode="bind"):
    """Options with which Pods have NeutronPorts and VFs."""
    chosen = ports.options(mode)
    chosen["kubernetes"]["multi_vif_drivers"] = "named_network,sriov"
    return chosen | {"sriov": {"resource_physnets": f"{sriov.RESOURCE}:physnet2"}}


async def test_pod_has_neutron_ports_besides_its_default_interface(stage, storage):
    async with stage.controller(**ports.options()):
        for name in ("a", "b"):
            await ports.add(stage, name, network="storage")
            await ports.until(stage, name, "Available")
        pod, default = await ports.run(stage, "web", **{NAMES: "b, a"})
        of = await stage.port_ids("web")
        assert set(of) == {"eth0", "eth1", "eth2"}
        assert of["eth0"] == default["id"]
        assert default["network_id"] == stage.cloud.pods["id"]
        for name, ifname in (("b", "eth1"), ("a", "eth2")):
            bound = await ports.until(stage, name, "Bound")
            assert (bound["portId"], bound["boundTo"]["name"]) == (of[ifname], "web")
        await end(stage, "web", pod)
        for name in ("a", "b"):
            await ports.until(stage, name, "Available")
        assert set(stage.cloud.ports) == {of["eth1"], of["eth2"]}


async def test_default_interface_has_another_one_than_further_interfaces(stage, storage):
    async with stage.controller(**ports.options()):
        for name in ("a", "b"):
            await ports.add(stage, name, labels={"tier": "db"}, network="storage")
            await ports.until(stage, name, "Available")
        await ports.run(stage, "web", **{NAME: "tier=db", NAMES: "a"})
        of = await stage.port_ids("web")
        assert of["eth0"] == (await ports.until(stage, "b", "Bound"))["portId"]
        assert of["eth1"] == (await ports.until(stage, "a", "Bound"))["portId"]


async def test_pods_that_want_the_same_ones_get_them_one_after_another(stage):
    async with stage.controller(**ports.options()):
        for name in ("a", "b", "c"):
            await ports.add(stage, name, labels={"tier": name})
            await ports.until(stage, name, "Available")
        asking = {
            "one": {NAME: "a", NAMES: "b,c"},
            "two": {NAME: "c", NAMES: "b,a"},
            "three": {NAMES: "c,b,a"},
            "four": {NAME: "tier=c", NAMES: "b"},
        }
        pods = {
            name: await stage.cluster.add_pod(name, node=NODE, annotations=annotations)
            for name, annotations in asking.items()
        }

        async def plugged():
            recorded = await stage.kuryrports()
            found = [each for each in recorded if each.get("status", {}).get("vifs")]
            return found and found[0]["metadata"]["name"]

        while pods:
            name = await stage.until(plugged)
            await stage.activate(name)
            await end(stage, name, pods.pop(name))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("nowhere", "there is no NeutronPort nowhere"),
        ("a,a", "each named once"),
        ("a;b", "no list of names"),
    ],
)
async def test_what_cannot_be_is_an_event(stage, names, words):
    async with stage.controller(**ports.options("create")):
        await ports.add(stage, "a")
        await ports.until(stage, "a", "Available")
        await stage.cluster.add_pod("web", node=NODE, annotations={NAMES: names})
        await stage.until_told(words)


async def test_port_of_a_vf_is_bound_to_it_while_a_pod_has_it(stage, card):
    async with stage.controller(**with_vfs(card)):
        await ports.add(stage, "vf", network="card", vnicType="direct", hostHint=NODE)
        free = await ports.until(stage, "vf", "Available")
        port = stage.cloud.ports[free["portId"]]
        assert port["binding:vnic_type"] == "direct"
        pod = await sriov.add_pod(
            stage, requested={sriov.RESOURCE: "1"}, annotations={NAMES: "vf"}
        )
        await sriov.name_devices(stage)
        await stage.until_plugged_in("web")
        assert (await stage.port_ids("web"))["eth1"] == port["id"]
        assert port["device_id"] == pod["metadata"]["uid"]
        assert port["binding:profile"]["pci_slot"] == sriov.SLOTS[0]
        await ports.until(stage, "vf", "Bound")
        await stage.activate("web")
        await end(stage, "web", pod)
        await ports.until(stage, "vf", "Available")
        assert port["binding:profile"] == {}
        assert (port["binding:host_id"], port["device_id"]) == ("", free_id(stage, port))


def free_id(stage, port):
    """The device_id of a port that no Pod has, as its description says."""
    return port["description"].rpartition(":")[2]


async def test_port_of_a_vf_that_the_pod_does_not_request_is_an_event(stage, card):
    async with stage.controller(**with_vfs(card)):
        await ports.add(stage, "vf", network="card", vnicType="direct")
        await ports.until(stage, "vf", "Available")
        await stage.cluster.add_pod("web", node=NODE, annotations={NAMES: "vf"})
        await stage.until_told("the Pod requests no VFs")
        assert "boundTo" not in await ports.status(stage, "vf")


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({NAME: "vf"}, "is for a VF: name it in openstack.org/neutron_ports"),
        ({NETWORK: "card"}, "no NeutronPort that is Available is as the Pod asks"),
    ],
)
async def test_port_of_a_vf_is_no_default_interface(stage, card, annotations, words):
    async with stage.controller(**with_vfs(card)):
        await ports.add(stage, "vf", network="card", vnicType="direct")
        await ports.until(stage, "vf", "Available")
        await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_told(words)


async def test_port_of_a_vf_needs_the_driver_of_vfs(stage, card):
    async with stage.controller(**ports.options()):
        await ports.add(stage, "vf", network="card", vnicType="direct")
        await ports.until(stage, "vf", "Available")
        await stage.cluster.add_pod("web", node=NODE, annotations={NAMES: "vf"})
        await stage.until_told("vf is for a VF", "sriov")


async def test_vnic_type_never_changes(stage):
    await ports.add(stage, "vf", vnicType="direct")
    with pytest.raises(KubeRefusal, match="never changes"):
        await stage.client.patch(ports.path(stage, "vf"), {"spec": {"vnicType": "normal"}})
