"""Pools of the subports of a node that is a virtual machine."""

import pytest

from lab.churn.leftovers import POOL_TAG
from lab.kuryr.installation import Installation
from lab.progress import Progress
from tests.lab.cluster import addresses, machine, pod

pytestmark = pytest.mark.lab_only


def test_pod_on_the_machine_takes_an_available_subport_and_returns_it(cluster):
    pools, worker = Installation(progress=Progress(quiet=True)).pools, machine(cluster.lab)
    cluster.apply(pod("first", node=worker.name), pod("peer", node="node2"))
    cluster.wait_ready("first", "peer")
    port = cluster.vif("first")["id"]
    assert POOL_TAG in cluster.ports()[port]["tags"]
    assert pools.ports()[port] == "in_use"
    cluster.until_pings("first", *addresses(cluster.get("pod", "peer")))
    cluster.delete("pod", "first")
    cluster.wait_for("the port is back", lambda: pools.ports()[port] == "available")
    before = {known for known, state in pools.ports().items() if state == "available"}
    cluster.apply(pod("second", node=worker.name))
    cluster.wait_ready("second")
    assert cluster.vif("second")["id"] in before
    cluster.until_pings("second", *addresses(cluster.get("pod", "peer")))
