"""NeutronPorts on the lab: Pods beside a virtual machine, with addresses that outlive them."""

import contextlib
import json

import pytest

from lab.kuryr.installation import daemon
from tests.kit.kube.objects import (
    make_network_attachment,
    make_neutron_port,
    make_neutron_port_pool,
)
from tests.lab.cluster import addresses, pod

NAME, STICKY = "openstack.org/neutron_port", "openstack.org/sticky"
NETWORK, GROUPS = "openstack.org/network_id", "openstack.org/security_group_ids"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
pytestmark = [pytest.mark.lab_only, pytest.mark.product("neutron ports")]


def beside(cluster, name, **spec):
    """A NeutronPort beside the virtual machine, in its group."""
    cloud = cluster.lab.cloud
    return make_neutron_port(
        name,
        cluster.namespace,
        network=cloud.networks["vms"].id,
        securityGroups=[cloud.security_groups["vms"]],
        **spec,
    )


def until(cluster, name, phase):
    """Wait until a NeutronPort is in a phase; its status."""

    def status():
        return (cluster.find("neutronport", name) or {}).get("status") or {}

    cluster.wait_for(f"{name} is {phase}", lambda: status().get("phase") == phase)
    return status()


def ips(status):
    return [each["ipAddress"] for each in status["addresses"]]


def test_pods_have_the_port_of_an_object_one_after_another(cluster):
    machine = cluster.lab.vm1
    fixed = f"{cluster.lab.cloud.networks['vms'].v4.cidr.rpartition('.')[0]}.121"
    cluster.apply(beside(cluster, "db", fixedIPs=[fixed]))
    made = until(cluster, "db", "Available")
    assert fixed in ips(made)
    for node in list(cluster.lab.nodes)[:2]:
        asking = pod("db", node=node)
        asking["metadata"]["annotations"] = {NAME: "db"}
        cluster.apply(asking)
        cluster.wait_ready("db")
        assert until(cluster, "db", "Bound")["boundTo"]["node"] == cluster.site.nodes[node].name
        shown = cluster.exec("db", "ip", "address", "show", "eth0")
        assert f" {fixed}/" in shown
        assert made["macAddress"] in shown
        cluster.until_pings("db", machine.v4)
        cluster.until_vm_pings(*ips(made))
        print(cluster.kubectl("get", "neutronports", "--output=wide"))
        cluster.delete("pod", "db")
        assert until(cluster, "db", "Available")["portId"] == made["portId"]
    cluster.delete("neutronport", "db")
    assert not cluster.neutron.get("/ports", id=made["portId"])["ports"]


def test_port_of_an_ipam_claim_is_that_of_one_pod_after_another(cluster):
    network = cluster.lab.cloud.networks["vms"]
    claim = {
        "apiVersion": "k8s.cni.cncf.io/v1alpha1",
        "kind": "IPAMClaim",
        "metadata": {"name": "vm.storage"},
        "spec": {"network": "storage", "interface": ""},
    }
    cluster.apply(
        make_network_attachment("storage", cluster.namespace, kuryr={"subnetId": network.v4.id}),
        claim,
    )
    element = {"name": "storage", "interface": "net1", "ipam-claim-reference": "vm.storage"}
    told = []
    for node in list(cluster.lab.nodes)[:2]:
        asking = pod(f"vm-{node}", node=node)
        asking["metadata"]["annotations"] = {NETWORKS: json.dumps([element])}
        cluster.apply(asking)
        cluster.wait_ready(f"vm-{node}")

        def owned(name=f"vm-{node}"):
            status = cluster.get("ipamclaim", "vm.storage").get("status") or {}
            return (status.get("ownerPod") or {}).get("name") == name

        cluster.wait_for("the claim tells its Pod", owned)
        (address,) = cluster.get("ipamclaim", "vm.storage")["status"]["ips"]
        told.append(address)
        assert f" {address} " in cluster.exec(f"vm-{node}", "ip", "address", "show", "net1")
        cluster.until_vm_pings(address.partition("/")[0])
        cluster.delete("pod", f"vm-{node}")
    assert len(set(told)) == 1
    cluster.delete("ipamclaim", "vm.storage")
    cluster.wait_for("it goes with its claim", lambda: not cluster.get("neutronports"))


def test_pods_have_ports_that_a_pool_has_ready(cluster):
    cloud = cluster.lab.cloud
    spec = {"network": cloud.networks["vms"].id, "securityGroups": [cloud.security_groups["vms"]]}
    pool = make_neutron_port_pool(
        "ready", cluster.namespace, min=2, max=2, template={"spec": spec}
    )
    cluster.apply(pool)
    until_counted(cluster, available=2, bound=0)
    ready = {each["metadata"]["name"] for each in cluster.get("neutronports")}
    labels = "openstack.org/neutron-port-pool=ready"
    for number, node in enumerate(list(cluster.lab.nodes)[:2]):
        asking = pod(f"pod{number}", node=node)
        asking["metadata"]["annotations"] = {NAME: labels}
        cluster.apply(asking)
    cluster.wait_ready("pod0", "pod1")
    until_counted(cluster, available=2, bound=2)
    print(cluster.kubectl("get", "neutronportpools,neutronports"))
    for name in ("pod0", "pod1"):
        cluster.until_vm_pings(*addresses(cluster.get("pod", name)))
    assert len(ready & bound(cluster)) == 2
    cluster.delete("pods", "pod0", "pod1")
    until_counted(cluster, available=2, bound=0)
    cluster.wait_for("what is too many goes", lambda: len(cluster.get("neutronports")) == 2)
    cluster.delete("neutronportpool", "ready")
    cluster.wait_for("they go with it", lambda: not cluster.get("neutronports"))


