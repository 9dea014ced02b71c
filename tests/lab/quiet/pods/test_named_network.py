"""Pods whose default interface is in the network of a virtual machine, with its groups."""

import time

import pytest

from tests.lab.cluster import pod
from tests.lab.services import answered

NETWORK, GROUPS = "openstack.org/network_id", "openstack.org/security_group_ids"
ADDRESS, MAC = "openstack.org/ip_address", "openstack.org/mac_address"
FLOATING_IP, TOLD = "openstack.org/floating_ip", "openstack.org/port_floating_ip"
QOS = "openstack.org/qos_policy_id"
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


def until_told(cluster, name):
    """The floating IP that a Pod tells of."""

    def told():
        return cluster.get("pod", name)["metadata"]["annotations"].get(TOLD)

    cluster.wait_for(f"{name} has a floating IP", told)
    return told()


def until_answers(cluster, address, name):
    url = f"http://{address}:8080/"
    cluster.wait_for(f"{name} answers at {url}", lambda: answered(url) == name)


def public(name, node, asked):
    asking = pod(name, node=node)
    asking["metadata"]["annotations"] = {FLOATING_IP: asked}
    return asking


def test_pod_is_reached_from_outside_at_its_floating_ip(cluster):
    cluster.apply(public("public", "node1", "true"))
    cluster.wait_ready("public")
    address = until_told(cluster, "public")
    until_answers(cluster, address, "public")
    cluster.delete("pod", "public")
    query = {"floating_ip_address": address}
    cluster.wait_for(
        "it is gone", lambda: not cluster.neutron.get("/floatingips", **query)["floatingips"]
    )


def test_floating_ip_that_is_there_before_follows_its_pods_from_node_to_node(cluster):
    cloud = cluster.lab.cloud
    body = {"floating_network_id": cloud.networks["public"].id, "project_id": cloud.project_id}
    theirs = cluster.neutron.post("/floatingips", {"floatingip": body})["floatingip"]
    path, address = f"/floatingips/{theirs['id']}", theirs["floating_ip_address"]
    try:
        for node in ("node1", "node2"):
            cluster.apply(public(node, node, theirs["id"]))
            cluster.wait_ready(node)
            assert until_told(cluster, node) == address
            until_answers(cluster, address, node)
            cluster.delete("pod", node)
            cluster.wait_for(
                "it leads nowhere",
                lambda: not cluster.neutron.get(path)["floatingip"]["tags"],
            )
    finally:
        cluster.neutron.delete(path)


def test_qos_policy_limits_what_a_pod_sends(cluster):
    name = f"slow-{cluster.namespace}"  # an interrupted run leaves one
    policy = {"name": name, "project_id": cluster.lab.cloud.project_id}
    made = cluster.neutron.post("/qos/policies", {"policy": policy})["policy"]
    path = f"/qos/policies/{made['id']}"
    try:
        rule = {"max_kbps": 1000, "max_burst_kbps": 800, "direction": "egress"}
        cluster.neutron.post(f"{path}/bandwidth_limit_rules", {"bandwidth_limit_rule": rule})
        slow, fast = pod("slow", node="node1"), pod("fast", node="node1")
        slow["metadata"]["annotations"] = {QOS: name}
        cluster.apply(slow, fast, pod("asks", node="node2"))
        cluster.wait_ready("slow", "fast", "asks")
        seconds = {name: download(cluster, name) for name in ("fast", "slow")}
        print(f"1 MB: {seconds}")
        assert seconds["slow"] > 4  # 8 Mbit at 1 Mbit/s, less the burst
    finally:
        cluster.delete("pods", "--all")
        cluster.wait_for("their ports are gone", lambda: not cluster.get("kuryrports"))
        cluster.neutron.delete(path)


def download(cluster, name):
    """Seconds that a megabyte takes from a Pod to another one."""
    cluster.exec(name, "dd", "if=/dev/zero", "of=/www/data", "bs=1M", "count=1")
    address = cluster.get("pod", name)["status"]["podIP"]
    begun = time.monotonic()
    cluster.exec("asks", "wget", "-q", "-O", "/dev/null", f"http://{address}:8080/data")
    return time.monotonic() - begun
