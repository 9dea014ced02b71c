"""Pods with further interfaces, in the network of a virtual machine."""

import json

import pytest

from tests.kit.kube.objects import make_network_attachment
from tests.lab.cluster import pod

ANNOTATION = "openstack.org/kuryr-additional-subnets"
NAMED = "openstack.org/spec-ports"
SELECTED = "k8s.v1.cni.cncf.io/networks"
SHOWN = "k8s.v1.cni.cncf.io/network-status"
pytestmark = pytest.mark.lab_only


def in_network(name, network, node):
    """Return a Pod on a node with a further interface in both subnets of the network."""
    asking = pod(name, node=node)
    both = f"{network.v4.id},{network.v6.id}"
    asking["metadata"]["annotations"] = {ANNOTATION: json.dumps([both])}
    return asking


def further(cluster, name):
    """Return the port of the Pod's further interface, in Neutron."""
    entry = cluster.get("kuryrport", name)["status"]["vifs"]["eth1"]
    return cluster.ports()[entry["vif"]["versioned_object.data"]["id"]]


def test_pods_and_a_virtual_machine_reach_each_other_in_a_further_network(cluster):
    network, machine = cluster.lab.cloud.networks["vms"], cluster.lab.vm1
    names = list(cluster.lab.nodes)
    cluster.apply(*(in_network(name, network, node=name) for name in names))
    cluster.wait_ready(*names)
    ports = {name: further(cluster, name) for name in names}
    found = {name: [ip["ip_address"] for ip in port["fixed_ips"]] for name, port in ports.items()}
    for name, addresses in found.items():
        shown = cluster.exec(name, "ip", "address", "show", "eth1")
        assert all(f" {address}/" in shown for address in addresses)
        others = [each for other, theirs in found.items() if other != name for each in theirs]
        cluster.until_pings(name, *others, machine.v4, machine.v6)
        assert "dev eth1" in cluster.exec(name, "ip", "route", "get", machine.v4)
        assert "dev eth0" in cluster.exec(name, "ip", "route", "show", "default")
    cluster.until_vm_pings(*(address for theirs in found.values() for address in theirs))
    cluster.delete("pods", *names)
    for port in ports.values():
        cluster.wait_for("it is nobody's", lambda port=port: cluster.is_released(port["id"]))
    cluster.assert_nothing_leaks()


@pytest.fixture
def made(cluster):
    """A port that a user made in the network of the virtual machine, with groups of its own."""
    cloud = cluster.lab.cloud
    body = {
        "name": cluster.namespace,
        "network_id": cloud.networks["vms"].id,
        "project_id": cloud.project_id,
        "security_groups": [cloud.security_groups["vms"]],
    }
    port = cluster.neutron.post("/ports", {"port": body})["port"]
    yield port
    cluster.neutron.delete(f"/ports/{port['id']}")


def test_pod_has_the_port_that_a_user_made_and_gives_it_back(cluster, made):
    def live():
        return cluster.neutron.get(f"/ports/{made['id']}")["port"]

    asking = pod("one", node="node2")
    asking["metadata"]["annotations"] = {NAMED: json.dumps([made["id"]])}
    cluster.apply(asking)
    cluster.wait_ready("one")
    assert live()["device_id"] == cluster.uid("one")
    shown = cluster.exec("one", "ip", "address", "show", "eth1")
    assert made["mac_address"] in shown
    assert all(f" {ip['ip_address']}/" in shown for ip in made["fixed_ips"])
    machine = cluster.lab.vm1
    cluster.until_pings("one", machine.v4, machine.v6)
    cluster.until_vm_pings(*(ip["ip_address"] for ip in made["fixed_ips"]))
    cluster.delete("pod", "one")
    changed = (
        "revision_number",
        "updated_at",
        "status",
        "binding:vif_type",
        "binding:vif_details",
    )

    def is_as_before():
        now = live()
        return all(now[name] == made[name] for name in made.keys() - changed)

    cluster.wait_for("the port is as the user made it", is_as_before)


def test_selected_network_is_an_interface_and_the_pod_says_so(cluster):
    network = cluster.lab.cloud.networks["vms"]
    config = {"subnetId": f"{network.v4.id},{network.v6.id}"}
    definition = make_network_attachment("machines", kuryr=config)
    asking = pod("one", node="node1")
    asking["metadata"]["annotations"] = {SELECTED: "machines@net1"}
    cluster.apply(definition, asking)
    cluster.wait_ready("one")

    def status():
        live = cluster.get("pod", "one")["metadata"]["annotations"]
        return json.loads(live.get(SHOWN, "[]"))

    cluster.wait_for("the Pod says what it has", status)
    default, further = status()
    assert default["default"]
    assert further["name"] == f"{cluster.namespace}/machines"
    shown = cluster.exec("one", "ip", "address", "show", "net1")
    assert further["mac"] in shown
    assert all(f" {address}/" in shown for address in further["ips"])
    cluster.until_pings("one", cluster.lab.vm1.v4, cluster.lab.vm1.v6)
