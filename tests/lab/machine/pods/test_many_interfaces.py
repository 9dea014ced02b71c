"""Pods with interfaces of all kinds at once."""

import json

import pytest

from kuryr_k8s.model.annotations import OPAQUE_VFS
from tests.kit.kube.objects import make_network_attachment
from tests.lab.cluster import pod

FURTHER = "openstack.org/kuryr-additional-subnets"
SPECIFIC = "openstack.org/spec-ports"
SELECTED = "k8s.v1.cni.cncf.io/networks"
SHOWN = "k8s.v1.cni.cncf.io/network-status"
SUBNETS = "openstack.org/kuryr-sriov-subnets"
pytestmark = pytest.mark.lab_only


def test_pod_on_a_machine_has_vlans_a_macvlan_and_vfs(cluster, worker, subnet, unfiltered, theirs):
    networks = cluster.lab.cloud.networks
    config = {"subnetId": networks["workers"].v4.id, "driverType": "nested-macvlan"}
    definition = make_network_attachment("workers", kuryr=config)
    asking = pod("one", node=worker.name)
    asking["metadata"]["annotations"] = {
        FURTHER: json.dumps([networks["vms"].v4.id]),
        SELECTED: "workers@net1",
        SPECIFIC: json.dumps([theirs["id"]]),
        SUBNETS: json.dumps({"physnet1": [subnet["id"]] * 2}),
    }
    (container,) = asking["spec"]["containers"]
    asked = {f"{OPAQUE_VFS}physnet1": "2"}
    container["resources"] = {"limits": asked, "requests": asked}
    peer = pod("peer", node="node1")
    peer["metadata"]["annotations"] = {FURTHER: json.dumps([subnet["id"]])}
    cluster.apply(definition, asking, peer)
    cluster.wait_ready("one", "peer")
    vifs = {
        ifname: entry["vif"]
        for ifname, entry in cluster.get("kuryrport", "one")["status"]["vifs"].items()
    }
    assert {ifname: vif["versioned_object.name"] for ifname, vif in vifs.items()} == {
        "eth0": "VIFVlanNested",
        "eth1": "VIFVlanNested",
        "eth2": "VIFSriov",
        "eth3": "VIFSriov",
        "net1": "VIFMacvlanNested",
    }
    ids = {ifname: vif["versioned_object.data"]["id"] for ifname, vif in vifs.items()}
    assert theirs["id"] in ids.values()
    ports = {
        ifname: cluster.neutron.get(f"/ports/{port_id}")["port"] for ifname, port_id in ids.items()
    }
    address = {ifname: port["fixed_ips"][0]["ip_address"] for ifname, port in ports.items()}
    for ifname, port in ports.items():
        shown = cluster.exec("one", "ip", "address", "show", ifname)
        assert port["mac_address"] in shown
        assert f" {address[ifname]}/" in shown
    gateway = cluster.neutron.get(f"/subnets/{networks['workers'].v4.id}")["subnet"]["gateway_ip"]
    routes = {"eth1": cluster.lab.vm1.v4, "net1": gateway}
    for ifname, target in routes.items():
        cluster.until_pings("one", target)
        assert f"dev {ifname}" in cluster.exec("one", "ip", "route", "get", target)
    for ifname in ("eth0", "eth2", "eth3"):
        cluster.until_pings("peer", address[ifname])
    print(cluster.kubectl("get", "kuryrport", "one", "-o", "yaml"))
    print(cluster.get("pod", "one")["metadata"]["annotations"][SHOWN])
    print(cluster.exec("one", "ip", "address"))
    cluster.delete("pod", "one")
    cluster.wait_for("the KuryrPort is gone", lambda: not cluster.find("kuryrport", "one"))
    assert cluster.neutron.get(f"/ports/{theirs['id']}")["port"]["binding:profile"] == {}
