"""Secure containers on a node that is a virtual machine take over the interface of their Pod."""

import json

import pytest

from lab.kuryr.installation import SECURE
from lab.process import run, succeeds
from tests.lab.cluster import addresses, pod
from tests.lab.machine.pods.modules import running

RECORDS = "/run/lab/run/kuryr/vlan"
CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": SECURE},
    "handler": "runc",  # the interface is what matters here
}
pytestmark = [pytest.mark.lab_only, pytest.mark.complete]


@pytest.fixture
def secure(cluster):
    cluster.apply(CLASS)
    yield
    cluster.delete("pods", "--all")
    cluster.delete("runtimeclass", SECURE)


def netns_of(cluster, worker, name):
    """The path of a Pod's network namespace on the machine."""
    port_id = cluster.vif(name)["id"]
    files = run([*worker.command, "/bin/ls", RECORDS]).split()
    printed = [run([*worker.command, "/bin/cat", f"{RECORDS}/{each}"]) for each in files]
    (found,) = [each for each in map(json.loads, printed) if each["port_id"] == port_id]
    return found["attachment"]["netns"]


@pytest.mark.usefixtures("secure")
def test_virtual_machine_of_a_secure_container_has_the_pods_network(cluster, worker):
    cluster.apply(
        pod("other", node="node1"), pod("one", node=worker.name, runtimeClassName=SECURE)
    )
    cluster.wait_ready("other", "one")
    others, own = (addresses(cluster.get("pod", name)) for name in ("other", "one"))
    netns, machine = netns_of(cluster, worker, "one"), cluster.lab.vm1
    with running(worker, "guest", netns, "one") as link:
        print(link)
        assert "macvlan (taken)" in link
        assert cluster.vif("one")["address"] in link
        inside = [*worker.command, "/sbin/ip", "netns", "exec", "kata-one"]
        for address in (*others, machine.v4, machine.v6):
            ping = ["ping", "-c", "2", "-i", "0.2", "-W", "5", address]
            cluster.wait_for(f"{address} answers", lambda ping=ping: succeeds([*inside, *ping]))
        cluster.until_vm_pings(*own)
