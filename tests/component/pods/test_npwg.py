"""Pods that select NetworkAttachmentDefinitions."""

import json

import pytest

from lab.paths import REPOSITORY
from tests.component.pools.pods import end
from tests.kit.confs import NODE, VM, add_vm
from tests.kit.fakes.faults import Answer, answer, lose_reply
from tests.kit.kube.objects import make_network_attachment

NETWORKS = "k8s.v1.cni.cncf.io/networks"
STATUS = "k8s.v1.cni.cncf.io/network-status"
OPTIONS = {"multi_vif_drivers": "npwg_multiple_interfaces"}
PATIENCE = {"first_refused": 0.2, "refused": 0.2}
CRDS = REPOSITORY / "lab" / "kubernetes" / "crds"


@pytest.fixture
async def storage(stage):
    """A second network, and the NetworkAttachmentDefinition `storage` of it."""
    await stage.cluster.install_crds(CRDS)
    network = stage.cloud.add_network("storage", "10.70.0.0/24", "fd70::/64")
    await define(stage, "storage", subnetId=",".join(network["subnets"]))
    return network


async def define(stage, name, **config):
    """Make a NetworkAttachmentDefinition."""
    return await stage.client.create(
        make_network_attachment(name, stage.cluster.namespace, kuryr=config)
    )


async def run(stage, selected):
    """Have a Pod run that selects these networks; it, and its interfaces' ports."""
    text = selected if isinstance(selected, str) else json.dumps(selected)
    pod = await stage.cluster.add_pod("web", node=NODE, annotations={NETWORKS: text})
    await stage.until_plugged_in("web")
    port_ids = await stage.port_ids("web")
    return pod, {ifname: stage.cloud.ports[each] for ifname, each in port_ids.items()}


async def status_of(stage):
    async def written():
        path = f"/api/v1/namespaces/{stage.cluster.namespace}/pods/web"
        return (await stage.client.find(path))["metadata"].get("annotations", {}).get(STATUS)

    return json.loads(await stage.until(written))


async def test_selected_network_is_an_interface_and_the_status_says_so(stage, storage):
    async with stage.controller(kubernetes=OPTIONS):
        pod, ports = await run(stage, "storage")
        assert list(ports) == ["eth0", "eth1"]
        port = ports["eth1"]
        assert port["network_id"] == storage["id"]
        first, second = await status_of(stage)
        assert (first["name"], first["interface"], first["default"]) == ("kuryr", "eth0", True)
        assert second == {
            "name": f"{stage.cluster.namespace}/storage",
            "interface": "eth1",
            "ips": [ip["ip_address"] for ip in port["fixed_ips"]],
            "mac": port["mac_address"],
            "mtu": second["mtu"],
            "dns": {},
        }
        await end(stage, "web", pod)
        assert not stage.cloud.ports


async def test_status_is_written_by_the_next_controller_if_the_first_did_not_come_to_it(
    stage, storage
):
    refused = stage.proxy.faults.add(
        method="PATCH", path="/pods/web/status", times=None, action=answer(500)
    )
    async with stage.controller(kubernetes=OPTIONS):
        await run(stage, "storage")
    refused.remove()
    async with stage.controller(kubernetes=OPTIONS):
        assert [each["interface"] for each in await status_of(stage)] == ["eth0", "eth1"]


async def test_addresses_mac_name_and_default_route_are_as_selected(stage, storage):
    selected = {
        "name": "storage",
        "interface": "net7",
        "ips": ["10.70.0.77/24", "fd70::77"],
        "mac": "02:23:45:67:89:ab",
        "default-route": ["10.70.0.254"],
    }
    async with stage.controller(kubernetes=OPTIONS):
        _, ports = await run(stage, [selected])
        assert list(ports) == ["eth0", "net7"]
        port = ports["net7"]
        assert [ip["ip_address"] for ip in port["fixed_ips"]] == ["10.70.0.77", "fd70::77"]
        assert port["mac_address"] == "02:23:45:67:89:ab"
        first, second = await status_of(stage)
        gateways = [
            stage.cloud.subnets[each]["gateway_ip"] for each in stage.cloud.pods["subnets"]
        ]
        assert first["gateway"] == [gateway for gateway in gateways if ":" in gateway]
        assert (second["interface"], second["gateway"]) == ("net7", ["10.70.0.254"])


async def test_network_may_have_groups_of_its_own_or_no_port_security(stage, storage):
    group = stage.cloud.add_security_group("storage")["id"]
    subnet = storage["subnets"][0]
    await define(stage, "own", subnetId=subnet, securityGroupIds=[group])
    await define(stage, "open", subnetId=subnet, portSecurity=False)
    policy = {"port_security": f"{stage.cluster.namespace}:{storage['id']}"}
    async with stage.controller(kubernetes=OPTIONS, policy=policy):
        _, ports = await run(stage, "own,open")
        assert ports["eth1"]["security_groups"] == [group]
        assert ports["eth2"]["security_groups"] == []
        assert not ports["eth2"]["port_security_enabled"]


