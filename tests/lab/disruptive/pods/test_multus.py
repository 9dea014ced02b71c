"""Multus calls the plugins of each network: kuryr-cni for the default one, or for others."""

import json
from pathlib import Path

import pytest

from lab.install import binaries
from lab.process import succeeds
from lab.suite import interrupted
from tests.kit.kube.objects import make_network_attachment
from tests.lab.cluster import pod

DEFAULT = "v1.multus-cni.io/default-network"
NETWORK, ADDRESS = "openstack.org/network_id", "openstack.org/ip_address"
SELECTED = "k8s.v1.cni.cncf.io/networks"
SHOWN = "k8s.v1.cni.cncf.io/network-status"
NODE = "node2"
BRIDGES = {"lab-default": "10.99.0.0/24", "lab-bridged": "10.99.1.0/24"}
pytestmark = [pytest.mark.lab_only, pytest.mark.complete]


def bridge(name):
    """Return the configuration of another plugin, with a bridge of its own."""
    subnet = BRIDGES[name]
    ipam = {"type": "host-local", "ranges": [[{"subnet": subnet}]], "dataDir": "/run/lab-multus"}
    plugin = {"type": "bridge", "bridge": name, "isGateway": True, "ipam": ipam}
    return {"cniVersion": "1.0.0", "name": name, **plugin}


@pytest.fixture
def multus(cluster):
    """Let the runtime of a node call Multus, for a while, with a configuration of the default
    network.
    """
    node = cluster.lab.nodes[NODE]
    program, path = Path(node.cni_bin_dir) / "multus", Path(node.cni_conf_dir) / interrupted.CHAIN
    program.unlink(missing_ok=True)
    program.symlink_to(binaries.ensure(["multus"])["multus"])

    def call(default):
        plugin = {
            "type": "multus",
            "kubeconfig": cluster.lab.kubernetes.admin_kubeconfig,
            "binDir": node.cni_bin_dir,
            "confDir": node.cni_conf_dir,
            "cniDir": "/run/lab-multus/cache",
            "delegates": [default],
        }
        conflist = {"cniVersion": "1.0.0", "name": "multus", "plugins": [plugin]}
        path.write_text(json.dumps(conflist))

    try:
        yield call
        cluster.delete("pods", "--all")  # by the chain that made them
    finally:
        path.unlink(missing_ok=True)
        program.unlink()
        for name in BRIDGES:
            succeeds(["ip", "link", "del", name], netns=node.netns)


def shipped(cluster):
    directory = Path(cluster.lab.nodes[NODE].cni_conf_dir)
    return json.loads((directory / "10-kuryr.conflist").read_text())


def definitions(cluster):
    """The network of a virtual machine, for kuryr-cni, and one of another plugin."""
    network = cluster.lab.cloud.networks["vms"]
    name = f"{cluster.namespace}/machines"
    ours = shipped(cluster)["plugins"][0] | {"cniVersion": "1.0.0", "netAttachDefName": name}
    config = {"subnetId": f"{network.v4.id},{network.v6.id}"}
    return [
        make_network_attachment("machines", kuryr=config, config=ours),
        make_network_attachment("bridged", config=bridge("lab-bridged")),
    ]


def selecting(networks):
    asking = pod("one", node=NODE)
    asking["metadata"]["annotations"] = {SELECTED: networks}
    return asking


def status(cluster, name="one"):
    """What Multus has written, by interface."""
    live = cluster.get("pod", name)["metadata"]["annotations"]
    return {each["interface"]: each for each in json.loads(live[SHOWN])}


def assert_reaches_machine(cluster, ifname, name="one"):
    machine = cluster.lab.vm1
    cluster.until_pings(name, machine.v4, machine.v6)
    assert f"dev {ifname}" in cluster.exec(name, "ip", "route", "get", machine.v4)


