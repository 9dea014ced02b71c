"""Pods that request virtual functions (VFs) of network cards; the test names the node's VFs."""

import json

import pytest

from lab.paths import REPOSITORY
from tests.component.pools.pods import end
from tests.kit.confs import NODE
from tests.kit.fakes.faults import answer
from tests.kit.kube.objects import make_network_attachment, path_of

SUBNETS = "openstack.org/kuryr-sriov-subnets"
SPECIFIC = "openstack.org/spec-ports"
SELECTED = "k8s.v1.cni.cncf.io/networks"
CRDS = REPOSITORY / "lab" / "kubernetes" / "crds"
RESOURCE = "intel.com/sriov_net"
OPAQUE = "pod.alpha.kubernetes.io/opaque-int-resource-sriov-vf-physnet2"
OPTIONS = {"multi_vif_drivers": "sriov"}
PATIENCE = {"first_refused": 0.2, "refused": 0.2, "first_retry": 0.1, "unneeded": 0.1}
SLOTS = [f"0000:03:10.{number}" for number in range(4)]


@pytest.fixture
def card(stage):
    """A network on the physical network behind the nodes' cards."""
    return stage.cloud.add_network(
        "card",
        "10.80.0.0/24",
        "fd80::/64",
        **{
            "provider:network_type": "vlan",
            "provider:physical_network": "physnet2",
            "provider:segmentation_id": 123,
        },
    )


def options(card, **sriov):
    subnets = "+".join(card["subnets"])
    return {
        "kubernetes": OPTIONS,
        "sriov": {
            "resource_physnets": f"{RESOURCE}:physnet2",
            "physnet_subnet_mappings": f"physnet2:{subnets}",
            **sriov,
        },
    }


def container(name="main", **requested):
    """A container that requests devices."""
    return {
        "name": name,
        "image": "example.invalid/nothing:1",
        "resources": {"limits": requested, "requests": requested},
    }


async def add_pod(stage, *, requested, annotations=None):
    return await stage.cluster.add_pod(
        "web", node=NODE, annotations=annotations, containers=[container(**requested)]
    )


async def requested_devices(stage):
    """Wait until the KuryrPort asks for devices; what it asks for."""

    async def asked():
        recorded = await stage.kuryrport("web")
        return ((recorded or {}).get("status") or {}).get("requestedDevices")

    return await stage.until(asked)


async def name_devices(stage, slots=SLOTS):
    """The daemon names the devices that the KuryrPort asks for."""
    asked = await requested_devices(stage)
    devices = {
        ifname: {**fields, "pciSlot": slot, "pciVendorInfo": "8086:10ed"}
        for (ifname, fields), slot in zip(sorted(asked.items()), slots, strict=False)
    }
    await stage.client.patch(f"{stage.path('web')}/status", {"status": {"devices": devices}})
    return devices


async def interfaces(stage):
    """The Pod's VIFs, and their ports, by the names of interfaces."""
    recorded = await stage.kuryrport("web")
    vifs = {
        ifname: entry["vif"]["versioned_object.data"]
        for ifname, entry in recorded["status"]["vifs"].items()
    }
    return vifs, {ifname: stage.cloud.ports[vif["id"]] for ifname, vif in vifs.items()}


@pytest.mark.parametrize("resource", [RESOURCE, OPAQUE])
async def test_each_requested_vf_is_an_interface_with_a_port_that_is_bound_to_it(
    stage, card, resource
):
    async with stage.controller(**options(card)):
        pod = await add_pod(stage, requested={resource: "2"})
        asked = await requested_devices(stage)
        assert asked == {"eth1": {"physnet": "physnet2"}, "eth2": {"physnet": "physnet2"}}
        assert not stage.ports_of(pod)
        await name_devices(stage)
        await stage.until_plugged_in("web")
        vifs, ports = await interfaces(stage)
        assert list(vifs) == ["eth0", "eth1", "eth2"]
        for ifname, slot in (("eth1", SLOTS[0]), ("eth2", SLOTS[1])):
            vif, port = vifs[ifname], ports[ifname]
            assert port["network_id"] == card["id"]
            assert port["binding:vnic_type"] == "direct"
            assert port["binding:host_id"] == "chassis1"
            assert port["binding:profile"] == {
                "pci_slot": slot,
                "pci_vendor_info": "8086:10ed",
                "physical_network": "physnet2",
            }
            assert (vif["dev_address"], vif["physnet"]) == (slot, "physnet2")
            assert vif["network"]["versioned_object.data"]["vlan"] == 123
            assert {ip["subnet_id"] for ip in port["fixed_ips"]} == set(card["subnets"])
        await end(stage, "web", pod)
    assert not stage.cloud.ports


