"""A master boots under systemd, by the units as they are shipped.

The processor is emulated: the programs need a multiple of their usual time to start. `pytest -rP`
prints what the units say in each boot.
"""

import json
import time

import pytest

from lab.paths import REPOSITORY, Paths
from tests.lab.machine.boot import master
from tests.lab.machine.boot.cloud import CloudOutside
from tests.lab.machine.boot.machine import LONG, Machine

pytestmark = [pytest.mark.lab_only, pytest.mark.complete, pytest.mark.timeout(3 * LONG)]
_, DAEMON = master.KURYR
CONFLIST = f"{master.CNI_CONF}/10-kuryr.conflist"
STATUS = f"""\
printf '{{"cniVersion":"1.1.0","name":"kuryr","type":"kuryr-cni",\
"kuryr_socket":"/run/kuryr/cni.sock","kuryr_spool":"/var/lib/kuryr/spool"}}' |
CNI_COMMAND=STATUS CNI_PATH=/opt/cni/bin {master.PLUGIN}
"""
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {
        "nodeName": master.NAME,
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "web",
                "image": master.BUSYBOX,
                "imagePullPolicy": "Never",
                "command": ["httpd", "-f", "-h", "/www"],
            }
        ],
    },
}


@pytest.fixture(scope="module")
def machine():
    """The machine, switched off for good at the end."""
    paths = Paths.from_environment()
    with CloudOutside() as cloud:
        made = Machine(paths, paths.state / "boot", cloud)
        made.build()
        try:
            yield made
        finally:
            print(made.journal(*master.KURYR, "kubelet"))  # of a case that failed, too
            made.cut_power()


@pytest.fixture(scope="module")
def installed(machine):
    """The machine after its first boot, in which the cluster was installed; what it said."""
    machine.power_on()
    for name in master.KURYR:
        tells = f"systemctl show --property StatusText {name} | grep -q =."
        machine.until(f"{name} is started", f"systemctl is-active {name} && {tells}")
    before = {name: machine.unit(name) for name in master.KURYR}
    machine.until("the API server serves", f"{master.KUBECTL} get --raw /readyz")
    for part in ("crds", "rbac"):
        machine.kubectl("apply", "-f", f"{REPOSITORY}/etc/{part}")
    machine.kubectl(
        "create", "clusterrolebinding", "kuryr-daemon-kubelets",
        "--clusterrole=kuryr-daemon", "--group=system:nodes",
    )  # fmt: skip
    works(machine)
    return before


def works(machine):
    """Wait until the node is Ready, the CNI answers, and both programs work."""
    started = time.monotonic()
    machine.until("the CNI configuration is there", f"test -e {CONFLIST}")
    machine.until(
        "the node is Ready",
        f"{master.KUBECTL} wait --for=condition=Ready --timeout=1s node/{master.NAME}",
    )
    machine.until("the CNI answers", STATUS)
    for name in master.KURYR:
        machine.until(f"{name} works", f"systemctl status {name} | grep -q 'Status: .working'")
        assert machine.unit(name)["ActiveState"] == "active"
    print(f"works {time.monotonic() - started:.0f} s later")
    print(machine.journal(*master.KURYR))


def create_pod(machine):
    """Create the Pod, unless an earlier case has."""
    machine.write("/root/pod.json", json.dumps(POD))
    machine.kubectl("apply", "-f", "/root/pod.json")


def pod_runs(machine):
    """Wait until the Pod runs; its address."""
    wait = f"{master.KUBECTL} wait --for=condition=Ready --timeout=1s pod/web"
    machine.until("the Pod is Ready", wait)
    address = machine.kubectl("get", "pod", "web", "-o", "jsonpath={.status.podIP}")
    port = json.loads(machine.kubectl("get", "kuryrport", "web", "-o", "json"))
    assert address in json.dumps(port["status"]["vifs"])
    return address


def test_cold_boot_of_a_single_master_whose_api_server_is_a_static_pod(machine, installed):
    """Neither the API server nor the Node was there when the units were started."""
    for state in installed.values():
        assert state["ActiveState"] == "active"
        assert state["NRestarts"] == "0"
        assert state["StatusText"].startswith("waiting for Kubernetes: ")
    create_pod(machine)
    assert pod_runs(machine)


def test_power_loss_of_everything(machine, installed):
    create_pod(machine)
    before = pod_runs(machine)
    machine.cut_power()
    machine.power_on()
    works(machine)
    assert pod_runs(machine) == before


def test_fresh_node_that_has_no_node_object(machine, installed):
    """One transaction starts both units, as a boot does; the API server's Pod lives on."""
    machine.kubectl("delete", "pod", "web", "--ignore-not-found", "--wait")
    machine.run(f"systemctl stop kubelet {DAEMON}")
    machine.kubectl("delete", "node", master.NAME)
    machine.run(f"rm -rf {CONFLIST} /var/lib/kuryr")
    machine.run(f"systemctl start {DAEMON} kubelet", seconds=LONG)
    works(machine)


def test_reload_keeps_the_processes_and_stop_ends_them_cleanly(machine, installed):
    before = {name: machine.unit(name)["MainPID"] for name in master.KURYR}
    machine.run("printf '[DEFAULT]\\ndebug = true\\n' >> /etc/kuryr/kuryr.conf")
    for name in master.KURYR:
        machine.run(f"systemctl reload {name}")
        log = f"journalctl -q -b -u {name} | grep 'options that changed: debug'"
        machine.until(f"{name} has read its configuration again", log)
    assert {name: machine.unit(name)["MainPID"] for name in master.KURYR} == before
    for name in master.KURYR:
        machine.run(f"systemctl stop {name}")
        state = machine.unit(name)
        assert (state["ActiveState"], state["Result"]) == ("inactive", "success")
    machine.run(f"systemctl start {' '.join(master.KURYR)}", seconds=LONG)
    works(machine)


def test_watchdog_kills_a_daemon_that_hangs_and_systemd_starts_it_again(machine, installed):
    before = machine.unit(DAEMON)
    machine.run(f"kill -STOP {before['MainPID']}")
    killed = f"journalctl -q -b -u {DAEMON} | grep 'Watchdog timeout (limit 1min)'"
    machine.until("the watchdog has noticed", killed)
    restarted = f"test $(systemctl show --value -p NRestarts {DAEMON}) != {before['NRestarts']}"
    machine.until("systemd has started it again", restarted)
    works(machine)
    assert machine.unit(DAEMON)["MainPID"] != before["MainPID"]
    assert "Fatal Python error: Aborted" in machine.journal(DAEMON)
