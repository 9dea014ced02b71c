"""Lives of a Pod, each from its creation until nothing of it is left."""

import json

from lab.paths import REPOSITORY
from tests.kit.kube.objects import make_network_attachment, path_of
from tests.lives.life import life

POD = "web"
ANNOTATION = "openstack.org/kuryr-additional-subnets"
NAMED = "openstack.org/spec-ports"
SELECTED = "k8s.v1.cni.cncf.io/networks"
SHOWN = "k8s.v1.cni.cncf.io/network-status"
NETWORK, ADDRESS = "openstack.org/network_id", "openstack.org/ip_address"
FLOATING_IP, LED_TO_BY = "openstack.org/floating_ip", "openstack.org/port_floating_ip"
VF, VF_SUBNETS = "intel.com/vf", "openstack.org/kuryr-sriov-subnets"
CRDS = REPOSITORY / "lab" / "kubernetes" / "crds"
LONG = 150.0  # seconds that a step may take with a fault in it
WRITES = (
    "kube create kuryrports",
    "kube patch kuryrports/status",
    "kube delete kuryrports",
    "kube patch kuryrports",
    "neutron POST /ports",
    "neutron DELETE /ports/{id}",
)


@life(writes=WRITES, plain=True)
async def deleted(stage, _keeper, at):
    """It runs, and is deleted."""
    pod = await run(stage)
    await at("running")
    await stage.cluster.delete_pod(pod)
    await _give_back(stage, at)


@life(writes=WRITES, shared="running")
async def finished(stage, _keeper, at):
    """It runs and ends by itself; its object stays."""
    pod = await run(stage)
    await at("running")
    await stage.cluster.set_phase(pod, "Succeeded")
    await _give_back(stage, at)
    await stage.cluster.delete_pod(pod)


@life(shared="running")
async def made_again(stage, _keeper, at):
    """It is deleted and made again at once under its name, as by a StatefulSet."""
    old = await run(stage)
    await at("running")
    await stage.cluster.delete_pod(old)
    new = await stage.cluster.add_pod(POD, node=stage.node)
    await stage.until_deleting(POD, within=LONG)
    await stage.let_go(POD)

    async def follows():
        recorded = await stage.kuryrport(POD)
        return recorded and recorded["spec"]["podUid"] == new["metadata"]["uid"]

    await stage.until(follows, within=LONG)
    await stage.until_plugged_in(POD, within=LONG)
    await stage.activate(POD)
    await at("running again")
    await stage.cluster.delete_pod(new)
    await _give_back(stage, at)


# No Events there: whether one is written before the Pod is gone is not always the same.
@life(options={"kubernetes": {"use_events": "false"}})
async def deleted_early(stage, _keeper, at):
    """It is deleted before its port is made: the node has no daemon yet."""
    published = {"metadata": {"annotations": None}}
    await stage.client.patch(f"/api/v1/nodes/{stage.node}", published)
    pod = await stage.cluster.add_pod(POD, node=stage.node)

    async def recorded():
        return await stage.kuryrport(POD)

    await stage.until(recorded, within=LONG)
    await at("waiting")
    await stage.cluster.delete_pod(pod)
    await stage.until_gone(POD, within=LONG)
    await at("end")


@life(shared="running")
async def other_groups(stage, keeper, at):
    """It runs on while the operator configures other security groups; then it is deleted."""
    pod = await run(stage)
    await at("running")
    group = stage.cloud.add_security_group("other")["id"]
    await keeper.restart(neutron_defaults={"pod_security_groups": group})

    async def followed():
        recorded = await stage.kuryrport(POD)
        return recorded["status"]["securityGroupIds"] == [group]

    await stage.until(followed, within=LONG)
    await at("running with other groups")
    await stage.cluster.delete_pod(pod)
    await _give_back(stage, at)


@life(
    options={"kubernetes": {"multi_vif_drivers": "additional_subnets"}},
    batched={"/v2.0/ports": 1},  # ports that are asked for at the same time
)
async def three_interfaces(stage, _keeper, at):
    """It asks for two further interfaces, and runs until it is deleted."""
    storage = stage.cloud.add_network("storage", "10.70.0.0/24", "fd70::/64")
    pod = await run(stage, annotations={ANNOTATION: json.dumps(storage["subnets"])})
    await at("running")
    await stage.cluster.delete_pod(pod)
    await _give_back(stage, at)


@life()
async def specific_port(stage, _keeper, at):
    """It has a port that its user made, which is there afterwards."""
    network = stage.cloud.add_network("storage", "10.70.0.0/24", mtu=1442)
    host = {"binding:host_id": "of-the-user"}
    port = stage.cloud.add_port(network["id"], name="theirs", **host)
    pod = await run(stage, annotations={NAMED: json.dumps([port["id"]])})
    await at("running")
    await stage.cluster.delete_pod(pod)
    await _give_back(stage, at)


@life(
    options={"kubernetes": {"multi_vif_drivers": "npwg_multiple_interfaces"}},
    batched={"/v2.0/ports": 1},
)
async def selected_network(stage, _keeper, at):
    """It selects a NetworkAttachmentDefinition, and says afterwards what it got."""
    await _define_network(stage, stage.cloud.add_network("storage", "10.70.0.0/24"))
    pod = await run(stage, annotations={SELECTED: "storage"})
    await _until_said(stage, pod, "eth1")
    await at("running")
    await stage.cluster.delete_pod(pod)
    await _give_back(stage, at)