async def test_pod_that_requests_no_vf_is_asked_for_none(stage, card):
    async with stage.controller(**options(card)):
        await stage.cluster.add_pod("web", node=NODE)
        await stage.until_plugged_in("web")
        assert "requestedDevices" not in (await stage.kuryrport("web"))["status"]


async def test_subnets_of_the_annotation_come_before_those_of_the_configuration(stage, card):
    configured = options(card)
    other = stage.cloud.add_subnet(card["id"], "10.81.0.0/24")
    annotations = {SUBNETS: json.dumps({"physnet2": [other["id"]]})}
    async with stage.controller(**configured):
        await add_pod(stage, requested={RESOURCE: "1"}, annotations=annotations)
        await name_devices(stage)
        await stage.until_plugged_in("web")
        _, ports = await interfaces(stage)
        assert [ip["subnet_id"] for ip in ports["eth1"]["fixed_ips"]] == [other["id"]]


async def test_vfs_of_containers_that_stay_are_interfaces(stage, card):
    init = [
        container("first", **{RESOURCE: "4"}),
        {**container("sidecar", **{RESOURCE: "1"}), "restartPolicy": "Always"},
    ]
    async with stage.controller(**options(card)):
        await stage.cluster.add_pod(
            "web",
            node=NODE,
            initContainers=init,
            containers=[container(**{RESOURCE: "2"}), container("other", **{"a.org/b": "7"})],
        )
        assert len(await requested_devices(stage)) == 3


REFUSED = {  # what is asked for, the words of the Event
    "no subnet": ({OPAQUE.replace("physnet2", "physnet9"): "1"}, None, "no subnet is known"),
    "too many": ({RESOURCE: "33"}, None, "requests 33 VFs"),
    "no number": ({RESOURCE: "1k"}, None, "no plain number"),
    "other count": ({RESOURCE: "2"}, {"physnet2": ["{subnet}"]}, "1 entries for physnet2"),
    "not asked for": ({RESOURCE: "1"}, {"physnet3": ["{subnet}"]}, "1 entries for physnet3"),
    "no id": ({RESOURCE: "1"}, {"physnet2": ["../x"]}, "an entry that"),
    "no object": ({RESOURCE: "1"}, ["{subnet}"], "is no object"),
    "no list": ({RESOURCE: "1"}, {"physnet2": "{subnet}"}, "no list where one belongs"),
    "other project": ({RESOURCE: "1"}, {"physnet2": ["{tenant}"]}, "neither belongs to project"),
}


@pytest.mark.parametrize("case", list(REFUSED))
async def test_what_cannot_be_is_an_event_and_no_interface_is_made(stage, card, case):
    requested, asked, words = REFUSED[case]
    tenant = stage.cloud.add_network(
        "tenant", "10.82.0.0/24", project_id=stage.cloud.add_project("tenant")
    )
    text = json.dumps(asked).replace("{subnet}", card["subnets"][0])
    text = text.replace("{tenant}", tenant["subnets"][0])
    async with stage.controller(**options(card)):
        pod = await add_pod(
            stage, requested=requested, annotations={SUBNETS: text} if asked else None
        )
        await stage.until_told(words)
        assert not stage.ports_of(pod)


async def test_vf_that_the_node_does_not_name_is_an_event_after_a_while(stage, card):
    async with stage.controller(patience=PATIENCE | {"devices": 0.2}, **options(card)):
        pod = await add_pod(stage, requested={RESOURCE: "1"})
        assert await stage.until_told("eth1", "has not named a VF") == "KuryrDeviceNotNamed"
        assert not stage.ports_of(pod)
        await name_devices(stage)
        await stage.until_plugged_in("web")


async def test_vf_whose_port_neutron_cannot_bind_leaves_no_port(stage, card):
    stage.cloud.networks[card["id"]]["provider:physical_network"] = None
    async with stage.controller(patience=PATIENCE, **options(card)):
        pod = await add_pod(stage, requested={RESOURCE: "1"})
        await name_devices(stage)
        assert await stage.until_told("could not bind", SLOTS[0]) == "PortBindingFailed"
        await stage.cloud.wait_for(lambda: not stage.ports_of(pod))


