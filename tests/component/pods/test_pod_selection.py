"""Pods beside those of another network plugin: only who names a network of Neutron is served."""

import json

import pytest
import yaml

from kuryr_k8s import errors
from kuryr_k8s.app import ControllerApp
from kuryr_k8s.handlers.pods import kuryrport
from lab.paths import REPOSITORY
from tests.component.pools.pods import end
from tests.kit.confs import NODE
from tests.kit.kube.objects import make_network_attachment, make_pod, path_of

NETWORK, SUBNET = "openstack.org/network_id", "openstack.org/subnet_id"
GROUPS, ADDRESS = "openstack.org/security_group_ids", "openstack.org/ip_address"
PORT = "openstack.org/spec-default-port"
DEFAULT = "v1.multus-cni.io/default-network"
SELECTED = "k8s.v1.cni.cncf.io/networks"
POLICY = REPOSITORY / "etc" / "admission" / "default-network.yaml"
CRDS = REPOSITORY / "lab" / "kubernetes" / "crds"
PATIENCE = {"first_refused": 0.2, "refused": 0.2}
ELSEWHERE = "10.244.0.7"  # an address of the other plugin's
DRIVERS = "named_network,npwg_multiple_interfaces"


def options(multus="none", selection="annotated", drivers=DRIVERS):
    kubernetes = {"multi_vif_drivers": drivers, "pod_selection": selection, "multus": multus}
    return {"kubernetes": kubernetes}


DELEGATE = options("delegate", "all")


@pytest.fixture
def storage(stage):
    """A second network of the project."""
    return stage.cloud.add_network("storage", "10.70.0.0/24", "fd70::/64")


@pytest.fixture
async def definitions(stage, storage):
    """Definitions for default networks, in the test's namespace."""
    await stage.cluster.install_crds(CRDS)
    ours = {"cniVersion": "1.0.0", "type": "kuryr-cni"}
    for name, config, kuryr in (
        ("plain", ours, None),
        ("storage", ours, {"subnetId": ",".join(storage["subnets"])}),
        ("macvlan", ours, {"subnetId": storage["subnets"][0], "driverType": "nested-macvlan"}),
        ("bridged", {"cniVersion": "1.0.0", "type": "bridge"}, None),
    ):
        await stage.client.create(
            make_network_attachment(name, stage.cluster.namespace, kuryr=kuryr, config=config)
        )


@pytest.fixture
async def namespace(stage):
    """A function that changes the annotations of the test's Namespace."""

    async def annotate(**annotations):
        path = f"/api/v1/namespaces/{stage.cluster.namespace}"
        patch = {f"openstack.org/{name}": value for name, value in annotations.items()}
        await stage.client.patch(path, {"metadata": {"annotations": patch}})

    yield annotate
    await annotate(network_id=None)


async def add(stage, name, **annotations):
    return await stage.cluster.add_pod(name, node=NODE, annotations=annotations)


async def runs_with(stage, pod, address):
    """The kubelet says that a Pod has an address of the other plugin's."""
    await stage.cluster.set_phase(pod, "Running", podIP=address, podIPs=[{"ip": address}])


async def until_without(stage, name):
    """Wait until the Pod has a KuryrPort without interfaces."""

    async def decided():
        return ((await stage.kuryrport(name)) or {}).get("status")

    assert not (await stage.until(decided))["vifs"]


async def names_of_kuryrports(stage):
    return {item["metadata"]["name"] for item in await stage.kuryrports()}


async def network_of(stage, name):
    await stage.until_plugged_in(name)
    port = stage.cloud.ports[(await stage.port_ids(name))["eth0"]]
    return port["network_id"]


async def test_only_pods_that_name_a_network_have_a_port(stage, storage):
    theirs = stage.cloud.add_port(stage.cloud.pods["id"], name="theirs")
    async with stage.controller(**options()):
        for name, annotations in {
            "unnamed": {},
            "alias": {"ovn.kubernetes.io/ip_address": "10.16.0.7"},  # kube-ovn writes it itself
            "groups": {GROUPS: stage.cloud.group["id"]},
            "further": {SELECTED: "storage"},  # Multus may add it
            "default": {DEFAULT: "storage"},
            "network": {NETWORK: storage["id"]},
            "subnet": {SUBNET: storage["subnets"][0]},
            "port": {PORT: theirs["id"]},
        }.items():
            await add(stage, name, **annotations)
        assert await network_of(stage, "network") == storage["id"]
        assert await network_of(stage, "subnet") == storage["id"]
        assert await network_of(stage, "port") == stage.cloud.pods["id"]
        assert await names_of_kuryrports(stage) == {"network", "subnet", "port"}
        assert not await stage.events()


