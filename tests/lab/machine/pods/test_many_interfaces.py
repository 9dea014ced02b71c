"""Pods with interfaces of all kinds at once."""

import json

import pytest

from kuryr_k8s.model.annotations import OPAQUE_VFS
from lab.suite.cloud_remains import mark
from tests.kit.kube.objects import make_network_attachment
from tests.lab.cluster import pod

FURTHER = "openstack.org/kuryr-additional-subnets"
SPECIFIC = "openstack.org/spec-ports"
SELECTED = "k8s.v1.cni.cncf.io/networks"
SHOWN = "k8s.v1.cni.cncf.io/network-status"
SUBNETS = "openstack.org/kuryr-sriov-subnets"
CHANGING = ("revision_number", "updated_at", "status")
pytestmark = [pytest.mark.lab_only, pytest.mark.complete]  # it takes minutes


def lasting(port):
    return {name: value for name, value in port.items() if name not in CHANGING}


@pytest.fixture
def private(cluster):
    """A subnet of a network that users made."""
    owner = {"name": mark(), "project_id": cluster.lab.cloud.project_id}
    network = cluster.neutron.post("/networks", {"network": owner})["network"]
    wanted = {"network_id": network["id"], "ip_version": 4, "cidr": "10.91.0.0/24"}
    yield cluster.neutron.post("/subnets", {"subnet": wanted})["subnet"]
    for port in cluster.neutron.get("/ports", network_id=network["id"])["ports"]:
        cluster.neutron.delete(f"/ports/{port['id']}")  # a pool's
    cluster.neutron.delete(f"/networks/{network['id']}")


@pytest.fixture
def open_group(cluster):
    """A security group that lets everything in."""
    wanted = {"name": mark(), "project_id": cluster.lab.cloud.project_id}
    group = cluster.neutron.post("/security-groups", {"security_group": wanted})["security_group"]
    rule = {
        "security_group_id": group["id"],
        "project_id": group["project_id"],
        "direction": "ingress",
        "ethertype": "IPv4",
    }
    cluster.neutron.post("/security-group-rules", {"security_group_rule": rule})
    yield group["id"]
    cluster.neutron.delete(f"/security-groups/{group['id']}")


@pytest.fixture
def theirs(cluster, subnet, private, open_group):
    """Ports that a user made, by vnic_type: an ordinary one, and one for a VF."""
    made = {
        vnic_type: cluster.neutron.post(
            "/ports",
            {
                "port": {
                    "name": "theirs",
                    "network_id": network["network_id"],
                    "project_id": cluster.lab.cloud.project_id,
                    "security_groups": [open_group],
                    "binding:vnic_type": vnic_type,
                }
            },
        )["port"]
        for vnic_type, network in {"normal": private, "direct": subnet}.items()
    }
    yield made
    cluster.delete("pods", "--all")
    cluster.wait_for("no Pod is left", lambda: not cluster.get("kuryrports"))
    for port in made.values():
        cluster.neutron.delete(f"/ports/{port['id']}")


def test_pod_on_a_machine_has_vlans_a_macvlan_and_vfs(
    cluster, worker, subnet, private, unfiltered, theirs
):
    networks = cluster.lab.cloud.networks
    config = {"subnetId": networks["workers"].v4.id, "driverType": "nested-macvlan"}
    definition = make_network_attachment("workers", kuryr=config)
    asking = pod("one", node=worker.name)
    asking["metadata"]["annotations"] = {
        FURTHER: json.dumps([networks["vms"].v4.id]),
        SELECTED: "workers@net1",
        SPECIFIC: json.dumps([port["id"] for port in theirs.values()]),
        SUBNETS: json.dumps({"physnet1": [subnet["id"]] * 2}),
    }
    (container,) = asking["spec"]["containers"]
    asked = {f"{OPAQUE_VFS}physnet1": "2"}
    container["resources"] = {"limits": asked, "requests": asked}
    peer = pod("peer", node="node1")
    peer["metadata"]["annotations"] = {FURTHER: json.dumps([subnet["id"], private["id"]])}
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
        "eth4": "VIFVlanNested",
        "net1": "VIFMacvlanNested",
    }
    ids = {ifname: vif["versioned_object.data"]["id"] for ifname, vif in vifs.items()}
    assert {theirs["normal"]["id"], theirs["direct"]["id"]} <= set(ids.values())
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
    for ifname in ("eth0", "eth2", "eth3", "eth4"):
        cluster.until_pings("peer", address[ifname])
    print(cluster.kubectl("get", "kuryrport", "one", "-o", "yaml"))
    print(cluster.get("pod", "one")["metadata"]["annotations"][SHOWN])
    print(cluster.exec("one", "ip", "address"))
    cluster.delete("pod", "one")
    cluster.wait_for("the KuryrPort is gone", lambda: not cluster.find("kuryrport", "one"))
    cluster.wait_for(
        "the ports are as before",
        lambda: (
            [
                lasting(cluster.neutron.get(f"/ports/{port['id']}")["port"])
                for port in theirs.values()
            ]
            == [lasting(port) for port in theirs.values()]
        ),
    )
