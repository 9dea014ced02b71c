"""The complete path with everything in Pods: the image, the manifests, and what they run."""

import shutil
from pathlib import Path

import pytest

from lab.kuryr.installation import Installation
from lab.lifecycle.lab import Lab
from lab.progress import Progress
from tests.lab.cluster import addresses, pod

NODE, OTHER = "node1", "node2"
WORKLOADS = ("kuryr-controller", "kuryr-daemon")
pytestmark = [pytest.mark.lab_only, pytest.mark.complete]


@pytest.fixture
def in_pods(configured):
    """Let the controller and the daemons run as Pods, and as processes afterwards."""
    in_pods = Installation(progress=Progress()).in_pods
    processes = in_pods.enter()
    yield in_pods
    in_pods.leave(processes)


@pytest.fixture
def cluster_in_pods(in_pods, request):
    """A namespace of one's own, which is gone before the product's Pods are."""
    return request.getfixturevalue("cluster")


def test_pods_have_their_network_from_a_product_that_runs_in_pods(cluster_in_pods, in_pods):
    cluster = cluster_in_pods
    own = cluster.get("pods", namespace="kube-system")
    names = [live["metadata"]["labels"].get("app") for live in own]
    assert [names.count(workload) for workload in WORKLOADS] == [1, len(cluster.lab.nodes)]

    command = ("daemonset/kuryr-controller", "--", "kuryr-k8s", "pools", "list")
    assert cluster.kubectl("--namespace", "kube-system", "exec", *command)

    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    cluster.apply(pod("web", node=NODE), pod("client", node=OTHER), service)
    cluster.wait_ready("web", "client")
    assert cluster.vif("web")["id"] in cluster.ports()
    cluster.until_pings("client", *addresses(cluster.get("pod", "web")))
    address = cluster.get("service", "web")["spec"]["clusterIP"]
    assert cluster.answering("client", f"http://{address}/", 1) == {"web"}

    replace_directory_of_open_vswitch(cluster.lab.nodes[NODE])
    assert_new_pod_is_connected(cluster, "after-open-vswitch")

    for workload in WORKLOADS:
        restart = ("rollout", "restart", f"daemonset/{workload}")
        cluster.kubectl("--namespace", "kube-system", *restart)
    in_pods.await_rollout()
    assert_new_pod_is_connected(cluster, "after-rollout")
    cluster.until_pings("client", *addresses(cluster.get("pod", "web")))
    assert cluster.answering("client", f"http://{address}/", 1) == {"web"}


def replace_directory_of_open_vswitch(node):
    """Restart Open vSwitch in a new directory of the same name, as its packages may do."""
    lab = Lab()
    switch = (f"ovsdb-{node.name}", f"ovs-vswitchd-{node.name}")
    for name in reversed(switch):
        lab.supervisor.stop(name)
    directory = Path(node.ovs_rundir)
    former = directory.with_name("ovs-former")
    directory.rename(former)
    directory.mkdir()
    for path in former.iterdir():
        path.rename(directory / path.name)
    shutil.rmtree(former)
    lab.restart(list(switch))


def assert_new_pod_is_connected(cluster, name):
    cluster.apply(pod(name, node=NODE))
    cluster.wait_ready(name)
    cluster.until_pings(name, *addresses(cluster.get("pod", "client")))