@pytest.mark.parametrize(
    ("selected", "words"),
    [
        ("missing", "no such NetworkAttachmentDefinition"),
        ("bare", "has no subnetId"),
        ("open", "is not granted to namespace"),
        ('[{"name": "shared", "mac": "02:23:45:67:89:ab"}]', "ips and mac can be had in networks"),
        ('[{"name": "storage", "interface": "lo"}]', "cannot be the name of one"),
        ("dpdk", "driverType that is none of"),
        ("macvlan", "nested-macvlan needs [pod_vif_nested] worker_nodes_subnets"),
        ('[{"name": "storage", "ips": ["192.0.2.1"]}]', "address 192.0.2.1 is in none"),
        ('[{"name": "storage", "ips": ["10.70.0.1"]}]', "10.70.0.1 is the gateway of its subnet"),
        ('[{"name": "services", "ips": ["10.66.0.9"]}]', "are for ClusterIPs"),
        ("closed", "is for nodes or Services"),
        ('[{"name": "storage", "default-route": ["192.0.2.1"]}]', "192.0.2.1 is in none"),
        ('[{"name": "blind", "default-route": []}]', "none of its subnets has a gateway"),
        ('[{"name": "storage", "bandwidth": {"ingressRate": 1}}]', "asks for bandwidth"),
        ('[{"name": "storage", "interface": "eth0"}]', "default interface"),
        ("storage@net1,storage@net1", "names an interface twice"),
    ],
)
async def test_what_cannot_be_is_an_event_and_the_pod_gets_no_interface(
    stage, storage, selected, words
):
    await define(stage, "bare")
    await define(stage, "open", subnetId=storage["subnets"][0], portSecurity=False)
    tenant = stage.cloud.add_project("tenant")
    theirs = stage.cloud.add_network("theirs", "10.77.0.0/24", project_id=tenant, shared=True)
    await define(stage, "shared", subnetId=theirs["subnets"][0])
    blind = stage.cloud.add_network("blind", "10.78.0.0/24")
    stage.cloud.subnets[blind["subnets"][0]]["gateway_ip"] = None
    await define(stage, "blind", subnetId=blind["subnets"][0])
    await define(stage, "dpdk", subnetId=storage["subnets"][0], driverType="nested-dpdk")
    await define(stage, "macvlan", subnetId=storage["subnets"][0], driverType="nested-macvlan")
    services = stage.cloud.add_network("services", "10.66.0.0/24")
    await define(stage, "services", subnetId=services["subnets"][0])
    closed = stage.cloud.add_network("closed", "fd66::/64")
    await define(stage, "closed", subnetId=closed["subnets"][0])
    options = {
        "kubernetes": OPTIONS,
        "neutron_defaults": {"service_subnet": f"{services['subnets'][0]},{closed['subnets'][0]}"},
        "policy": {"networks": f"*:*,*:{services['id']}"},
    }
    async with stage.controller(**options, patience=PATIENCE):
        await stage.cluster.add_pod("web", node=NODE, annotations={NETWORKS: selected})
        await stage.until_told(words)
        assert "vifs" not in ((await stage.kuryrport("web")).get("status") or {})
        await stage.cloud.wait_for(lambda: not stage.cloud.ports)


async def add_machine(stage):
    """A node `vm`, and the NetworkAttachmentDefinition `nodes` of its macvlans; the options."""
    await stage.cluster.install_crds(CRDS)
    options = add_vm(stage.cloud)
    await define(
        stage, "nodes", subnetId=stage.cloud.nodes["subnets"][0], driverType="nested-macvlan"
    )
    await stage.cluster.add_node("vm", addresses=(VM,))
    return options | {"kubernetes": options["kubernetes"] | OPTIONS}


async def test_network_of_the_nodes_port_may_be_a_macvlan(stage):
    """The default interface is a VLAN of the node's trunk, the other one a macvlan."""
    options = await add_machine(stage)
    parent = stage.cloud.ports[stage.cloud.trunk["port_id"]]
    async with stage.controller(**options, policy={"port_security": "*:*"}):
        annotations = {NETWORKS: "nodes"}
        pod = await stage.cluster.add_pod("web", node="vm", annotations=annotations)
        await stage.until_plugged_in("web")
        vifs = (await stage.kuryrport("web"))["status"]["vifs"]
        kinds = {name: entry["vif"]["versioned_object.name"] for name, entry in vifs.items()}
        assert kinds == {"eth0": "VIFVlanNested", "eth1": "VIFMacvlanNested"}
        port = stage.cloud.ports[(await stage.port_ids("web"))["eth1"]]
        address = port["fixed_ips"][0]["ip_address"]
        assert parent["allowed_address_pairs"] == [
            {"ip_address": f"{address}/32", "mac_address": port["mac_address"]}
        ]
        await stage.cluster.delete_pod(pod)
        await stage.until_deleting("web")
        await stage.let_go("web")
        await stage.until_gone("web")
    assert set(stage.cloud.ports) == {parent["id"]}
    assert parent["allowed_address_pairs"] == []