async def test_namespace_names_the_network_of_pods_that_wait(stage, storage, namespace):
    async with stage.controller(**options()):
        pod = await add(stage, "waits")
        await add(stage, "other", **{NETWORK: stage.cloud.pods["id"]})
        await stage.until_plugged_in("other")
        assert await names_of_kuryrports(stage) == {"other"}
        await namespace(network_id=storage["id"])
        assert await network_of(stage, "waits") == storage["id"]
        await namespace(network_id=None)
        await end(stage, "waits", pod)


@pytest.mark.parametrize("who", ["pod", "namespace"])
async def test_pod_that_runs_in_another_network_gets_no_port(stage, storage, namespace, who):
    async with stage.controller(**options()):
        pod = await add(stage, "runs", **({NETWORK: storage["id"]} if who == "pod" else {}))
        if who == "pod":  # whose port is not used then
            await stage.until_plugged_in("runs")
            await runs_with(stage, pod, ELSEWHERE)
            assert await stage.until_told(ELSEWHERE, "and not kuryr-cni") == "KuryrNotCalled"
            return
        await runs_with(stage, pod, ELSEWHERE)
        await namespace(network_id=storage["id"])
        await until_without(stage, "runs")
        assert not stage.ports_of(pod)


async def test_pod_that_has_its_address_here_keeps_it_when_its_record_is_lost(stage, storage):
    async with stage.controller(**options()):
        pod = await add(stage, "web", **{NETWORK: storage["id"]})
        vif = await stage.until_plugged_in("web")
        (port,) = stage.ports_of(pod)
        await runs_with(stage, pod, port["fixed_ips"][0]["ip_address"])
        recorded = await stage.kuryrport("web")
        await stage.client.delete(stage.path("web"))
        unheld = {"metadata": {"finalizers": None}}
        await stage.client.patch(stage.path("web"), unheld)
        await stage.until_replaced(recorded)
        assert (await stage.until_plugged_in("web"))["id"] == vif["id"]
        assert not await stage.events()


@pytest.mark.usefixtures("definitions")
async def test_definition_that_is_mended_counts_until_the_pod_has_an_address(
    stage, storage, monkeypatch
):
    monkeypatch.setattr(kuryrport, "ANOTHERS", 0.2)
    name = stage.cluster.namespace
    path = f"/apis/k8s.cni.cncf.io/v1/namespaces/{name}/network-attachment-definitions/storage"
    right = (await stage.client.get(path))["spec"]["config"]
    await stage.client.patch(path, {"spec": {"config": "{"}})
    async with stage.controller(**DELEGATE):
        other = await add(stage, "other", **{DEFAULT: f"{name}/storage"})
        await add(stage, "web", **{DEFAULT: f"{name}/storage"})
        await until_without(stage, "other")
        await until_without(stage, "web")
        await runs_with(stage, other, ELSEWHERE)
        await stage.client.patch(path, {"spec": {"config": right}})
        assert await network_of(stage, "web") == storage["id"]
        assert not (await stage.kuryrport("other"))["status"]["vifs"]


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize("listed", [False, True], ids=["name", "JSON"])
async def test_multus_calls_for_the_default_interface_of_pods_that_say_so(stage, storage, listed):
    here = f"{stage.cluster.namespace}/storage"
    text = here
    if listed:
        element = {"name": "storage", "namespace": stage.cluster.namespace}
        asked = {"ips": ["10.70.0.9/24"], "mac": "fa:16:3e:00:00:07"}
        text = json.dumps([element | asked])
    async with stage.controller(**DELEGATE):
        await add(stage, "unnamed")
        pod = await add(stage, "web", **{DEFAULT: text})
        assert await network_of(stage, "web") == storage["id"]
        (port,) = stage.ports_of(pod)
        if listed:
            assert "10.70.0.9" in [ip["ip_address"] for ip in port["fixed_ips"]]
            assert port["mac_address"] == "fa:16:3e:00:00:07"
        assert await names_of_kuryrports(stage) == {"web"}
        vifs = (await stage.kuryrport("web"))["status"]["vifs"]
        assert not vifs["eth0"].get("delegated")
        await end(stage, "web", pod)
        assert not stage.ports_of(pod)


@pytest.mark.usefixtures("definitions")
async def test_definition_without_a_network_leaves_it_to_the_annotations(stage, storage):
    plain = f"{stage.cluster.namespace}/plain"
    async with stage.controller(**DELEGATE):
        await add(stage, "ours", **{DEFAULT: plain})
        await add(stage, "named", **{DEFAULT: plain, NETWORK: storage["id"]})
        assert await network_of(stage, "ours") == stage.cloud.pods["id"]
        assert await network_of(stage, "named") == storage["id"]


