"""Pods whose default interface is in the network of a virtual machine, with its groups."""

import pytest

from tests.lab.cluster import pod

NETWORK, GROUPS = "openstack.org/network_id", "openstack.org/security_group_ids"
ADDRESS, MAC = "openstack.org/ip_address", "openstack.org/mac_address"
FIXED = "fa:16:3e:19:00:07"
pytestmark = pytest.mark.lab_only


def beside(cloud, name, node, **further):
    """Return a Pod on a node with its port beside the virtual machine's, in the same group."""
    asking = pod(name, node=node)
    asking["metadata"]["annotations"] = {
        NETWORK: cloud.networks["vms"].id,
        GROUPS: cloud.security_groups["vms"],
        **further,
    }
    return asking


def addresses_of(cluster, name):
    (entry,) = cluster.get("kuryrport", name)["status"]["vifs"].values()
    port = cluster.ports()[entry["vif"]["versioned_object.data"]["id"]]
    assert port["network_id"] == cluster.lab.cloud.networks["vms"].id
    assert cluster.lab.cloud.security_groups["vms"] in port["security_groups"]
    return [ip["ip_address"] for ip in port["fixed_ips"]]


def test_pods_and_a_virtual_machine_are_on_one_subnet_and_in_one_group(cluster):
    cloud, machine = cluster.lab.cloud, cluster.lab.vm1
    mac = cluster.neutron.get(f"/ports/{machine.port_id}")["port"]["mac_address"]
    names = list(cluster.lab.nodes)
    cluster.apply(*(beside(cloud, name, node=name) for name in names), pod("plain", node="node1"))
    cluster.wait_ready(*names, "plain")
    found = {name: addresses_of(cluster, name) for name in names}
    for name, addresses in found.items():
        shown = cluster.exec(name, "ip", "address", "show", "eth0")
        assert all(f" {address}/" in shown for address in addresses)
        others = [each for other, theirs in found.items() if other != name for each in theirs]
        cluster.until_pings(name, *others, machine.v4, machine.v6)
        # neighbours, not behind a router
        assert mac in cluster.exec(name, "ip", "neigh", "show", machine.v4)
    cluster.until_vm_pings(*(address for theirs in found.values() for address in theirs))
    (plain,) = cluster.get("kuryrport", "plain")["status"]["vifs"].values()
    theirs = cluster.ports()[plain["vif"]["versioned_object.data"]["id"]]
    assert theirs["network_id"] == cloud.networks["pods"].id


def test_pod_has_the_address_and_the_mac_that_it_names_and_its_successor_has_them_again(cluster):
    network = cluster.lab.cloud.networks["vms"]
    address = f"{network.v4.cidr.rpartition('.')[0]}.119"
    fixed = {ADDRESS: address, MAC: FIXED}
    for node in list(cluster.lab.nodes)[:2]:
        cluster.apply(beside(cluster.lab.cloud, "fixed", node=node, **fixed))
        cluster.wait_ready("fixed")
        shown = cluster.exec("fixed", "ip", "address", "show", "eth0")
        assert f" {address}/" in shown
        assert FIXED in shown
        cluster.until_vm_pings(address)
        cluster.delete("pod", "fixed")
        cluster.wait_for("it is gone", lambda: not cluster.find("kuryrport", "fixed"))
