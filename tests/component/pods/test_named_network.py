"""Pods that name the network of their default interface, or whose Namespace does."""

import json

import pytest

from tests.component.pools.pods import end
from tests.kit.confs import NODE
from tests.kit.kube.objects import make_pod

NETWORK, SUBNET = "openstack.org/network_id", "openstack.org/subnet_id"
GROUPS, GROUP = "openstack.org/security_group_ids", "openstack.org/security_group_id"
ADDRESS, MAC = "openstack.org/ip_address", "openstack.org/mac_address"
POOL = "openstack.org/ip_pool"
PORT_SECURITY = "openstack.org/port_security"
PAIRS = "openstack.org/allowed_address_pairs"
QOS = "openstack.org/qos_policy_id"
PAIR = '[{{"ip_address": "10.70.0.100"}}]'  # to be formatted
STATUS = "k8s.v1.cni.cncf.io/network-status"
WITH = {"kubernetes": {"multi_vif_drivers": "named_network"}}
SUBNETS = {"nodes": "10.71.0.0/24", "services": "10.72.0.0/24"}
FIXED = "fa:16:3e:00:00:07"


@pytest.fixture
def storage(stage):
    """A second network of the project."""
    return stage.cloud.add_network("storage", "10.70.0.0/24", "fd70::/64")


async def port_of(stage, name, annotations):
    """Run a Pod; its only port."""
    await stage.cluster.add_pod(name, node=NODE, annotations=annotations)
    await stage.until_plugged_in(name)
    ids = await stage.port_ids(name)
    assert list(ids) == ["eth0"]
    return stage.cloud.ports[ids["eth0"]]


def addresses(port):
    return sorted(ip["ip_address"] for ip in port["fixed_ips"])


def subnets(port):
    return sorted(ip["subnet_id"] for ip in port["fixed_ips"])


async def test_pod_has_its_port_in_the_network_that_it_names(stage, storage):
    v4, v6 = storage["subnets"]
    async with stage.controller(**WITH):
        port = await port_of(stage, "network", {NETWORK: storage["id"]})
        assert (port["network_id"], subnets(port)) == (storage["id"], sorted([v4, v6]))
        port = await port_of(stage, "subnet", {SUBNET: v4})
        assert (port["network_id"], subnets(port)) == (storage["id"], [v4])
        port = await port_of(stage, "both", {NETWORK: storage["id"], SUBNET: f"{v6}, {v4}"})
        assert subnets(port) == sorted([v4, v6])
        port = await port_of(stage, "plain", {})
        assert port["network_id"] == stage.cloud.pods["id"]


async def annotations_of(stage, name):
    pod = await stage.client.find(f"/api/v1/namespaces/{stage.cluster.namespace}/pods/{name}")
    return pod["metadata"].get("annotations") or {}


async def test_pod_says_which_port_it_has_if_it_names_its_network(stage, storage):
    async with stage.controller(**WITH):
        port = await port_of(stage, "web", {NETWORK: storage["id"]})
        v4, v6 = (ip["ip_address"] for ip in port["fixed_ips"])
        wanted = {
            "openstack.org/allocated": "true",
            "openstack.org/port_id": port["id"],
            "openstack.org/port_mac": port["mac_address"],
            "openstack.org/port_ip": f"{v4},{v6}",
            "openstack.org/port_cidr": "10.70.0.0/24,fd70::/64",
            "openstack.org/port_gateway": "10.70.0.1,fd70::",
        }

        async def says_so():
            found = await annotations_of(stage, "web")
            (status,) = json.loads(found.get(STATUS, "[{}]"))
            return found.items() >= wanted.items() and status.get("name") == "storage"

        await stage.until(says_so)
        await port_of(stage, "plain", {})
        assert not await annotations_of(stage, "plain")


async def test_names_stand_for_ids_of_what_the_project_has_itself(stage, storage):
    tenant = stage.cloud.add_project("tenant")
    theirs = stage.cloud.add_network("storage", "10.71.0.0/24", project_id=tenant)
    stage.cloud.share(theirs["id"], stage.cloud.project_id)  # nobody asked the project
    group = stage.cloud.add_security_group("web")["id"]
    async with stage.controller(**WITH):
        port = await port_of(stage, "own", {NETWORK: "storage", GROUPS: "web"})
        assert (port["network_id"], port["security_groups"]) == (storage["id"], [group])
        port = await port_of(stage, "shared", {NETWORK: theirs["id"]})
        assert port["network_id"] == theirs["id"]