@pytest.mark.usefixtures("definitions")
async def test_pod_says_more_about_its_interface_than_the_definition(stage, storage):
    group = stage.cloud.add_security_group("own")["id"]
    asked = {DEFAULT: f"{stage.cluster.namespace}/storage", GROUPS: group, ADDRESS: "10.70.0.8"}
    async with stage.controller(**DELEGATE):
        pod = await add(stage, "web", **asked)
        assert await network_of(stage, "web") == storage["id"]
        (port,) = stage.ports_of(pod)
        assert port["security_groups"] == [group]
        assert "10.70.0.8" in [ip["ip_address"] for ip in port["fixed_ips"]]


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize("multus", ["default", "delegate"])
async def test_default_network_of_another_plugin_brings_no_port(stage, multus):
    async with stage.controller(**options(multus, "all")):
        pod = await add(stage, "web", **{DEFAULT: f"{stage.cluster.namespace}/bridged"})
        await until_without(stage, "web")
        assert not stage.ports_of(pod)
        assert not await stage.events()


REFUSED = {  # annotations, with the namespace to be filled in, and the words of the Event
    "two networks": ({DEFAULT: "{0}/plain,{0}/storage"}, "does not have one element"),
    "unreadable": ({DEFAULT: '[{{"name": 1}}]'}, "has a name that is no string"),
    "missing": ({DEFAULT: "missing"}, "there is no such NetworkAttachmentDefinition"),
    "another kind": ({DEFAULT: "{0}/macvlan"}, "driverType is not one of default interfaces"),
    "what ports do not have": (
        {DEFAULT: '[{{"name": "plain", "namespace": "{0}", "bandwidth": {{"ingressRate": 1}}}}]'},
        "asks for bandwidth",
    ),
    "said twice": (
        {
            DEFAULT: '[{{"name": "storage", "namespace": "{0}", "ips": ["10.70.0.9"]}}]',
            ADDRESS: "10.70.0.8",
        },
        "the Pod's default-network says it, too",
    ),
    "another plugin's": ({DEFAULT: "{0}/bridged", ADDRESS: "10.70.0.8"}, "is another plugin's"),
    "default-route": (
        {DEFAULT: '[{{"name": "plain", "namespace": "{0}", "default-route": []}}]'},
        "it has a default-route",
    ),
    "another name": ({DEFAULT: "{0}/plain@net7"}, "it has an interface"),
    "port that nobody plugs": (
        {PORT: "11111111-2222-4333-8444-555555555555"},
        "is another plugin's, unless",
    ),
    "nobody calls": ({NETWORK: "storage"}, "is another plugin's, unless"),
}


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize("case", list(REFUSED))
async def test_default_network_that_cannot_be_is_an_event(stage, case):
    annotations, words = REFUSED[case]
    filled = {name: text.format(stage.cluster.namespace) for name, text in annotations.items()}
    async with stage.controller(**DELEGATE, patience=PATIENCE):
        pod = await add(stage, "web", **filled)
        await stage.until_told(words)
        assert not stage.ports_of(pod)


@pytest.mark.parametrize(
    ("multus", "drivers", "words"),
    [("default", DRIVERS, "multus must be"), ("none", "noop", "must list named_network")],
)
async def test_options_that_contradict_each_other_end_the_start(
    stage, load_conf, multus, drivers, words
):
    kubeconfig = {"kubeconfig": str(stage.proxy.kubeconfig_for("controller"))}
    groups = options(multus, drivers=drivers)
    conf = load_conf(kubernetes=groups["kubernetes"] | kubeconfig)
    refused = pytest.RaisesExc(errors.ConfigError, match=words)
    with pytest.RaisesGroup(refused, flatten_subgroups=True, allow_unwrapped=True):
        await ControllerApp(conf).run()


async def test_admission_policy_has_multus_call_for_pods_that_name_a_network(stage, namespace):
    async def selected(**pod):
        asked = make_pod("web", stage.cluster.namespace, **pod)
        pods = path_of(asked).rpartition("/")[0]
        made = await stage.client.request("POST", pods, asked, dryRun="All")
        return (made["metadata"].get("annotations") or {}).get(DEFAULT)

    manifests = list(yaml.safe_load_all(POLICY.read_text()))
    try:
        for manifest in manifests:
            await stage.client.create(manifest)

        async def in_force():  # the server learns of it in its own time
            return await selected(annotations={NETWORK: "x"}) == "kuryr"

        await stage.until(in_force)
        assert await selected(annotations={SUBNET: "x", DEFAULT: "theirs"}) == "theirs"
        assert await selected(annotations={PORT: "x"}) == "kuryr"
        assert await selected(annotations={NETWORK: "x"}, hostNetwork=True) is None
        assert await selected(annotations={GROUPS: "x"}) is None
        assert await selected() is None
        await namespace(network_id="x")

        async def in_force_by_the_namespace():
            return await selected() == "kuryr"

        await stage.until(in_force_by_the_namespace)
    finally:
        for manifest in manifests:
            await stage.client.delete(path_of(manifest))