@pytest.mark.product("multus calls for all networks")
def test_kuryr_cni_is_the_plugin_of_the_default_network_and_of_another_one(cluster, multus):
    multus(shipped(cluster))
    cluster.apply(*definitions(cluster), selecting("bridged,machines"))
    cluster.wait_ready("one")
    found = status(cluster)
    assert list(found) == ["eth0", "net1", "net2"]
    assert found["eth0"]["default"]
    assert found["net1"]["ips"][0].startswith("10.99.1.")
    assert found["net2"]["name"] == f"{cluster.namespace}/machines"
    vifs = cluster.get("kuryrport", "one")["status"]["vifs"]
    assert list(vifs) == ["eth0", "net2"]
    ports = {
        ifname: cluster.ports()[entry["vif"]["versioned_object.data"]["id"]]
        for ifname, entry in vifs.items()
    }
    for ifname, port in ports.items():
        shown = cluster.exec("one", "ip", "address", "show", ifname)
        assert all(f" {ip['ip_address']}/" in shown for ip in port["fixed_ips"])
    assert_reaches_machine(cluster, "net2")
    print(json.dumps(list(found.values())))
    cluster.delete("pod", "one")
    for port in ports.values():
        cluster.wait_for("it is nobody's", lambda port=port: cluster.is_released(port["id"]))
    cluster.assert_nothing_leaks()


@pytest.mark.product("multus calls for further networks")
def test_kuryr_cni_is_the_plugin_of_a_network_besides_that_of_another_plugin(cluster, multus):
    multus(bridge("lab-default"))
    cluster.apply(*definitions(cluster), selecting("machines"))
    cluster.wait_ready("one")
    found = status(cluster)
    assert list(found) == ["eth0", "net1"]
    assert found["eth0"]["ips"][0].startswith("10.99.0.")
    assert list(cluster.get("kuryrport", "one")["status"]["vifs"]) == ["net1"]
    assert_reaches_machine(cluster, "net1")
    print(json.dumps(list(found.values())))
    cluster.delete("pod", "one")
    cluster.wait_for("the KuryrPort is gone", lambda: not cluster.get("kuryrports"))
    cluster.assert_nothing_leaks()


@pytest.mark.product("multus calls for further networks")
def test_pods_say_which_of_them_kuryr_cni_is_called_for(cluster, multus):
    """Two in Neutron's networks, one of them with more of them, beside one in another plugin's."""
    multus(bridge("lab-default"))
    network = cluster.lab.cloud.networks["vms"]
    fixed = f"{network.v4.cidr.rpartition('.')[0]}.121"
    ours = shipped(cluster)["plugins"][0] | {"cniVersion": "1.0.0"}
    plain = {"name": "plain", "namespace": cluster.namespace}
    pods = {
        "one": {DEFAULT: json.dumps([plain]), NETWORK: network.id, ADDRESS: fixed},
        "two": {DEFAULT: f"{cluster.namespace}/machines", SELECTED: "bridged,machines"},
        "theirs": {},
    }
    asking = [pod(name, node=NODE) for name in pods]
    for each, annotations in zip(asking, pods.values(), strict=True):
        each["metadata"]["annotations"] = annotations
    cluster.apply(*definitions(cluster), make_network_attachment("plain", config=ours), *asking)
    cluster.wait_ready(*pods)
    recorded = {name: cluster.find("kuryrport", name) for name in pods}
    assert recorded.pop("theirs") is None
    found = {name: list(each["status"]["vifs"]) for name, each in recorded.items()}
    assert found == {"one": ["eth0"], "two": ["eth0", "net2"]}
    assert f" {fixed}/" in cluster.exec("one", "ip", "address", "show", "eth0")
    for name in found:
        assert_reaches_machine(cluster, "eth0", name)
    assert list(status(cluster, "two")) == ["eth0", "net1", "net2"]
    assert cluster.get("pod", "theirs")["status"]["podIP"].startswith("10.99.0.")
    assert cluster.get("pod", "one")["status"]["podIP"] == fixed
    cluster.until_pings("two", fixed)
    print(json.dumps({name: list(status(cluster, name).values()) for name in pods}))
    cluster.delete("pod", *pods)
    cluster.wait_for("KuryrPorts are gone", lambda: not cluster.get("kuryrports"))
    cluster.assert_nothing_leaks()
