"""Two controllers on the lab: the one that stands by takes over, and kuryr-k8s says who leads."""

import json
import subprocess

from lab.kuryr import CONTROLLER, Installation
from tests.functional.cluster import pod


def leader(installation, name):
    """What `kuryr-k8s status` says at the controller of this name."""
    program = installation.root / "venv" / "bin" / "kuryr-k8s"
    files = [installation.root / "kuryr.conf", installation.root / f"{name}.conf"]
    options = [f"--config-file={path}" for path in files]
    done = subprocess.run(
        [program, "status", "--json", *options], capture_output=True, text=True, check=False
    )
    report = json.loads(done.stdout)
    assert report["problems"] == [] or done.returncode, report
    return report


def test_standby_takes_over_when_the_leader_ends_and_pods_get_their_ports(cluster):
    installation = Installation()
    standby = installation.register_controller(2)
    try:
        cluster.supervisor.start(standby)
        before = leader(installation, standby)
        assert before["leader"]
        assert not before["controller"]["leading"]
        assert leader(installation, CONTROLLER)["controller"]["leading"]
        cluster.supervisor.stop(CONTROLLER)
        try:
            cluster.wait_for(
                "the other one leads",
                lambda: leader(installation, standby)["controller"]["leading"],
                10,
            )
            cluster.apply(pod("web"))
            cluster.wait_ready("web")
        finally:
            cluster.supervisor.start(CONTROLLER)
    finally:
        cluster.supervisor.forget(standby)
    cluster.wait_for(
        "the first one leads again",
        lambda: leader(installation, CONTROLLER)["controller"]["leading"],
        10,
    )
