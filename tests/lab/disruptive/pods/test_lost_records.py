"""What was taken away by hand, or with a Node, is made again or given back, by permitted means."""

import contextlib
import json

import pytest

from lab.kuryr.installation import CONTROLLER, daemon, kubectl
from lab.suite import interrupted
from tests.lab.cluster import pod
from tests.lab.disruptive.pods.cni_requests import garbage_collection

HOST_ID = "openstack.org/kuryr-host-id"
NODE = "nowhere"
FREE = json.dumps({"metadata": {"finalizers": None}})
pytestmark = [pytest.mark.lab_only, pytest.mark.product("plain")]


@contextlib.contextmanager
def stopped(cluster, *components):
    for component in components:
        cluster.supervisor.stop(component)
    try:
        yield
    finally:
        for component in components:
            cluster.supervisor.start(component)


@pytest.fixture
def node_without_daemon(cluster):
    """A Node whose kubelet and daemon never run."""
    metadata = {"name": NODE, "labels": {interrupted.RUN: interrupted.this_run()}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    kubectl(cluster.lab, "create", "--filename=-", stdin=json.dumps(node))
    yield NODE
    kubectl(cluster.lab, "delete", "node", NODE, "--ignore-not-found")


def forget(cluster, name):
    """Nobody but its kubelet could say that the Pod has ended."""
    cluster.kubectl("delete", "pod", name, "--force", "--grace-period=0")
    cluster.wait_for("the KuryrPort goes", lambda: cluster.find("kuryrport", name) is None)


def test_lease_that_is_gone_is_made_again(cluster):
    lease = ("-n", "kube-system", "lease/kuryr-k8s-controller")
    with stopped(cluster, CONTROLLER):
        kubectl(cluster.lab, "delete", *lease)
    holder = ("get", *lease, "--ignore-not-found", "-o", "jsonpath={.spec.holderIdentity}")
    cluster.wait_for("somebody holds it", lambda: kubectl(cluster.lab, *holder))


def test_daemon_publishes_its_nodes_name_in_neutron_again(cluster):
    with stopped(cluster, daemon("node2")):
        kubectl(cluster.lab, "annotate", "node", "node2", f"{HOST_ID}-")
    chassis = cluster.lab.nodes["node2"].chassis
    cluster.wait_for(
        "the annotation is back",
        lambda: cluster.get("node", "node2")["metadata"]["annotations"].get(HOST_ID) == chassis,
    )


def test_pod_on_a_node_without_daemon_says_so_and_can_go(cluster, node_without_daemon):
    cluster.apply(pod("one", node=NODE))
    cluster.wait_for(
        "an Event tells what is missing",
        lambda: "KuryrNodeNotReady" in {reason for reason, _message in cluster.events("one")},
    )
    forget(cluster, "one")


def test_ports_of_a_node_that_is_gone_are_given_back(cluster, node_without_daemon):
    kubectl(cluster.lab, "annotate", "node", NODE, f"{HOST_ID}=chassis2")
    cluster.apply(pod("one", node=NODE))
    cluster.wait_for(
        "the port is made",
        lambda: (cluster.find("kuryrport", "one") or {}).get("status", {}).get("vifs"),
    )
    port = cluster.vif("one")["id"]
    kubectl(cluster.lab, "delete", "node", NODE)
    forget(cluster, "one")
    assert port not in cluster.ports()


def test_gc_takes_the_interface_that_no_kuryrport_stands_for(cluster):
    cluster.apply(pod("one", node="node2"))
    cluster.wait_ready("one")
    tap = cluster.vif("one")["vif_name"]
    with stopped(cluster, CONTROLLER, daemon("node2")):
        cluster.kubectl("patch", "kuryrport", "one", "--type=merge", "-p", FREE)
        cluster.kubectl("delete", "kuryrport", "one")
        cluster.supervisor.start(daemon("node2"))
        assert ("node2", tap) in cluster.taps()
        code, printed = garbage_collection(cluster, [])
        assert code == 0, printed
        assert ("node2", tap) not in cluster.taps()
