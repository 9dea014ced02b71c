"""STATUS and GC as libcni sends them, with the conflist that the daemon installed."""

import subprocess

import pytest

from lab.kuryr.installation import daemon
from tests.lab.cluster import pod
from tests.lab.disruptive.pods.cni_requests import garbage_collection

pytestmark = [pytest.mark.lab_only, pytest.mark.product("plain")]


def cnitool(cluster, command):
    """(exit code, what it printed) of a command about node2's network."""
    node = cluster.lab.nodes["node2"]
    done = subprocess.run(
        [f"{cluster.lab.bin}/cnitool", command, "kuryr", f"/run/netns/{node.netns}"],
        env={"NETCONFPATH": node.cni_conf_dir, "CNI_PATH": node.cni_bin_dir, "PATH": "/usr/sbin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_status_speaks_of_the_daemon(cluster):
    assert cnitool(cluster, "status")[0] == 0
    cluster.supervisor.stop(daemon("node2"))
    try:
        code, printed = cnitool(cluster, "status")
        assert code != 0
        assert "kuryr-k8s-daemon cannot be reached" in printed
    finally:
        cluster.supervisor.start(daemon("node2"))
    assert cnitool(cluster, "status")[0] == 0


def test_gc_of_a_runtime_that_lost_its_records_takes_no_running_pods_interface(cluster):
    cluster.apply(pod("one", node="node2"))
    cluster.wait_ready("one")
    cluster.until_pings("one", cluster.lab.vm1.v4)
    code, printed = garbage_collection(cluster, [])
    assert code == 0, printed
    cluster.ping("one", cluster.lab.vm1.v4)
    assert ("node2", cluster.vif("one")["vif_name"]) in cluster.taps()
