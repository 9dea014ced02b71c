"""Pods with virtual functions (VFs) of the machine's card, on the physical network of the cloud.

Real are the card with its VFs (QEMU's igb), the kernel's drivers, the kubelet with its device
manager, the device plugin's protocol, Neutron with its mechanism driver sriovnicswitch, and the
network between the card and the other nodes. The NIC Switch agent is a row in Neutron's database.
"""

import json
import subprocess

import pytest

from kuryr_k8s.model.annotations import OPAQUE_VFS
from lab.machine.machine import CARD, VIRTUAL_FUNCTIONS
from tests.kit.kube.objects import make_neutron_port
from tests.lab.cluster import pod
from tests.lab.machine.pods import dra_driver
from tests.lab.machine.pods.modules import running

SUBNETS = "openstack.org/kuryr-sriov-subnets"
FURTHER = "openstack.org/kuryr-additional-subnets"
SPECIFIC = "openstack.org/spec-ports"
NAMES = "openstack.org/neutron_ports"
RESOURCE, CLASS = "lab.local/vf", "lab-vf"
pytestmark = pytest.mark.lab_only


@pytest.fixture
def plugin(cluster, worker):
    """The kubelet of the machine has a device plugin for the first two VFs; their addresses."""
    slots = [slot_of(worker, number) for number in range(2)]
    with running(worker, "device_plugin", RESOURCE, *slots):
        cluster.wait_for("the Node has VFs", lambda: allocatable(cluster, worker, RESOURCE) == 2)
        yield slots


def slot_of(worker, number):
    path = f"/sys/class/net/{CARD}/device/virtfn{number}"
    printed = subprocess.run(
        [*worker.command, "/bin/readlink", path], check=True, capture_output=True, text=True
    )
    return printed.stdout.strip().rpartition("/")[2]


def allocatable(cluster, worker, resource):
    return int(cluster.get("node", worker.name)["status"]["allocatable"].get(resource, 0))


def with_vfs(name, worker, subnet, count, resource=RESOURCE, **annotations):
    """A Pod on the machine that requests VFs."""
    made = pod(name, node=worker.name)
    (container,) = made["spec"]["containers"]
    container["resources"] = {kind: {resource: str(count)} for kind in ("limits", "requests")}
    subnets = json.dumps({"physnet1": [subnet["id"]] * count})
    made["metadata"]["annotations"] = {SUBNETS: subnets, **annotations}
    return made


def vif(cluster, name, ifname="eth1"):
    entry = cluster.get("kuryrport", name)["status"]["vifs"][ifname]
    return entry["vif"]["versioned_object.data"]


def address(cluster, name, ifname="eth1"):
    port = cluster.ports()[vif(cluster, name, ifname)["id"]]
    return port["fixed_ips"][0]["ip_address"]


def on_card(worker, number):
    printed = subprocess.run(
        [*worker.command, "/bin/ip", "-j", "-d", "link", "show", CARD],
        check=True,
        capture_output=True,
        text=True,
    )
    (link,) = json.loads(printed.stdout)
    (found,) = [each for each in link["vfinfo_list"] if each["vf"] == number]
    return found


def test_vf_of_the_kubelet_reaches_pods_of_other_nodes_on_its_network(
    cluster, worker, subnet, plugin
):
    peer = pod("peer", node="node1")
    peer["metadata"]["annotations"] = {FURTHER: json.dumps([subnet["id"]])}
    cluster.apply(with_vfs("fast", worker, subnet, 1), peer)
    cluster.wait_ready("fast", "peer")
    found = vif(cluster, "fast")
    print(cluster.kubectl("get", "kuryrport", "fast", "-o", "yaml"))
    assert found["dev_address"] in plugin
    port = cluster.ports()[found["id"]]
    assert port["binding:vif_type"] == "hw_veb"
    assert port["binding:profile"]["pci_slot"] == found["dev_address"]
    number = plugin.index(found["dev_address"])
    assert on_card(worker, number)["vlan_list"][0]["vlan"] == subnet["vlan"]
    assert found["address"] in cluster.exec("fast", "ip", "link", "show", "eth1")
    # not the other way: the security group of the peer lets only Pods' networks in
    cluster.until_pings("peer", address(cluster, "fast"))
    cluster.delete("pods", "fast", "peer")
    cluster.wait_for("the port is released", lambda: cluster.is_released(found["id"]))
    assert on_card(worker, number)["vlan_list"] == [{}]
    assert slot_of(worker, number) == found["dev_address"]


