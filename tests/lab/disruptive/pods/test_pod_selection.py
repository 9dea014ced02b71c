"""Another plugin's network, and beside it Pods that name a network of Neutron.

The runtime calls kuryr-cni for them alone: they are of a RuntimeClass with a CNI configuration of
its own.
"""

import json
import subprocess
from pathlib import Path

import pytest

from lab.install import binaries
from lab.kubernetes.node import OTHER_RUNTIME, other_cni_conf
from lab.process import run, succeeds
from lab.suite import interrupted
from tests.lab.cluster import pod
from tests.lab.services import service, url_of

NETWORK = "openstack.org/network_id"
NODE, BRIDGE, SUBNET = "node2", "lab-others", "10.98.0.0/24"
FOREIGN = "lab-foreign"  # another program's port of br-int
CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": OTHER_RUNTIME},
    "handler": OTHER_RUNTIME,
}
pytestmark = [pytest.mark.lab_only, pytest.mark.complete]


@pytest.fixture
def others(cluster):
    """Let another plugin have the node's default network, for a while."""
    node = cluster.lab.nodes[NODE]
    directory = Path(node.cni_conf_dir)
    shipped = (directory / "10-kuryr.conflist").read_text()
    ipam = {"type": "host-local", "ranges": [[{"subnet": SUBNET}]], "dataDir": "/run/lab-others"}
    plugin = {"type": "bridge", "bridge": BRIDGE, "isDefaultGateway": True, "ipam": ipam}
    conflist = {"cniVersion": "1.0.0", "name": BRIDGE, "plugins": [plugin]}
    path, own = directory / interrupted.CHAIN, other_cni_conf(directory) / "10-kuryr.conflist"
    try:
        own.write_text(shipped)
        path.write_text(json.dumps(conflist))
        cluster.apply(CLASS)
        yield
        cluster.delete("pods", "--all")
    finally:
        path.unlink(missing_ok=True)
        own.unlink(missing_ok=True)
        succeeds(["ip", "link", "del", BRIDGE], netns=node.netns)


@pytest.fixture
def foreign_port(cluster):
    """A port that another program has on br-int, by its name in Neutron."""
    database = [f"{cluster.lab.bin}/ovs-vsctl", f"--db=unix:{cluster.lab.nodes[NODE].ovs_socket}"]
    ids = 'external_ids:iface-id="11111111-2222-4333-8444-555555555555"'
    interface = ["--", "set", "Interface", FOREIGN, "type=internal", ids]
    run([*database, "--may-exist", "add-port", "br-int", FOREIGN, *interface])
    yield lambda: FOREIGN in run([*database, "list-ports", "br-int"]).split()
    run([*database, "--if-exists", "del-port", "br-int", FOREIGN])


@pytest.mark.product("pods are selected")
@pytest.mark.usefixtures("others")
def test_pods_that_name_a_network_are_beside_those_of_another_plugin(cluster, foreign_port):
    network, machine = cluster.lab.cloud.networks["vms"], cluster.lab.vm1
    one, two = (pod(name, node=NODE, runtimeClassName=OTHER_RUNTIME) for name in ("one", "two"))
    one["metadata"]["annotations"] = {NETWORK: network.id}
    theirs = [pod(name, node=NODE) for name in ("theirs", "too")]
    cluster.apply(one, *theirs)
    cluster.wait_ready("theirs", "too")
    cluster.kubectl("annotate", "namespace", cluster.namespace, f"{NETWORK}={network.id}")
    cluster.apply(two)  # for which the Namespace says it
    cluster.wait_ready("one", "two", "theirs", "too")
    ips = {name: cluster.get("pod", name)["status"]["podIP"] for name in ("one", "two", "theirs")}
    assert ips.pop("theirs").startswith("10.98.0.")
    for name, other in (("one", "two"), ("two", "one")):
        cluster.until_pings(name, ips[other], machine.v4, machine.v6)
    cluster.until_vm_pings(*ips.values())
    cluster.until_pings("theirs", cluster.get("pod", "too")["status"]["podIP"])
    vifs = [
        each["status"].get("vifs")
        for each in cluster.get("kuryrports")
        if each["metadata"]["name"] in ("theirs", "too")
    ]
    assert not any(vifs)  # they run in another network, whatever their Namespace says by now
    assert foreign_port()
    cluster.delete("pod", "one", "two")
    cluster.wait_for("their ports are gone", lambda: not recorded(cluster))
    assert foreign_port()
    cluster.assert_nothing_leaks()


@pytest.fixture
def kube_proxy(cluster):
    """Let kube-proxy run on the node, as it does beside another plugin."""
    node, kubernetes = cluster.lab.nodes[NODE], cluster.lab.kubernetes
    program = binaries.ensure(["kube-proxy"])["kube-proxy"]
    options = [
        f"--kubeconfig={kubernetes.admin_kubeconfig}",
        f"--hostname-override={cluster.site.nodes[NODE].name}",
        "--proxy-mode=nftables",
        "--masquerade-all",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ]
    # it ends with this process, however that ends
    inside = ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", node.netns, str(program)]
    process = subprocess.Popen([*inside, *options], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()
        interrupted.remove_kube_proxy(node)


@pytest.mark.product("pods are selected, and Services exposed")
@pytest.mark.usefixtures("others", "kube_proxy")
def test_services_over_pods_of_either_plugin_answer(cluster):
    """By kube-proxy for Pods of the other plugin, by Octavia for those in Neutron's networks."""
    one, two = (pod(name, node=NODE, runtimeClassName=OTHER_RUNTIME) for name in ("one", "two"))
    for each in (one, two):
        each["metadata"]["annotations"] = {NETWORK: cluster.lab.cloud.networks["pods"].id}
    theirs = [pod(name, node=NODE) for name in ("theirs", "too")]
    services = [service(f"of-{name}", selector={"app": name}) for name in ("one", "theirs")]
    cluster.apply(one, two, *theirs, *services)
    cluster.wait_ready("one", "two", "theirs", "too")
    urls = {
        name: url_of(cluster.get("service", f"of-{name}")["spec"]["clusterIP"], 80)
        for name in ("one", "theirs")
    }
    assert cluster.answering("too", urls["theirs"], 1) == {"theirs"}
    assert cluster.answering("two", urls["one"], 1) == {"one"}
    assert cluster.answering("too", urls["one"], 1) == {"one"}  # the node has a way to its Pods
    cluster.delete("services", *(f"of-{name}" for name in urls))
    cluster.delete("pods", "one", "two", "theirs", "too")
    cluster.wait_for("their ports are gone", lambda: not recorded(cluster))


def recorded(cluster):
    return [each for each in cluster.get("kuryrports") if each["status"].get("vifs")]
