"""Pods that refer to IPAMClaims: the port of a claim is that of one Pod after another."""

import json

import pytest

from lab.paths import REPOSITORY
from tests.component.neutron_ports import ports
from tests.component.pools.pods import end
from tests.kit.confs import NODE
from tests.kit.kube.objects import make_network_attachment, path_of

CRDS = REPOSITORY / "lab" / "kubernetes" / "crds"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
DRIVERS = "named_network,npwg_multiple_interfaces"


def options(**changes):
    groups = ports.options(**changes)
    groups["kubernetes"]["multi_vif_drivers"] = DRIVERS
    return groups


@pytest.fixture
async def storage(stage):
    """A second network, the NetworkAttachmentDefinition `storage` of it, and a claim."""
    await stage.cluster.install_crds(CRDS)
    network = stage.cloud.add_network("storage", "10.70.0.0/24", "fd70::/64")
    config = {"subnetId": ",".join(network["subnets"])}
    namespace = stage.cluster.namespace
    await stage.client.create(make_network_attachment("storage", namespace, kuryr=config))
    return network


async def claim(stage, name="vm.storage"):
    """A workload's controller makes an IPAMClaim."""
    return await stage.client.create(
        {
            "apiVersion": "k8s.cni.cncf.io/v1alpha1",
            "kind": "IPAMClaim",
            "metadata": {"name": name, "namespace": stage.cluster.namespace},
            "spec": {"network": "storage", "interface": ""},
        }
    )


def referring(name="vm.storage", **further):
    element = {"name": "storage", "ipam-claim-reference": name, **further}
    return {NETWORKS: json.dumps([element])}


async def run(stage, name, annotations):
    pod = await stage.cluster.add_pod(name, node=NODE, annotations=annotations)
    await stage.until_plugged_in(name)
    return pod, stage.cloud.ports[(await stage.port_ids(name))["eth1"]]


async def until_status(stage, made, **wanted):
    """Wait until the status of a claim has these fields; it."""

    async def reached():
        found = (await stage.client.find(path_of(made))).get("status") or {}
        return found if wanted.items() <= found.items() else None

    return await stage.until(reached)


async def test_pods_of_a_claim_have_its_port_one_after_another(stage, storage):
    made = await claim(stage)
    async with stage.controller(**options()):
        pod, port = await run(stage, "first", referring())
        assert port["network_id"] == storage["id"]
        ips = [f"{ip}/{24 if '.' in ip else 64}" for ip in ports.ips(port)]
        status = await until_status(stage, made, ownerPod={"name": "first"})
        assert sorted(status["ips"]) == sorted(ips)
        (condition,) = status["conditions"]
        assert (condition["type"], condition["status"]) == ("IPsAllocated", "True")
        live = await stage.client.find(ports.path(stage, "vm.storage"))
        (owner,) = live["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("IPAMClaim", made["metadata"]["uid"])
        await end(stage, "first", pod)
        await ports.until(stage, "vm.storage", "Available")
        _pod, again = await run(stage, "second", referring())
        assert again["id"] == port["id"]
        await until_status(stage, made, ownerPod={"name": "second"}, ips=status["ips"])


async def test_second_pod_of_a_claim_waits_for_the_first(stage, storage):
    await claim(stage)
    async with stage.controller(**options(patience=ports.LATE)):
        first, port = await run(stage, "first", referring())
        await stage.cluster.add_pod("second", node=NODE, annotations=referring())
        assert await stage.until_told("is bound to Pod", "first") == "KuryrNoNeutronPort"
        await end(stage, "first", first)
        await stage.until_plugged_in("second")
        assert (await stage.port_ids("second"))["eth1"] == port["id"]


async def test_port_of_a_claim_is_nobody_elses(stage, storage):
    await claim(stage)
    async with stage.controller(**options()):
        pod, _port = await run(stage, "first", referring())
        await end(stage, "first", pod)
        await ports.until(stage, "vm.storage", "Available")
        name = {ports.NAME: "vm.storage"}
        await stage.cluster.add_pod("other", node=NODE, annotations=name)
        await stage.until_told("is that of an IPAMClaim")


async def test_addresses_of_an_earlier_claim_of_the_name_are_not_the_new_ones(stage, storage):
    """The old claim's port waits for the garbage collector, which the test is."""
    old = await claim(stage)
    async with stage.controller(**options(patience=ports.LATE)):
        pod, port = await run(stage, "first", referring())
        await end(stage, "first", pod)
        await ports.until(stage, "vm.storage", "Available")
        await stage.client.delete(path_of(old))
        await claim(stage)
        await stage.cluster.add_pod("second", node=NODE, annotations=referring())
        await stage.until_told("is not that of IPAMClaim")
        await stage.client.delete(ports.path(stage, "vm.storage"))
        await stage.until_plugged_in("second")
        assert (await stage.port_ids("second"))["eth1"] != port["id"]


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        (referring("nowhere"), "there is no IPAMClaim nowhere"),
        (referring(ips=["10.70.0.7"]), "has ips beside an ipam-claim-reference"),
    ],
    ids=["missing", "ips"],
)
async def test_what_cannot_be_is_an_event(stage, storage, annotations, words):
    await claim(stage)
    async with stage.controller(**options()):
        await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_told(words)
        assert not stage.cloud.ports