async def test_address_in_any_subnet_of_the_network_is_given(stage):
    wide = stage.cloud.add_network("wide", "10.77.0.0/24", "10.77.1.0/24")
    async with stage.controller(**WITH):
        port = await port_of(stage, "one", {NETWORK: wide["id"], ADDRESS: "10.77.1.7"})
        assert addresses(port) == ["10.77.1.7"]
        port = await port_of(stage, "two", {NETWORK: wide["id"], ADDRESS: "10.77.0.7"})
        assert addresses(port) == ["10.77.0.7"]


async def test_many_pods_cost_no_more_than_one(stage, storage):
    annotations = {NETWORK: "storage", GROUPS: "web"}
    stage.cloud.add_security_group("web")
    async with stage.controller(**WITH):
        await port_of(stage, "first", annotations)
        before = stage.cloud.calls.count("GET")
        for number in range(5):
            await port_of(stage, f"web-{number}", annotations)
        assert stage.cloud.calls.count("GET") == before


async def test_port_that_the_pod_names_counts_more_than_what_its_namespace_says(stage, storage):
    theirs = stage.cloud.add_port(stage.cloud.pods["id"], name="theirs")
    path = f"/api/v1/namespaces/{stage.cluster.namespace}"
    await stage.client.patch(path, {"metadata": {"annotations": {NETWORK: storage["id"]}}})
    async with stage.controller(**WITH):
        port = await port_of(stage, "web", {"openstack.org/spec-default-port": theirs["id"]})
        assert port["id"] == theirs["id"]
    await stage.client.patch(path, {"metadata": {"annotations": {NETWORK: None}}})


async def test_namespace_names_what_its_pods_do_not_name_themselves(stage, storage):
    other = stage.cloud.add_network("other", "10.71.0.0/24")
    group, own = (stage.cloud.add_security_group(name)["id"] for name in ("theirs", "own"))
    defaults = {SUBNET: storage["subnets"][0], GROUPS: group, ADDRESS: "10.70.0.9"}
    path = f"/api/v1/namespaces/{stage.cluster.namespace}"
    await stage.client.patch(path, {"metadata": {"annotations": defaults}})
    async with stage.controller(**WITH):
        port = await port_of(stage, "plain", {})
        assert subnets(port) == storage["subnets"][:1]
        assert port["security_groups"] == [group]
        assert addresses(port) != ["10.70.0.9"]  # which one Pod alone can have
        port = await port_of(stage, "other", {NETWORK: other["id"], GROUP: own})
        assert (port["network_id"], port["security_groups"]) == (other["id"], [own])
    await stage.client.patch(path, {"metadata": {"annotations": dict.fromkeys(defaults)}})


@pytest.mark.parametrize("prefix", ["openstack.org", "ovn.kubernetes.io"])
async def test_address_and_mac_are_as_the_pod_says(stage, storage, prefix):
    fixed = {f"{prefix}/ip_address": "10.70.0.7,fd70::7", f"{prefix}/mac_address": FIXED}
    async with stage.controller(**WITH):
        port = await port_of(stage, "web", fixed | {NETWORK: storage["id"]})
        assert addresses(port) == ["10.70.0.7", "fd70::7"]
        assert port["mac_address"] == FIXED
        pod = await stage.client.find(f"/api/v1/namespaces/{stage.cluster.namespace}/pods/web")
        await end(stage, "web", pod)
        port = await port_of(stage, "again", {ADDRESS: "10.62.0.77"})
        assert "10.62.0.77" in addresses(port)


async def test_pods_share_the_addresses_of_a_pool_and_one_too_many_waits(stage, storage):
    pool = ["10.70.0.7", "10.70.0.8", "10.70.0.9"]
    asked = {SUBNET: storage["subnets"][0], POOL: ",".join(pool)}
    names = ["one", "two", "three"]
    async with stage.controller(**WITH, patience={"first_refused": 0.2, "refused": 0.2}):
        pods = [await stage.cluster.add_pod(name, node=NODE, annotations=asked) for name in names]
        for name in names:
            await stage.until_plugged_in(name)
        found = [each for port in stage.cloud.ports.values() for each in addresses(port)]
        assert sorted(found) == pool
        await stage.cluster.add_pod("four", node=NODE, annotations=asked)
        assert await stage.until_told("none of 3 addresses is free") == "KuryrAddressInUse"
        await end(stage, "two", pods[1])
        await stage.until_plugged_in("four")


