"""The programs die, restart and come late: Pods do not notice, and nothing leaks."""

import os
import signal

import pytest

from lab.kuryr.installation import CONTROLLER, daemon
from tests.lab.cluster import addresses, pod

ROUNDS = 1
pytestmark = [pytest.mark.lab_only, pytest.mark.product("plain")]


def pid_of(cluster, component):
    return cluster.supervisor.find(component).process.pid


def test_daemon_restart_disturbs_no_running_pod(cluster):
    cluster.apply(pod("a", node="node1"), pod("b", node="node2"))
    cluster.wait_ready("a", "b")
    cluster.wait_for("the record says so", lambda: cluster.vif("b")["active"])
    vif, reached = cluster.vif("b"), addresses(cluster.get("pod", "b"))
    cluster.until_pings("a", *reached)
    cluster.supervisor.restart(daemon("node2"))
    for address in reached:
        cluster.ping("a", address)
    assert cluster.vif("b") == vif
    cluster.delete("pod", "b")
    cluster.assert_nothing_leaks()


def test_daemon_killed_during_add_leaves_nothing_and_the_pod_starts(cluster):
    names = [f"p{number}" for number in range(4)]
    for round_ in range(ROUNDS):
        cluster.apply(*(pod(f"{name}-{round_}", node="node2") for name in names))
        first = f"p0-{round_}"
        # killed once the controller has made a port: the ADDs are under way
        cluster.wait_for(
            "a port is recorded",
            lambda name=first: (
                (cluster.find("kuryrport", name) or {}).get("status", {}).get("vifs")
            ),
        )
        os.kill(pid_of(cluster, daemon("node2")), signal.SIGKILL)
        cluster.supervisor.restart(daemon("node2"))
    pods = [f"{name}-{round_}" for name in names for round_ in range(ROUNDS)]
    cluster.wait_ready(*pods)
    taps = {cluster.vif(name)["vif_name"] for name in pods}
    mine = {name for node, name in cluster.taps() if node == "node2"}
    assert taps <= mine
    cluster.delete("pods", "--all")
    cluster.assert_nothing_leaks()
    cluster.wait_for(
        "no interface is left", lambda: not taps & {name for _node, name in cluster.taps()}
    )


def test_pod_deleted_while_the_daemon_is_down_is_let_go_when_it_is_back(cluster):
    cluster.apply(pod("one", node="node2"))
    cluster.wait_ready("one")
    vif = cluster.vif("one")
    cluster.supervisor.stop(daemon("node2"))
    try:
        cluster.delete("pod", "one")  # DEL works without the daemon
        # the node has not acknowledged: the port must stay
        assert vif["id"] in cluster.ports()
        assert cluster.find("kuryrport", "one") is not None
    finally:
        cluster.supervisor.start(daemon("node2"))
    cluster.wait_for("the KuryrPort goes", lambda: cluster.find("kuryrport", "one") is None)
    assert ("node2", vif["vif_name"]) not in cluster.taps()
    cluster.assert_nothing_leaks()


def test_pods_created_while_the_controller_is_down_start_when_it_is_back(cluster):
    os.kill(pid_of(cluster, CONTROLLER), signal.SIGKILL)
    cluster.supervisor.stop(CONTROLLER)
    try:
        cluster.apply(pod("a", node="node1"), pod("b", node="node2"))
    finally:
        cluster.supervisor.start(CONTROLLER)
    cluster.wait_ready("a", "b")


def test_controller_killed_while_ports_are_made_makes_none_twice(cluster):
    names = [f"p{number}" for number in range(8)]
    cluster.apply(*(pod(name) for name in names))
    uids = {live["metadata"]["uid"] for live in cluster.get("pods")}
    cluster.wait_for("the first port is made", lambda: devices(cluster, uids))
    os.kill(pid_of(cluster, CONTROLLER), signal.SIGKILL)
    made = set(devices(cluster, uids))
    cluster.supervisor.restart(CONTROLLER)
    cluster.wait_ready(*names)
    assert sorted(devices(cluster, made)) == sorted(made)
    # what Neutron was still at work on when it was asked for the same again is swept
    cluster.wait_for(
        "each Pod has one port", lambda: sorted(devices(cluster, uids)) == sorted(uids)
    )


def devices(cluster, uids):
    """Return whose the ports of these Pods are, one uid for each port."""
    owners = (port["device_id"] for port in cluster.ports().values())
    return [uid for uid in owners if uid in uids]
