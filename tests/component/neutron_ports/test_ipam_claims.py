"""Pods that refer to IPAMClaims: the port of a claim is that of one Pod after another."""

import json

import aiohttp
import pytest

from lab.paths import REPOSITORY
from tests.component.neutron_ports import ports
from tests.component.pools.pods import end
from tests.kit.confs import NODE
from tests.kit.kube.objects import make_network_attachment, make_neutron_port, path_of

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


def referring(name="vm.storage", network="storage", **further):
    element = {"name": network, "ipam-claim-reference": name, **further}
    return {NETWORKS: json.dumps([element])}


async def define(stage, name, network, **config):
    """An operator makes a NetworkAttachmentDefinition of a network."""
    kuryr = {"subnetId": ",".join(network["subnets"]), **config}
    await stage.client.create(make_network_attachment(name, stage.cluster.namespace, kuryr=kuryr))


async def remove(stage, name, pod):
    """A Pod ends, and somebody deletes the NeutronPort that it had."""
    await end(stage, name, pod)
    await ports.until(stage, "vm.storage", "Available")
    await stage.client.delete(ports.path(stage, "vm.storage"))
    await ports.until_gone(stage, "vm.storage")


def told(port):
    """The addresses of a port as the status of a claim has them, in its order."""
    addresses = sorted(ports.ips(port), key=lambda address: ":" in address)
    return [f"{ip}/{64 if ':' in ip else 24}" for ip in addresses]


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


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_groups_of_a_definition_are_those_of_its_claims_ports(stage, storage, count):
    """Nodes have ports: so Pods have one more group, by which these reach them."""
    made = [stage.cloud.add_security_group(f"group{number}")["id"] for number in range(count)]
    named = sorted(made, reverse=True)
    await define(stage, "filtered", storage, securityGroupIds=named)
    await claim(stage)
    nodes = stage.cloud.add_network("nodes", "10.63.0.0/24")
    groups = options(neutron_defaults={"node_subnet": nodes["subnets"][0]})
    groups["kubernetes"]["enabled_handlers"] += ",node"
    async with stage.controller(**groups):
        _pod, port = await run(stage, "first", referring(network="filtered"))
        (member,) = ports.member_groups(stage)
        assert set(port["security_groups"]) == {*named, member}


async def test_automatic_address_of_a_claim_is_not_asked_for_again(stage, storage):
    """It follows from the MAC, and Neutron refuses to be asked for it; the other one stays."""
    network = stage.cloud.add_network("mixed", "10.71.0.0/24")
    modes = {"ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}
    stage.cloud.add_subnet(network["id"], "fd71::/64", **modes)
    await define(stage, "mixed", network)
    made = await claim(stage)
    other = stage.cloud.add_port(network["id"])
    async with stage.controller(**options()):
        pod, port = await run(stage, "first", referring(network="mixed"))
        before = told(port)
        await until_status(stage, made, ips=before)
        await remove(stage, "first", pod)
        stage.cloud.remove_port(other["id"])  # Neutron would choose its address now
        _pod, again = await run(stage, "second", referring(network="mixed"))
        assert told(again)[0] == before[0]
        await until_status(stage, made, ips=told(again))


async def test_claim_in_a_network_of_another_project_tells_its_new_addresses(stage, storage):
    tenant = stage.cloud.add_project("tenant")
    network = stage.cloud.add_network("theirs", "10.71.0.0/24", project_id=tenant, shared=True)
    await define(stage, "theirs", network)
    made = await claim(stage)
    async with stage.controller(**options()):
        pod, port = await run(stage, "first", referring(network="theirs"))
        await until_status(stage, made, ips=told(port))
        await remove(stage, "first", pod)
        stage.cloud.add_port(network["id"], fixed_ips=port["fixed_ips"])
        _pod, again = await run(stage, "second", referring(network="theirs"))
        assert told(again) != told(port)
        await until_status(stage, made, ips=told(again))


async def test_owner_that_cannot_be_the_name_of_a_claim_is_not_looked_for(
    stage, storage, controller_url
):
    """The API server would take it for a list of all claims, which is not permitted."""
    owner = {
        "apiVersion": "k8s.cni.cncf.io/v1alpha1",
        "kind": "IPAMClaim",
        "name": ".",
        "uid": "00000000-0000-4000-8000-000000000000",
    }
    body = make_neutron_port("db", stage.cluster.namespace)
    body["metadata"]["ownerReferences"] = [owner]
    listening, url = controller_url
    async with stage.controller(**options(), **listening):
        await stage.client.create(body)
        await ports.until(stage, "db", "Available")
        await stage.client.patch(ports.path(stage, "db"), {"spec": {"hostHint": NODE}})

        async def is_looked_at_again():  # after the claim was looked for, if it was
            return (await ports.status(stage, "db"))["observedGeneration"] == 2

        await stage.until(is_looked_at_again)
        async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as answer:
            assert "[-] nothing refused" not in await answer.text()