async def test_words_of_a_node_that_are_no_device_are_not_believed(stage, card):
    async with stage.controller(patience=PATIENCE, **options(card)):
        pod = await add_pod(stage, requested={RESOURCE: "1"})
        await name_devices(stage, ["../../etc"])
        other = await stage.cluster.add_pod("other", node=NODE)
        await stage.until_plugged_in("other")
        assert not stage.ports_of(pod)
        assert stage.ports_of(other)
        await name_devices(stage)
        await stage.until_plugged_in("web")


async def test_next_controller_takes_the_port_to_the_vf_that_the_node_names_now(stage, card):
    """The first one died before it recorded its interfaces, and the kubelet chose again."""
    async with stage.controller(**options(card)):
        pod = await add_pod(stage, requested={RESOURCE: "1"})
        await requested_devices(stage)
        refused = stage.proxy.faults.add(
            method="PATCH", path="/kuryrports/web/status", times=None, action=answer(500)
        )
        await stage.client.patch(
            f"{stage.path('web')}/status",
            {"status": {"devices": {"eth1": device(SLOTS[0])}}},
        )
        await stage.cloud.wait_for(lambda: len(stage.ports_of(pod)) == 2)
    refused.remove()
    await stage.client.patch(
        f"{stage.path('web')}/status", {"status": {"devices": {"eth1": device(SLOTS[1])}}}
    )
    async with stage.controller(**options(card)):
        await stage.until_plugged_in("web")
        vifs, ports = await interfaces(stage)
        assert vifs["eth1"]["dev_address"] == SLOTS[1]
        assert ports["eth1"]["binding:profile"]["pci_slot"] == SLOTS[1]
        assert len(stage.cloud.ports) == 2


def device(slot):
    return {"physnet": "physnet2", "pciSlot": slot, "pciVendorInfo": "8086:10ed"}


async def test_port_that_a_user_made_for_a_vf_takes_the_place_of_a_new_one(stage, card):
    port = stage.cloud.add_port(card["id"], name="theirs", **{"binding:vnic_type": "direct"})
    port["binding:profile"] = {"trusted": "true"}
    before = as_it_is(stage, port)
    annotations = {SPECIFIC: json.dumps([port["id"]])}
    async with stage.controller(patience=PATIENCE, **options(card)):
        pod = await add_pod(stage, requested={RESOURCE: "2"}, annotations=annotations)
        assert list(await requested_devices(stage)) == ["eth1", "eth2"]
        await name_devices(stage)
        await stage.until_plugged_in("web")
        vifs, ports = await interfaces(stage)
        assert vifs["eth1"]["id"] == port["id"]
        assert ports["eth1"]["binding:profile"]["pci_slot"] == SLOTS[0]
        assert ports["eth1"]["name"] == "theirs"
        assert ports["eth2"]["network_id"] == card["id"]
        await end(stage, "web", pod)
    assert as_it_is(stage, port) == before
    assert set(stage.cloud.ports) == {port["id"]}


async def test_port_of_a_vf_needs_no_other_network_on_its_physical_network(stage, card):
    port = stage.cloud.add_port(card["id"], **{"binding:vnic_type": "direct"})
    annotations = {SPECIFIC: json.dumps([port["id"]])}
    configured = options(card, physnet_subnet_mappings="")
    async with stage.controller(patience=PATIENCE, **configured):
        await add_pod(stage, requested={RESOURCE: "1"}, annotations=annotations)
        await name_devices(stage)
        await stage.until_plugged_in("web")
        vifs, _ = await interfaces(stage)
        assert vifs["eth1"]["id"] == port["id"]


@pytest.fixture
async def fast(stage, card):
    """A NetworkAttachmentDefinition of the network on the physical network."""
    await stage.cluster.install_crds(CRDS)
    config = {"subnetId": card["subnets"][0], "driverType": "sriov"}
    return await stage.client.create(
        make_network_attachment("fast", stage.cluster.namespace, kuryr=config)
    )