async def test_pod_of_a_stateful_set_has_the_address_of_its_number(stage, storage):
    pool = "10.70.0.7,fd70::7;10.70.0.8,fd70::8"
    asked = {NETWORK: storage["id"], "ovn.kubernetes.io/ip_pool": pool}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "0"}
    async with stage.controller(**WITH):
        for number in (1, 0, 1, 2):
            name = f"db-{number}"
            pod = make_pod(name, stage.cluster.namespace, node=NODE, annotations=asked)
            pod["metadata"]["ownerReferences"] = [owner | {"controller": True}]
            pod = await stage.client.create(pod)
            if number == 2:
                await stage.until_told("Pod number 2 of the StatefulSet", "has none")
                continue
            await stage.until_plugged_in(name)
            (port,) = stage.cloud.ports.values()
            assert addresses(port) == [f"10.70.0.{7 + number}", f"fd70::{7 + number}"]
            await end(stage, name, pod)


async def test_port_security_can_be_off_where_it_is_granted(stage, storage):
    policy = {"port_security": f"{stage.cluster.namespace}:{storage['id']}"}
    async with stage.controller(**WITH, policy=policy):
        port = await port_of(stage, "web", {NETWORK: storage["id"], PORT_SECURITY: "false"})
        assert (port["port_security_enabled"], port["security_groups"]) == (False, [])


async def test_pod_may_send_from_addresses_that_it_names_where_that_is_granted(stage, storage):
    policy = {"port_security": f"{stage.cluster.namespace}:{storage['id']}"}
    asked = {NETWORK: storage["id"], PAIRS: '[{"ip_address": "10.70.0.100"}]'}
    async with stage.controller(**WITH, policy=policy):
        port = await port_of(stage, "web", asked)
        own = {"ip_address": "10.70.0.100", "mac_address": port["mac_address"]}
        assert port["allowed_address_pairs"] == [own]
        pod = await stage.client.find(f"/api/v1/namespaces/{stage.cluster.namespace}/pods/web")
        await end(stage, "web", pod)
        assert not stage.cloud.ports


async def test_port_has_the_qos_policy_that_the_pod_or_its_namespace_names(stage, storage):
    gold, plain = (stage.cloud.add_qos_policy(name)["id"] for name in ("gold", "plain"))
    path = f"/api/v1/namespaces/{stage.cluster.namespace}"
    await stage.client.patch(path, {"metadata": {"annotations": {QOS: plain}}})
    async with stage.controller(**WITH):
        port = await port_of(stage, "web", {NETWORK: storage["id"]})
        assert port["qos_policy_id"] == plain
        port = await port_of(stage, "own", {QOS: "gold"})
        assert (port["network_id"], port["qos_policy_id"]) == (stage.cloud.pods["id"], gold)
    await stage.client.patch(path, {"metadata": {"annotations": {QOS: None}}})


async def test_pod_is_told_what_no_router_connects_its_network_with(stage, storage):
    cloud = stage.cloud
    nodes, services = (cloud.add_network(name, cidr) for name, cidr in SUBNETS.items())
    options = {"node_subnet": nodes["subnets"][0], "service_subnet": services["subnets"][0]}
    public = cloud.add_external_network("public", "172.24.4.0/24")
    router = cloud.add_router(public["id"], *nodes["subnets"])
    routed = cloud.add_network("routed", "10.73.0.0/24")
    cloud.join(router, *routed["subnets"])
    policy = {"networks": f"*:*,*:{services['id']}"}  # else it would be Services' alone
    async with stage.controller(**WITH, neutron_defaults=options, policy=policy):
        await port_of(stage, "plain", {})
        await port_of(stage, "beside", {NETWORK: services["id"]})
        await port_of(stage, "routed", {NETWORK: routed["id"]})
        await port_of(stage, "alone", {NETWORK: storage["id"]})
        words = ("network storage with the nodes", "network storage with Services")
        assert await stage.until_told(*words) == "KuryrNetworkNotRouted"
        told = {note.partition(":")[0] for _reason, note in await stage.events()}
        assert told == {
            "No router of Neutron connects network storage with the nodes",
            "No router of Neutron connects network services with the nodes",
            "No router of Neutron connects network routed with Services",
        }


