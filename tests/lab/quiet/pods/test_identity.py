"""The same Pod, another sandbox; a Pod whose records others remove: it keeps its port."""

import pytest

from lab.process import run
from tests.lab.cluster import addresses, pod


def test_kuryrport_deleted_by_hand_under_a_running_pod_disturbs_nothing(cluster):
    cluster.apply(pod("one", node="node1"), pod("peer", node="node2"))
    cluster.wait_ready("one", "peer")
    vif, reached = cluster.vif("one"), addresses(cluster.get("pod", "one"))
    cluster.until_pings("peer", *reached)
    cluster.kubectl("delete", "kuryrport", "one", "--wait=false")
    for address in reached:
        cluster.ping("peer", address)
    kept = cluster.get("kuryrport", "one")
    assert "deletionTimestamp" in kept["metadata"]
    assert vif["id"] in cluster.ports()
    cluster.delete("pod", "one")
    cluster.wait_for("the KuryrPort goes", lambda: cluster.find("kuryrport", "one") is None)
    cluster.wait_for("the port is released", lambda: cluster.is_released(vif["id"]))


def test_namespace_deleted_with_running_pods_leaves_nothing(cluster):
    cluster.apply(pod("a", node="node1"), pod("b", node="node2"))
    cluster.wait_ready("a", "b")
    ids = {cluster.vif("a")["id"], cluster.vif("b")["id"]}
    cluster.delete("namespace", cluster.namespace)
    cluster.assert_nothing_leaks()
    assert all(map(cluster.is_released, ids))
    cluster.create_namespace()  # for the fixture to delete


@pytest.mark.lab_only
def test_pod_whose_sandbox_was_killed_comes_back_with_its_port(cluster):
    cluster.apply(pod("one", node="node1"), pod("peer", node="node2"))
    cluster.wait_ready("one", "peer")
    vif, uid = cluster.vif("one"), cluster.uid("one")
    before = addresses(cluster.get("pod", "one"))
    sandbox = sandboxes(cluster, "node1", uid)
    assert len(sandbox) == 1
    ctr(cluster, "node1", "tasks", "kill", "--signal", "SIGKILL", *sandbox)
    cluster.wait_for(
        "another sandbox runs", lambda: set(sandboxes(cluster, "node1", uid)) - set(sandbox)
    )
    cluster.wait_ready("one")  # as it may be still

    def has_its_addresses():
        live = cluster.get("pod", "one")
        return "podIPs" in live["status"] and addresses(live) == before

    cluster.wait_for("the Pod has its addresses again", has_its_addresses)
    cluster.until_pings("peer", *before)
    assert cluster.vif("one")["id"] == vif["id"]
    assert cluster.uid("one") == uid


def ctr(cluster, node, *arguments):
    socket = cluster.lab.nodes[node].containerd_socket
    return run([f"{cluster.lab.bin}/ctr", "-a", socket, "-n", "k8s.io", *arguments])


def sandboxes(cluster, node, uid):
    """Ids of the Pod's living sandboxes."""
    found = ctr(
        cluster,
        node,
        "containers",
        "list",
        "--quiet",
        f'labels."io.kubernetes.pod.uid"=={uid},labels."io.cri-containerd.kind"==sandbox',
    )
    running = ctr(cluster, node, "tasks", "list")
    alive = {line.split()[0] for line in running.splitlines() if "RUNNING" in line}
    return [identity for identity in found.split() if identity in alive]