async def test_macvlan_that_is_not_granted_is_an_event(stage):
    """The groups of the node apply to it, not those of the Pod."""
    options = await add_machine(stage)
    async with stage.controller(**options, patience=PATIENCE):
        await stage.cluster.add_pod("web", node="vm", annotations={NETWORKS: "nodes"})
        await stage.until_told("[policy] port_security")
        assert "vifs" not in ((await stage.kuryrport("web")).get("status") or {})


async def test_pod_that_its_node_has_no_address_pairs_left_for_waits_for_them(stage):
    options = await add_machine(stage)
    parent = stage.cloud.ports[stage.cloud.trunk["port_id"]]

    async def allow_one(request, proceed):
        asked = (await request.json())["port"].get("allowed_address_pairs", ())
        if len(asked) > 1:
            raise Answer(400, "AllowedAddressPairExhausted", "exceeds the maximum 1")
        return await proceed()

    path = f"/ports/{parent['id']}"
    stage.cloud.faults.add(method="PUT", path=path, times=None, action=allow_one)
    policy = {"port_security": "*:*"}
    async with stage.controller(**options, policy=policy):
        first = await stage.cluster.add_pod("a", node="vm", annotations={NETWORKS: "nodes"})
        await stage.until_plugged_in("a")
        await stage.cluster.add_pod("b", node="vm", annotations={NETWORKS: "nodes"})
        await stage.until_told("exceeds the maximum 1")
        await stage.cluster.delete_pod(first)
        await stage.until_deleting("a")
        await stage.let_go("a")
        await stage.until_plugged_in("b")
    port = stage.cloud.ports[(await stage.port_ids("b"))["eth1"]]
    assert [pair["mac_address"] for pair in parent["allowed_address_pairs"]] == [
        port["mac_address"]
    ]


async def test_address_that_another_port_has_is_an_event_until_it_is_free(stage, storage):
    fixed = [{"subnet_id": storage["subnets"][0], "ip_address": "10.70.0.77"}]
    other = stage.cloud.add_port(storage["id"], fixed_ips=fixed)
    selected = json.dumps([{"name": "storage", "ips": ["10.70.0.77"]}])
    async with stage.controller(kubernetes=OPTIONS, patience=PATIENCE):
        await stage.cluster.add_pod("web", node=NODE, annotations={NETWORKS: selected})
        assert "10.70.0.77" in await stage.until_event("KuryrAddressInUse")
        stage.cloud.remove_port(other["id"])
        await stage.until_plugged_in("web")


async def test_definition_that_changes_or_goes_does_not_change_a_pod_that_runs(stage, storage):
    nads = f"/apis/k8s.cni.cncf.io/v1/namespaces/{stage.cluster.namespace}"
    path = f"{nads}/network-attachment-definitions/storage"
    async with stage.controller(kubernetes=OPTIONS):
        pod, ports = await run(stage, "storage")
        await stage.client.delete(path)
    async with stage.controller(kubernetes=OPTIONS):
        await stage.cluster.add_pod("other", node=NODE)
        await stage.until_plugged_in("other")
        assert ports["eth1"]["id"] in stage.cloud.ports
        await end(stage, "web", pod)
        assert ports["eth1"]["id"] not in stage.cloud.ports


async def test_pod_keeps_its_ports_where_nobody_said_that_they_are_recorded(stage, storage):
    """The cache lags, the answer was lost, and what the Pod asks for is refused by now."""
    async with stage.controller(kubernetes=OPTIONS, patience=PATIENCE):
        stage.proxy.events.hold("kuryrports")
        stage.proxy.faults.add(method="PATCH", path="/kuryrports/web/status", action=lose_reply())
        await stage.cluster.add_pod("web", node=NODE, annotations={NETWORKS: "storage"})
        await stage.until_plugged_in("web")
        nads = f"/apis/k8s.cni.cncf.io/v1/namespaces/{stage.cluster.namespace}"
        await stage.client.delete(f"{nads}/network-attachment-definitions/storage")
        await stage.until_told("no such Network")
        stage.proxy.events.release()
        await stage.cluster.add_pod("other", node=NODE)
        await stage.until_plugged_in("other")
        assert set((await stage.port_ids("web")).values()) <= set(stage.cloud.ports)


async def test_pod_that_selects_what_is_defined_later_runs_then(stage, storage):
    async with stage.controller(kubernetes=OPTIONS, patience=PATIENCE):
        await stage.cluster.add_pod("web", node=NODE, annotations={NETWORKS: "later"})
        await stage.until_told("no such Network")
        await define(stage, "later", subnetId=storage["subnets"][0])
        await stage.until_plugged_in("web")


async def test_cluster_without_the_kind_serves_pods_that_select_nothing(stage):
    stage.proxy.faults.add(
        method="GET", path="/network-attachment-definitions", times=None, action=answer(404)
    )
    async with stage.controller(kubernetes=OPTIONS, patience=PATIENCE):
        await stage.cluster.add_pod("plain", node=NODE)
        await stage.until_plugged_in("plain")
        await stage.cluster.add_pod("web", node=NODE, annotations={NETWORKS: "storage"})
        await stage.until_told("no such Network")