def until_counted(cluster, **counts):
    """Wait until the pool says that it has so many NeutronPorts."""

    def counted():
        status = cluster.get("neutronportpool", "ready").get("status") or {}
        return counts.items() <= status.items()

    cluster.wait_for(f"the pool has {counts}", counted)


def bound(cluster):
    """The names of the NeutronPorts that Pods have."""
    found = cluster.get("neutronports")
    return {each["metadata"]["name"] for each in found if each["status"]["phase"] == "Bound"}


def stateful(cluster, replicas):
    """A StatefulSet whose Pods keep their ports, beside the virtual machine."""
    template = pod("web")
    cloud = cluster.lab.cloud
    template["metadata"]["annotations"] = {
        NETWORK: cloud.networks["vms"].id,
        GROUPS: cloud.security_groups["vms"],
        STICKY: "true",
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "serviceName": "web",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": template["metadata"],
                "spec": template["spec"] | {"affinity": on_servers(cluster)},
            },
        },
    }


def on_servers(cluster):
    """The affinity to nodes that are no virtual machines."""
    servers = [cluster.site.nodes[name].name for name in cluster.lab.nodes]
    wanted = {"key": "kubernetes.io/hostname", "operator": "In", "values": servers}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def live(cluster, name, uid):
    """The Pod of that name if it is Ready and not the one of that uid."""
    found = cluster.find("pod", name)
    if found is None or found["metadata"]["uid"] == uid:
        return None
    conditions = found["status"].get("conditions") or ()
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return found if is_ready else None


def until_replaced(cluster, name, old):
    """Wait until another Pod of that name is Ready; its node, and its addresses."""
    cluster.wait_for(f"{name} is replaced", lambda: live(cluster, name, old))
    found = cluster.get("pod", name)
    return found["spec"]["nodeName"], addresses(found)


@contextlib.contextmanager
def lost(cluster, node):
    """A node that is gone: nobody answers for it, and an operator has said so."""
    programs = (f"kubelet-{node}", daemon(node))
    try:
        for program in programs:
            cluster.supervisor.kill(program)
        cluster.kubectl("taint", "nodes", node, OUT_OF_SERVICE)
        yield
    finally:
        cluster.kubectl("taint", "nodes", node, f"{OUT_OF_SERVICE}-")
        for program in programs:
            cluster.supervisor.start(program)
        cluster.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=120s")


@pytest.mark.complete
def test_pods_of_a_statefulset_keep_their_addresses_wherever_they_run(cluster):
    cluster.apply(stateful(cluster, 2))
    names = ("web-0", "web-1")
    cluster.wait_for("both are there", lambda: all(cluster.find("pod", name) for name in names))
    cluster.wait_ready(*names)
    kept = {name: addresses(cluster.get("pod", name)) for name in names}
    macs = {name: until(cluster, name, "Bound")["macAddress"] for name in names}
    cluster.until_vm_pings(*kept["web-0"], *kept["web-1"])

    old = cluster.uid("web-0")
    cluster.delete("pod", "web-0")
    node, again = until_replaced(cluster, "web-0", old)
    assert again == kept["web-0"], "deleted"

    old = cluster.uid("web-0")
    cluster.kubectl("cordon", node)
    try:
        cluster.delete("pod", "web-0")
        moved, again = until_replaced(cluster, "web-0", old)
    finally:
        cluster.kubectl("uncordon", node)
    assert moved != node
    assert again == kept["web-0"], "moved"
    cluster.until_vm_pings(*again)

    old, where = cluster.uid("web-1"), cluster.get("pod", "web-1")["spec"]["nodeName"]
    with lost(cluster, where):
        cluster.kubectl("delete", "pod", "web-1", "--force", "--grace-period=0", "--wait=false")
        moved, again = until_replaced(cluster, "web-1", old)
        assert moved != where
        assert again == kept["web-1"], "its node was lost"
        assert macs["web-1"] in cluster.exec("web-1", "ip", "address", "show", "eth0")
        cluster.until_vm_pings(*again)
    print(cluster.kubectl("get", "neutronports", "--output=wide"))
    cluster.delete("statefulset", "web")
    for name in names:
        assert until(cluster, name, "Available")["reservedFor"] == name
    cluster.delete("neutronports", "--all")
    cluster.wait_for("nothing is left", lambda: not cluster.get("neutronports"))
