"""STATUS and GC as libcni sends them, with the conflist that the daemon installed."""

import json
import subprocess
from pathlib import Path

import pytest

from lab.kuryr.installation import daemon
from tests.lab.cluster import pod

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


def garbage_collection(cluster, valid):
    """GC as libcni sends it, to the plugin itself: (exit code, what it printed).

    Not by cnitool: it gives no list, for which libcni sends a DEL to whatever any runtime of
    the machine has cached.
    """
    node = cluster.lab.nodes["node2"]
    conflist = json.loads((Path(node.cni_conf_dir) / "10-kuryr.conflist").read_text())
    config = conflist["plugins"][0] | {
        "name": conflist["name"],
        "cniVersion": "1.1.0",
        "cni.dev/valid-attachments": valid,
        "cni.dev/attachments": valid,
    }
    done = subprocess.run(
        [f"{node.cni_bin_dir}/kuryr-cni"],
        env={"CNI_COMMAND": "GC", "CNI_PATH": node.cni_bin_dir},
        input=json.dumps(config),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_gc_of_a_runtime_that_lost_its_records_takes_no_running_pods_interface(cluster):
    cluster.apply(pod("one", node="node2"))
    cluster.wait_ready("one")
    cluster.until_pings("one", cluster.lab.vm1.v4)
    code, printed = garbage_collection(cluster, [])
    assert code == 0, printed
    cluster.ping("one", cluster.lab.vm1.v4)
    assert ("node2", cluster.vif("one")["vif_name"]) in cluster.taps()
