"""hostPort by the reference plugin portmap, chained after kuryr-cni as the conflist is shipped."""

import pytest

from lab.process import run
from tests.lab.cluster import pod

pytestmark = pytest.mark.lab_only


def test_host_port_is_reached_from_the_other_node_and_from_outside(cluster):
    port = {"containerPort": 8080, "hostPort": 18080}
    cluster.apply(pod("web", node="node1", container={"ports": [port]}))
    cluster.wait_ready("web")
    node = cluster.lab.nodes["node1"]
    url = f"http://{node.underlay_v4}:18080/"
    curl = ["curl", "-fsS", "--max-time", "10", url]
    for netns in ("node2", cluster.lab.outside.netns):
        cluster.wait_for(
            f"it answers {netns}",
            lambda netns=netns: run(curl, netns=netns, check=False).strip() == "web",
        )
