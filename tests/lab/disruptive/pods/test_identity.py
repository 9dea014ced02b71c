"""The same name, another Pod: without pools no port is handed out twice."""

import pytest

from tests.lab.cluster import addresses, pod

ROUNDS = 3
pytestmark = [pytest.mark.lab_only, pytest.mark.product("plain")]


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


def test_pod_made_again_under_its_name_never_gets_the_old_ones_port(cluster):
    cluster.apply(statefulset("web", 1), pod("peer", node="node2"))
    cluster.wait_for("web-0 exists", lambda: cluster.find("pod", "web-0"))
    cluster.wait_ready("web-0", "peer")
    seen = []
    for _ in range(ROUNDS):
        uid = cluster.uid("web-0")
        vif = cluster.vif("web-0")
        assert cluster.get("kuryrport", "web-0")["spec"]["podUid"] == uid
        assert vif["id"] not in seen
        seen.append(vif["id"])
        cluster.kubectl("delete", "pod", "web-0", "--wait=false")
        cluster.wait_for("another web-0", lambda old=uid: cluster.uid("web-0") not in (None, old))
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
