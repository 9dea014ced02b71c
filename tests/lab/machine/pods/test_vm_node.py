"""A node that is a virtual machine behind a trunk port: `lab up --vm 1`."""

import pytest

from lab.kuryr.installation import daemon
from lab.process import run
from tests.lab.cluster import addresses, machine, pod

RECORDS = "/run/lab/run/kuryr/vlan"
pytestmark = pytest.mark.lab_only


@pytest.fixture
def worker(cluster):
    return machine(cluster.lab)


def inside(worker, *command, timeout=120):
    """Run a command in the machine; return what it printed."""
    return run([*worker.command, *command], timeout=timeout)


def records(worker):
    return inside(worker, "/bin/ls", RECORDS).split()


def trunk(cluster, worker):
    """Return the subports of the machine's trunk: {port id: VLAN id}."""
    found = cluster.neutron.get(f"/trunks/{worker.trunk_id}")["trunk"]
    return {each["port_id"]: each["segmentation_id"] for each in found["sub_ports"]}


def test_pods_on_the_machine_reach_those_of_other_nodes_and_vms_and_are_reached(cluster, worker):
    cluster.apply(
        pod("a", node="node1"),
        pod("b", node="node2"),
        pod("c", node=worker.name),
        pod("d", node=worker.name),
    )
    cluster.wait_ready("a", "b", "c", "d")
    print(cluster.kubectl("get", "pods", "-o", "wide"))
    found = {name: addresses(cluster.get("pod", name)) for name in "abcd"}
    vm = cluster.lab.vm1
    cluster.until_pings("c", *found["a"], *found["b"], *found["d"], vm.v4, vm.v6)
    for source in "ab":
        cluster.until_pings(source, *found["c"])
    cluster.until_vm_pings(*found["c"])
    for source, target in (("a", "c"), ("c", "b")):
        url = f"http://{found[target][0]}:8080/"
        assert cluster.answering(source, url, 1) == {target}


@pytest.mark.complete
def test_pod_has_a_subport_of_the_machines_trunk_and_gives_it_back(cluster, worker):
    cluster.apply(pod("one", node=worker.name))
    cluster.wait_ready("one")
    vif = cluster.vif("one")
    assert trunk(cluster, worker)[vif["id"]] == vif["vlan_id"]
    shown = cluster.exec("one", "ip", "addr", "show", "eth0")
    assert vif["address"] in shown
    assert "mtu 1442" in shown
    cluster.wait_for("the record says so", lambda: cluster.vif("one")["active"])
    assert len(records(worker)) == 1
    cluster.delete("pod", "one")
    cluster.wait_for("the KuryrPort goes", lambda: cluster.find("kuryrport", "one") is None)
    cluster.wait_for("the port is released", lambda: cluster.is_released(vif["id"]))
    assert not records(worker)


@pytest.mark.complete
def test_pods_outlive_a_killed_daemon_which_knows_them_again(cluster, worker):
    cluster.apply(pod("one", node=worker.name))
    cluster.wait_ready("one")
    cluster.wait_for("the record says so", lambda: cluster.vif("one")["active"])
    cluster.until_pings("one", cluster.lab.vm1.v4)
    cluster.supervisor.kill(daemon(worker.name))
    cluster.ping("one", cluster.lab.vm1.v4)
    cluster.supervisor.start(daemon(worker.name))
    cluster.ping("one", cluster.lab.vm1.v4)
    assert cluster.vif("one")["active"]
    cluster.delete("pod", "one")
    cluster.wait_for("the KuryrPort goes", lambda: cluster.find("kuryrport", "one") is None)
    assert not records(worker)