async def test_selected_network_is_that_of_a_vf_and_the_status_names_the_device(stage, card, fast):
    selected = [{"name": "fast", "interface": "net1", "ips": ["10.80.0.77"]}]
    configured = options(card, physnet_subnet_mappings="")
    configured["kubernetes"] = {"multi_vif_drivers": "sriov,npwg_multiple_interfaces"}
    async with stage.controller(patience=PATIENCE, **configured):
        await add_pod(
            stage, requested={RESOURCE: "1"}, annotations={SELECTED: json.dumps(selected)}
        )
        assert await requested_devices(stage) == {"net1": {"physnet": "physnet2"}}
        await name_devices(stage)
        await stage.until_plugged_in("web")
        _, ports = await interfaces(stage)
        assert ports["net1"]["binding:profile"]["pci_slot"] == SLOTS[0]
        assert ports["net1"]["binding:vnic_type"] == "direct"
        assert [ip["ip_address"] for ip in ports["net1"]["fixed_ips"]] == ["10.80.0.77"]

        async def status():
            path = f"/api/v1/namespaces/{stage.cluster.namespace}/pods/web"
            found = (await stage.client.find(path))["metadata"]["annotations"]
            return found.get("k8s.v1.cni.cncf.io/network-status")

        _, shown = json.loads(await stage.until(status))
        assert shown["device-info"] == {
            "type": "pci",
            "version": "1.1.0",
            "pci": {"pci-address": SLOTS[0]},
        }


@pytest.mark.parametrize(
    ("drivers", "requested", "words"),
    [
        ("sriov,npwg_multiple_interfaces", {}, "the Pod requests no VFs"),
        ("npwg_multiple_interfaces", {RESOURCE: "1"}, "sriov needs sriov in [kubernetes]"),
        ("sriov,npwg_multiple_interfaces", {RESOURCE: "2"}, "no subnet is known"),
    ],
    ids=["no VF", "no driver", "another VF without a network"],
)
async def test_selected_network_of_vfs_that_cannot_be_had_is_an_event(
    stage, card, fast, drivers, requested, words
):
    configured = options(card, physnet_subnet_mappings="")
    configured["kubernetes"] = {"multi_vif_drivers": drivers}
    async with stage.controller(patience=PATIENCE, **configured):
        pod = await add_pod(stage, requested=requested, annotations={SELECTED: "fast"})
        await stage.until_told(words)
        assert not stage.ports_of(pod)


async def test_port_for_a_vf_that_the_pod_does_not_request_is_an_event(stage, card):
    ports = [
        stage.cloud.add_port(card["id"], **{"binding:vnic_type": "direct"})["id"] for _ in range(2)
    ]
    annotations = {SPECIFIC: json.dumps(ports)}
    async with stage.controller(patience=PATIENCE, **options(card)):
        pod = await add_pod(stage, requested={RESOURCE: "1"}, annotations=annotations)
        await stage.until_told(ports[1], "requests no further VF")
        assert not stage.ports_of(pod)


def as_it_is(stage, port):
    live = stage.cloud.ports[port["id"]]
    changing = ("revision_number", "updated_at", "status")
    return {name: value for name, value in live.items() if name not in changing}


async def test_vfs_of_resource_claims_are_interfaces(stage, card):
    """Dynamic resource allocation: the claim's DeviceClass tells the physical network."""
    namespace = stage.cluster.namespace
    claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    request = {"name": "vf", "exactly": {"deviceClassName": "fast", "count": 2}}
    claim = await stage.client.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "vfs", "namespace": namespace},
            "spec": {"devices": {"requests": [request]}},
        }
    )
    results = [
        {"request": "vf", "driver": "d.example", "pool": NODE, "device": f"0000-03-10-{number}"}
        for number in range(2)
    ]
    await stage.client.patch(
        f"{claims}/vfs/status", {"status": {"allocation": {"devices": {"results": results}}}}
    )
    assert path_of(claim) == f"{claims}/vfs"
    configured = options(card, resource_physnets="fast:physnet2")
    async with stage.controller(patience=PATIENCE, **configured):
        named = {"name": "vfs", "resourceClaimName": "vfs"}
        user = container() | {"resources": {"claims": [{"name": "vfs"}]}}
        await stage.cluster.add_pod("web", node=NODE, resourceClaims=[named], containers=[user])
        assert list(await requested_devices(stage)) == ["eth1", "eth2"]
        await name_devices(stage)
        await stage.until_plugged_in("web")