async def test_claims_need_neutron_ports(stage, storage):
    await claim(stage)
    async with stage.controller(**options(mode="off")):
        await stage.cluster.add_pod("web", node=NODE, annotations=referring())
        await stage.until_told("neutron_ports is off")


async def test_default_interface_can_be_that_of_a_claim(stage, storage):
    made = await claim(stage, "vm.default")
    groups = options()
    groups["kubernetes"]["multus"] = "delegate"
    config = {"type": "kuryr-cni", "netAttachDefName": f"{stage.cluster.namespace}/ours"}
    body = make_network_attachment(
        "ours", stage.cluster.namespace, kuryr={"subnetId": storage["subnets"][0]}
    )
    body["spec"] = {"config": json.dumps(config)}
    await stage.client.create(body)
    element = {
        "name": "ours",
        "namespace": stage.cluster.namespace,
        "ipam-claim-reference": "vm.default",
    }
    annotations = {"v1.multus-cni.io/default-network": json.dumps([element])}
    async with stage.controller(**groups):
        await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        vif = await stage.until_plugged_in("web")
        assert (await ports.status(stage, "vm.default"))["portId"] == vif["id"]
        await until_status(stage, made, ownerPod={"name": "web"})


async def test_name_that_cannot_be_a_claims_is_told(stage, storage):
    async with stage.controller(**options()):
        await stage.cluster.add_pod("web", node=NODE, annotations=referring("a/b"))
        await stage.until_told("cannot be the name of a claim")


async def test_addresses_of_a_claim_are_those_of_its_next_port_as_well(stage, storage):
    """Somebody has deleted the NeutronPort while no Pod had it."""
    made = await claim(stage)
    other = stage.cloud.add_port(storage["id"])
    async with stage.controller(**options()):
        pod, port = await run(stage, "first", referring())
        addresses = ports.ips(port)
        await until_status(stage, made, ownerPod={"name": "first"})
        await end(stage, "first", pod)
        await ports.until(stage, "vm.storage", "Available")
        await stage.client.delete(ports.path(stage, "vm.storage"))
        await ports.until_gone(stage, "vm.storage")
        stage.cloud.remove_port(other["id"])  # Neutron would choose its address now
        _pod, again = await run(stage, "second", referring())
        assert (again["id"] != port["id"], ports.ips(again)) == (True, addresses)


async def test_claim_is_for_one_interface_of_a_pod(stage, storage):
    await claim(stage)
    element = {"name": "storage", "ipam-claim-reference": "vm.storage"}
    async with stage.controller(**options()):
        annotations = {NETWORKS: json.dumps([element, element])}
        await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_told("two interfaces ask for one port")
        assert "vifs" not in ((await stage.kuryrport("web")).get("status") or {})