@life(options={"kubernetes": {"multi_vif_drivers": "named_network"}})
async def named_network(stage, keeper, at):
    """It names its network, an address and any floating IP, which it gives up before it ends."""
    storage, public = _reachable_network(stage)
    await keeper.restart(neutron_defaults={"external_svc_net": public["id"]})
    asked = {NETWORK: storage["id"], ADDRESS: "10.70.0.7", FLOATING_IP: "true"}
    pod = await run(stage, annotations=asked)
    await _until_led_to(stage, pod, by=True)
    await at("running")
    await stage.client.patch(path_of(pod), {"metadata": {"annotations": {FLOATING_IP: None}}})
    await _until_led_to(stage, pod, by=False)
    await at("without a floating IP")
    await stage.cluster.delete_pod(pod)
    await _give_back(stage, at)


@life(options={"kubernetes": {"multi_vif_drivers": "named_network"}})
async def found_floating_ip(stage, _keeper, at):
    """It names a floating IP that is there before, and afterwards."""
    storage, public = _reachable_network(stage)
    theirs = stage.cloud.add_floating_ip(public["id"], description="of its user")
    asked = {NETWORK: storage["id"], FLOATING_IP: theirs["id"]}
    pod = await run(stage, annotations=asked)
    await _until_led_to(stage, pod, by=True)
    await at("running")
    await stage.cluster.delete_pod(pod)
    await _give_back(stage, at)


def _reachable_network(stage):
    """There is a network with a router to an external one."""
    storage = stage.cloud.add_network("storage", "10.70.0.0/24")
    public = stage.cloud.add_external_network("public", "172.24.4.0/24")
    stage.cloud.add_router(public["id"], *storage["subnets"])
    return storage, public


async def _until_led_to(stage, pod, *, by):
    """Wait until Pod and KuryrPort tell of a floating IP; or until both tell of none."""

    async def tell():
        live = await stage.client.find(path_of(pod))
        told = (live["metadata"].get("annotations") or {}).get(LED_TO_BY)
        recorded = (await stage.kuryrport(POD))["status"].get("floatingIP")
        return [bool(told), bool(recorded)] == [by, by]

    await stage.until(tell, within=LONG)


@life(
    options={
        "kubernetes": {"multi_vif_drivers": "additional_subnets,npwg_multiple_interfaces,sriov"},
        "sriov": {"resource_physnets": f"{VF}:physnet2"},
    },
    batched={"/v2.0/ports": 1},
)
async def four_drivers(stage, _keeper, at):
    """It asks for an interface of each Multi-VIF driver."""
    cloud = stage.cloud
    further = cloud.add_network("further", "10.71.0.0/24")
    port = cloud.add_port(cloud.add_network("theirs", "10.72.0.0/24")["id"], name="theirs")
    card = cloud.add_network("card", "10.73.0.0/24", **{"provider:physical_network": "physnet2"})
    await _define_network(stage, cloud.add_network("storage", "10.70.0.0/24"))
    asked = {
        ANNOTATION: json.dumps(further["subnets"]),
        NAMED: json.dumps([port["id"]]),
        SELECTED: "storage@net1",
        VF_SUBNETS: json.dumps({"physnet2": card["subnets"]}),
    }
    pod = await stage.cluster.add_pod(
        POD, node=stage.node, annotations=asked, containers=[_requesting_a_vf()]
    )
    await _name_vfs(stage)
    await stage.until_plugged_in(POD, within=LONG)
    await stage.activate(POD)
    await _until_said(stage, pod, "net1")
    await at("running")
    await stage.cluster.delete_pod(pod)
    await _give_back(stage, at)


def _requesting_a_vf():
    requested = {VF: "1"}
    resources = {"limits": requested, "requests": requested}
    return {"name": "main", "image": "example.invalid/nothing:1", "resources": resources}


async def _name_vfs(stage):
    """The daemon names the VFs that the controller asks for.

    It does so when the controller has recorded the user's port, too: if its word came between the
    two records, the second one would be refused and sent again.
    """

    async def asked():
        status = ((await stage.kuryrport(POD)) or {}).get("status") or {}
        return "specificPorts" in status and status.get("requestedDevices")

    device = {"pciSlot": "0000:03:10.1", "pciVendorInfo": "8086:10ed"}
    devices = {
        ifname: fields | device
        for ifname, fields in (await stage.until(asked, within=LONG)).items()
    }
    await stage.client.patch(f"{stage.path(POD)}/status", {"status": {"devices": devices}})


async def _define_network(stage, network):
    """There is a NetworkAttachmentDefinition of the network."""
    await stage.cluster.install_crds(CRDS)
    config = {"subnetId": network["subnets"][0]}
    await stage.client.create(
        make_network_attachment("storage", stage.cluster.namespace, kuryr=config)
    )


async def _until_said(stage, pod, ifname):
    """Wait until the Pod's network-status has an interface."""

    async def says_so():
        live = await stage.client.find(path_of(pod))
        return ifname in live["metadata"].get("annotations", {}).get(SHOWN, "")

    await stage.until(says_so, within=LONG)


LIVES = (
    deleted,
    finished,
    made_again,
    deleted_early,
    other_groups,
    three_interfaces,
    specific_port,
    selected_network,
    named_network,
    found_floating_ip,
    four_drivers,
)


async def run(stage, **pod):
    """It is scheduled and runs."""
    pod = await stage.cluster.add_pod(POD, node=stage.node, **pod)
    await stage.until_plugged_in(POD, within=LONG)
    await stage.activate(POD)
    return pod


async def _give_back(stage, at):
    await stage.until_deleting(POD, within=LONG)
    await stage.let_go(POD)
    await stage.until_gone(POD, within=LONG)
    await at("end")
