"""kuryr-cni in a chain of the operator's own: what comes after it finds both ends of the veth."""

import json
from pathlib import Path

import pytest

from lab.process import run
from lab.suite import interrupted
from tests.lab.cluster import pod

pytestmark = [pytest.mark.lab_only, pytest.mark.product("plain")]


@pytest.fixture
def chain(cluster):
    """On node2, for a while: kuryr-cni, then tuning and bandwidth."""
    node = cluster.lab.nodes["node2"]
    shipped = json.loads((Path(node.cni_conf_dir) / "10-kuryr.conflist").read_text())
    tuning = {"type": "tuning", "sysctl": {"net.core.somaxconn": "777"}}
    bandwidth = {"type": "bandwidth", "ingressRate": 80000000, "ingressBurst": 80000000}
    plugins = [shipped["plugins"][0], tuning, bandwidth]
    path = Path(node.cni_conf_dir) / interrupted.CHAIN
    try:
        path.write_text(json.dumps(shipped | {"name": "chain", "plugins": plugins}))
        yield
        cluster.delete("pods", "--all")  # by the chain that made them
    finally:
        path.unlink()


def test_tuning_and_bandwidth_work_after_kuryr_cni(cluster, chain):
    cluster.apply(pod("one", node="node2"))
    cluster.wait_ready("one")
    assert cluster.exec("one", "cat", "/proc/sys/net/core/somaxconn").strip() == "777"
    tap = cluster.vif("one")["vif_name"]
    shaping = run(["tc", "qdisc", "show", "dev", tap], netns="node2")
    assert "tbf" in shaping
    cluster.until_pings("one", cluster.lab.vm1.v4)