REFUSED = {  # annotations, with words for what the fixture makes, and the words of the Event
    "no network": ({NETWORK: "{group}"}, "neither belongs to project"),
    "no name": ({NETWORK: "nothing"}, "has no network of the name nothing"),
    "two names": ({NETWORK: "twin"}, "has 2 networks of the name twin"),
    "name of a shared network": ({NETWORK: "shared"}, "has no network of the name shared"),
    "empty": ({NETWORK: ""}, "is empty"),
    "three subnets": ({SUBNET: "{v4},{v6},{other}"}, "more than 2"),
    "another network's": ({NETWORK: "{network}", SUBNET: "{other}"}, "is not one of network"),
    "tenant's network": ({NETWORK: "{theirs}"}, "neither belongs to project"),
    "tenant's subnet": ({SUBNET: "{their subnet}"}, "neither belongs to project"),
    "subnet of Services": ({SUBNET: "{services}"}, "is for nodes or Services"),
    "tenant's group": ({GROUPS: "{their group}"}, "there is no security group"),
    "tenant's QoS policy": ({QOS: "{their qos}"}, "there is no QoS policy"),
    "QoS policy of nobody": ({QOS: "gold"}, "has no QoS policy of the name gold"),
    "group of nobody": ({GROUPS: "{network}"}, "there is no security group"),
    "groups without port security": (
        {GROUPS: "{group}", PORT_SECURITY: "false"},
        "a port without port security has no groups",
    ),
    "pool in two subnets": (
        {NETWORK: "{wide}", POOL: "10.77.0.7,10.77.1.7"},
        "in several subnets of one family",
    ),
    "group twice": ({GROUPS: "{group},{group}"}, "is there twice"),
    "both spellings": ({GROUPS: "{group}", GROUP: "{group}"}, "is there, too"),
    "address elsewhere": ({NETWORK: "{network}", ADDRESS: "10.71.0.7"}, "in none of its subnets"),
    "pool elsewhere": ({NETWORK: "{network}", POOL: "10.70.0.7,10.71.0.7"}, "in none of its sub"),
    "pool of a shared network": (
        {NETWORK: "{shared}", POOL: "10.74.0.7,10.74.0.8"},
        "in networks of project",
    ),
    "gateway": ({NETWORK: "{network}", ADDRESS: "10.70.0.1"}, "is the gateway"),
    "no address": ({ADDRESS: "10.70"}, "is no IP address"),
    "two of a family": ({ADDRESS: "10.70.0.7,10.70.0.8"}, "more than one address of a family"),
    "group's MAC": ({MAC: "01:00:5e:00:00:01"}, "is no address of an interface"),
    "address of a shared network": (
        {NETWORK: "{shared}", ADDRESS: "10.74.0.7"},
        "in networks of project",
    ),
    "MAC in a shared network": ({NETWORK: "{shared}", MAC: FIXED}, "in networks of project"),
    "no port security": ({NETWORK: "{network}", PORT_SECURITY: "false"}, "is not granted"),
    "pairs": ({NETWORK: "{network}", PAIRS: PAIR}, "is not granted"),
    "no flag": ({PORT_SECURITY: "no"}, "neither true nor false"),
}


@pytest.mark.parametrize("case", list(REFUSED))
async def test_what_cannot_be_is_an_event_and_the_pod_gets_no_interface(stage, storage, case):
    cloud = stage.cloud
    tenant = cloud.add_project("tenant")
    theirs = cloud.add_network("theirs", "10.73.0.0/24", project_id=tenant)
    shared = cloud.add_network("shared", "10.74.0.0/24", project_id=tenant)
    cloud.share(shared["id"], cloud.project_id)
    for cidr in ("10.75.0.0/24", "10.76.0.0/24"):
        cloud.add_network("twin", cidr)
    made = {
        "network": storage["id"],
        "v4": storage["subnets"][0],
        "v6": storage["subnets"][1],
        "other": cloud.add_network("other", "10.71.0.0/24")["subnets"][0],
        "services": cloud.add_network("services", SUBNETS["services"])["subnets"][0],
        "theirs": theirs["id"],
        "their subnet": theirs["subnets"][0],
        "their group": cloud.add_security_group("theirs", project_id=tenant)["id"],
        "their qos": cloud.add_qos_policy("theirs", project_id=tenant)["id"],
        "shared": shared["id"],
        "wide": cloud.add_network("wide", "10.77.0.0/24", "10.77.1.0/24")["id"],
        "group": cloud.group["id"],
    }
    annotations, words = REFUSED[case]
    annotations = {name: text.format(**made) for name, text in annotations.items()}
    options = {"service_subnet": made["services"]}
    async with stage.controller(**WITH, neutron_defaults=options):
        await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        await stage.until_told(words)
        assert "vifs" not in ((await stage.kuryrport("web")).get("status") or {})
        assert not cloud.ports


@pytest.mark.parametrize("option", ["networks", "security_groups", "qos_policies"])
async def test_namespace_may_name_only_what_is_granted_to_it(stage, storage, option):
    policy = stage.cloud.add_qos_policy("gold")["id"]
    annotations = {NETWORK: storage["id"], GROUPS: stage.cloud.group["id"], QOS: policy}
    async with stage.controller(**WITH, policy={option: "elsewhere:*"}):
        await stage.cluster.add_pod("web", node=NODE, annotations=annotations)
        assert await stage.until_told("is not granted to namespace") == "KuryrNotGranted"
        assert not stage.cloud.ports
