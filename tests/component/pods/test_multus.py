"""Pods whose interfaces Multus asks for: the controller's half."""

import json

import pytest

from lab.paths import REPOSITORY
from tests.component.pools.pods import end
from tests.kit.confs import NODE
from tests.kit.kube.objects import make_network_attachment

NETWORKS = "k8s.v1.cni.cncf.io/networks"
STATUS = "k8s.v1.cni.cncf.io/network-status"
PATIENCE = {"first_refused": 0.2, "refused": 0.2}
CRDS = REPOSITORY / "lab" / "kubernetes" / "crds"


def options(multus):
    return {"kubernetes": {"multi_vif_drivers": "npwg_multiple_interfaces", "multus": multus}}


@pytest.fixture
async def storage(stage):
    """A second network; `storage` delegates to kuryr-cni, `bridged` to another plugin."""
    await stage.cluster.install_crds(CRDS)
    network = stage.cloud.add_network("storage", "10.70.0.0/24", "fd70::/64")
    name = f"{stage.cluster.namespace}/storage"
    ours = {"cniVersion": "1.0.0", "type": "kuryr-cni", "netAttachDefName": name}
    await define(stage, "storage", ours, {"subnetId": ",".join(network["subnets"])})
    await define(stage, "bridged", {"cniVersion": "1.0.0", "type": "bridge"})
    return network


async def define(stage, name, config, kuryr=None):
    await stage.client.create(
        make_network_attachment(name, stage.cluster.namespace, kuryr=kuryr, config=config)
    )


async def add_pod(stage, selected):
    return await stage.cluster.add_pod(
        "web", node=NODE, annotations={NETWORKS: json.dumps(selected)}
    )


async def entries(stage):
    return (await stage.kuryrport("web"))["status"]["vifs"]


async def test_interfaces_have_the_names_that_multus_gives_them_and_multus_writes_the_status(
    stage, storage
):
    selected = [
        {"name": "bridged", "bandwidth": {"ingressRate": 1000}, "cni-args": {"a": 1}},
        {"name": "storage"},
        {"name": "storage", "interface": "data"},
    ]
    async with stage.controller(**options("default")):
        pod = await add_pod(stage, selected)
        await stage.until_plugged_in("web")
        found = await entries(stage)
        name = f"{stage.cluster.namespace}/storage"
        assert {ifname: entry.get("delegated") for ifname, entry in found.items()} == {
            "eth0": None,
            "net2": True,
            "data": True,
        }
        assert found["net2"]["networkName"] == name
        path = f"/api/v1/namespaces/{stage.cluster.namespace}/pods/web"
        assert STATUS not in (await stage.client.get(path))["metadata"]["annotations"]
        await end(stage, "web", pod)
    assert not stage.cloud.ports


async def test_pod_whose_default_network_is_another_plugins_has_no_other_interface(stage, storage):
    async with stage.controller(**options("delegate")):
        pod = await add_pod(stage, [{"name": "storage"}])
        await stage.until_plugged_in("web")
        assert list(await entries(stage)) == ["net1"]
        await stage.cluster.add_pod("plain", node=NODE)
        bridged = {NETWORKS: "bridged"}
        await stage.cluster.add_pod("others", node=NODE, annotations=bridged)

        async def decided():
            return ((await stage.kuryrport("others")) or {}).get("status")

        assert not (await stage.until(decided))["vifs"]
        await end(stage, "web", pod)
        assert not stage.cloud.ports
        assert await stage.kuryrport("plain") is None


async def test_default_route_beside_the_default_network_of_another_plugin(stage, storage):
    async with stage.controller(**options("delegate")):
        await add_pod(stage, [{"name": "storage", "default-route": []}])
        await stage.until_plugged_in("web")


async def test_names_of_other_plugins_interfaces_are_taken(stage, storage):
    further = "openstack.org/kuryr-additional-subnets"
    selected = [{"name": "bridged", "interface": "eth1", "ips": ["10.0.0.1", "10.0.0.2"]}]
    annotations = {
        NETWORKS: json.dumps(selected),
        further: json.dumps(storage["subnets"][:1]),
    }
    drivers = {"multi_vif_drivers": "additional_subnets,npwg_multiple_interfaces"}
    async with stage.controller(kubernetes=drivers | {"multus": "default"}):
        await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_plugged_in("web")
        assert list(await entries(stage)) == ["eth0", "eth2"]


@pytest.mark.parametrize(
    ("selected", "words"),
    [
        ({"name": "missing"}, "there is no such NetworkAttachmentDefinition"),
        ({"name": "nameless"}, 'lacks "netAttachDefName"'),
        ({"name": "storage", "bandwidth": {"ingressRate": 1}}, "asks for bandwidth"),
    ],
    ids=["missing", "not passed on", "not Neutron's"],
)
async def test_what_cannot_be_is_an_event(stage, storage, selected, words):
    await define(stage, "nameless", {"type": "kuryr-cni"}, {})
    async with stage.controller(patience=PATIENCE, **options("default")):
        pod = await add_pod(stage, [selected])
        await stage.until_told(words)
        assert not stage.ports_of(pod)
