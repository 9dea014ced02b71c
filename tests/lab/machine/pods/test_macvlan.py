"""Pods on a virtual machine with a macvlan of its interface."""

import pytest

from tests.kit.kube.objects import make_network_attachment
from tests.lab.cluster import machine, pod

SELECTED = "k8s.v1.cni.cncf.io/networks"
pytestmark = pytest.mark.lab_only


def selecting(name, node):
    asking = pod(name, node=node)
    asking["metadata"]["annotations"] = {SELECTED: "workers@net1"}
    return asking


def further(cluster, name):
    """Return the port of the Pod's further interface, in Neutron."""
    entry = cluster.get("kuryrport", name)["status"]["vifs"]["net1"]
    return cluster.ports()[entry["vif"]["versioned_object.data"]["id"]]


def select_workers(cluster, *names):
    """Create these Pods, with a macvlan in the network of the machine."""
    network = cluster.lab.cloud.networks["workers"]
    config = {"subnetId": network.v4.id, "driverType": "nested-macvlan"}
    definition = make_network_attachment("workers", kuryr=config)
    worker = machine(cluster.lab)
    cluster.apply(definition, *(selecting(name, worker.name) for name in names))
    return cluster.neutron.get(f"/subnets/{network.v4.id}")["subnet"]


def test_pods_reach_each_other_and_the_network_of_the_machine(cluster, unfiltered):
    names = ("a", "b")
    subnet = select_workers(cluster, *names)
    cluster.wait_ready(*names)
    ports = {name: further(cluster, name) for name in names}
    address = {name: port["fixed_ips"][0]["ip_address"] for name, port in ports.items()}
    vif = cluster.get("kuryrport", "a")["status"]["vifs"]["net1"]["vif"]
    assert vif["versioned_object.name"] == "VIFMacvlanNested"
    assert f" {address['a']}/" in cluster.exec("a", "ip", "address", "show", "net1")
    cluster.until_pings("a", address["b"], subnet["gateway_ip"])
    cluster.until_pings("b", subnet["gateway_ip"])
    cluster.delete("pods", *names)
    for port in ports.values():
        cluster.wait_for("it is nobody's", lambda port=port: cluster.is_released(port["id"]))
    cluster.assert_nothing_leaks()


def test_pair_that_neutron_refuses_is_an_event_and_leaves_nothing(cluster):
    """ML2/OVN since 2026.1: the MAC has to be that of the machine's port."""
    select_workers(cluster, "a")

    def told():
        return any("VRRP" in event["message"] for event in cluster.get("events"))

    cluster.wait_for("an Event says so", told)
    cluster.delete("pods", "a")
    cluster.wait_for("the KuryrPort is gone", lambda: not cluster.get("kuryrports"))
    cluster.assert_nothing_leaks()