@pytest.fixture
def claim(cluster, worker):
    """A claim of the VF that a driver of dynamic resource allocation has; the VF's address."""
    slot = slot_of(worker, 3)
    group = "resource.k8s.io/v1"
    names = {name: {"name": name, "labels": {"lab": "vf"}} for name in (CLASS, "claim")}
    cel = {"expression": f'device.driver == "{dra_driver.DRIVER}"'}
    request = {"name": dra_driver.REQUEST, "exactly": {"deviceClassName": CLASS}}
    attributes = {"resource.kubernetes.io/pciBusID": {"string": slot}}
    pool = {"name": worker.name, "generation": 1, "resourceSliceCount": 1}
    with running(worker, "dra_driver", worker.kubelet_root, worker.name):
        cluster.apply(
            {
                "apiVersion": group,
                "kind": "DeviceClass",
                "metadata": names[CLASS],
                "spec": {"selectors": [{"cel": cel}]},
            },
            {
                "apiVersion": group,
                "kind": "ResourceSlice",
                "metadata": {"name": CLASS, "labels": {"lab": "vf"}},
                "spec": {
                    "driver": dra_driver.DRIVER,
                    "nodeName": worker.name,
                    "pool": pool,
                    "devices": [{"name": dra_driver.DEVICE, "attributes": attributes}],
                },
            },
            {
                "apiVersion": group,
                "kind": "ResourceClaim",
                "metadata": names["claim"],
                "spec": {"devices": {"requests": [request]}},
            },
        )
        yield slot
        cluster.delete("pods", "--all")
        cluster.delete("resourceclaims", "--all")
        cluster.delete("deviceclasses,resourceslices", "--selector=lab=vf")


def test_vf_of_a_resource_claim(cluster, worker, subnet, claim):
    # the scheduler allocates the device
    made = pod(
        "claiming",
        nodeSelector={"kubernetes.io/hostname": worker.name},
        tolerations=[{"operator": "Exists"}],
    )
    (container,) = made["spec"]["containers"]
    container["resources"] = {"claims": [{"name": "vf"}]}
    made["spec"]["resourceClaims"] = [{"name": "vf", "resourceClaimName": "claim"}]
    made["metadata"]["annotations"] = {SUBNETS: json.dumps({"physnet1": [subnet["id"]]})}
    peer = pod("peer", node="node1")
    peer["metadata"]["annotations"] = {FURTHER: json.dumps([subnet["id"]])}
    cluster.apply(made, peer)
    cluster.wait_ready("claiming", "peer")
    assert vif(cluster, "claiming")["dev_address"] == claim
    cluster.until_pings("peer", address(cluster, "claiming"))


def test_vf_that_the_daemon_offers_itself_by_its_old_name(cluster, worker, subnet):
    resource = f"{OPAQUE_VFS}physnet1"
    cluster.wait_for(
        "the Node has VFs", lambda: allocatable(cluster, worker, resource) == VIRTUAL_FUNCTIONS
    )
    cluster.apply(
        with_vfs("a", worker, subnet, 2, resource), with_vfs("b", worker, subnet, 1, resource)
    )
    cluster.wait_ready("a", "b")
    slots = {
        vif(cluster, name, ifname)["dev_address"]
        for name, ifname in (("a", "eth1"), ("a", "eth2"), ("b", "eth1"))
    }
    assert len(slots) == 3
    cluster.until_pings("b", address(cluster, "a"))


@pytest.mark.product("neutron ports")
def test_vf_has_the_port_of_an_object_and_the_object_keeps_it(cluster, worker, subnet, plugin):
    spec = {"network": subnet["network_id"], "vnicType": "direct"}
    cluster.apply(make_neutron_port("vf", cluster.namespace, **spec))

    def status():
        return (cluster.find("neutronport", "vf") or {}).get("status") or {}

    cluster.wait_for("it is there", lambda: status().get("phase") == "Available")
    made = status()
    asking = with_vfs("fast", worker, subnet, 1, **{NAMES: "vf"})
    del asking["metadata"]["annotations"][SUBNETS]
    peer = pod("peer", node="node1")
    peer["metadata"]["annotations"] = {FURTHER: json.dumps([subnet["id"]])}
    cluster.apply(asking, peer)
    cluster.wait_ready("fast", "peer")
    assert vif(cluster, "fast")["id"] == made["portId"]
    assert made["macAddress"] in cluster.exec("fast", "ip", "link", "show", "eth1")
    cluster.until_pings("peer", made["addresses"][0]["ipAddress"])
    cluster.delete("pods", "fast", "peer")
    cluster.wait_for("it is free again", lambda: status()["phase"] == "Available")
    port = cluster.ports()[made["portId"]]
    assert (port["binding:profile"], port["binding:host_id"]) == ({}, "")
    cluster.delete("neutronport", "vf")


def test_port_that_a_user_made_for_a_vf_is_used_and_given_back(
    cluster, worker, subnet, plugin, theirs
):
    cluster.apply(with_vfs("fast", worker, subnet, 1, **{SPECIFIC: json.dumps([theirs["id"]])}))
    cluster.wait_ready("fast")
    assert vif(cluster, "fast")["id"] == theirs["id"]
    cluster.delete("pods", "fast")

    def given_back():
        now = cluster.neutron.get(f"/ports/{theirs['id']}")["port"]
        fields = ("device_id", "device_owner", "binding:host_id", "binding:profile")
        return all(now[name] == theirs[name] for name in fields)

    cluster.wait_for("it is as it was", given_back)
