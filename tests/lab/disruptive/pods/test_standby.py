"""Two controllers on the lab: the one that stands by takes over, and kuryr-k8s says who leads."""

import pytest

from lab.kuryr.installation import CONTROLLER, Installation
from tests.lab.cluster import pod

pytestmark = [pytest.mark.lab_only, pytest.mark.product("plain")]


def leader(cluster, name):
    """What `kuryr-k8s status` says at the controller of this name."""
    code, report = cluster.kuryr_k8s("status", controller=name)
    assert report["problems"] == [] or code, report
    return report


def until_leads(cluster, name):
    """It is ready before it leads."""
    cluster.wait_for(f"{name} leads", lambda: leader(cluster, name)["controller"]["leading"])


def test_standby_takes_over_when_the_leader_ends_and_pods_get_their_ports(cluster):
    installation = Installation()
    standby = installation.register_controller(2)
    try:
        until_leads(cluster, CONTROLLER)
        cluster.supervisor.start(standby)
        before = leader(cluster, standby)
        assert before["leader"]
        assert not before["controller"]["leading"]
        assert leader(cluster, CONTROLLER)["controller"]["leading"]
        cluster.supervisor.stop(CONTROLLER)
        try:
            until_leads(cluster, standby)
            cluster.apply(pod("web"))
            cluster.wait_ready("web")
        finally:
            cluster.supervisor.start(CONTROLLER)
    finally:
        cluster.supervisor.forget(standby)
    until_leads(cluster, CONTROLLER)
