"""The same name, another Pod; the same Pod, another sandbox: no port is handed out twice."""

from lab.process import run
from tests.lab.cluster import addresses, pod


def statefulset(name, replicas):
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod("x")["spec"]},
        },
    }


def uid_of(cluster, name):
    live = cluster.find("pod", name)
    return live["metadata"]["uid"] if live else None


def test_pod_made_again_under_its_name_never_gets_the_old_ones_port(cluster):
    cluster.apply(statefulset("web", 1), pod("peer", node="node2"))
    cluster.wait_for("web-0 exists", lambda: cluster.find("pod", "web-0"))
    cluster.wait_ready("web-0", "peer")
    seen = []
    for _ in range(10):
        uid = uid_of(cluster, "web-0")
        vif = cluster.vif("web-0")
        assert cluster.get("kuryrport", "web-0")["spec"]["podUid"] == uid
        assert vif["id"] not in seen
        seen.append(vif["id"])
        cluster.kubectl("delete", "pod", "web-0", "--wait=false")
        cluster.wait_for(
            "another web-0", lambda old=uid: uid_of(cluster, "web-0") not in (None, old)
        )
        cluster.wait_ready("web-0")
        cluster.until_pings("peer", *addresses(cluster.get("pod", "web-0")))
    assert set(seen) & set(cluster.ports()) == set()
    cluster.assert_nothing_leaks()


def test_force_deleted_pod_keeps_its_port_until_its_node_let_go(cluster):
    cluster.apply(pod("one", node="node1"))
    cluster.wait_ready("one")
    tap = cluster.vif("one")["vif_name"]
    cluster.kubectl("delete", "pod", "one", "--force", "--grace-period=0")
    cluster.wait_for("the KuryrPort goes", lambda: cluster.find("kuryrport", "one") is None)
    assert ("node1", tap) not in cluster.taps()
    cluster.assert_nothing_leaks()


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
    assert vif["id"] not in cluster.ports()


def test_namespace_deleted_with_running_pods_leaves_nothing(cluster):
    cluster.apply(pod("a", node="node1"), pod("b", node="node2"))
    cluster.wait_ready("a", "b")
    ids = {cluster.vif("a")["id"], cluster.vif("b")["id"]}
    cluster.delete("namespace", cluster.namespace)
    cluster.assert_nothing_leaks()
    assert not ids & set(cluster.ports())
    cluster.kubectl("create", "namespace", cluster.namespace)  # for the fixture to delete


def test_pod_whose_sandbox_was_killed_comes_back_with_its_port(cluster):
    cluster.apply(pod("one", node="node1"), pod("peer", node="node2"))
    cluster.wait_ready("one", "peer")
    vif, uid = cluster.vif("one"), uid_of(cluster, "one")
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
    assert uid_of(cluster, "one") == uid


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
