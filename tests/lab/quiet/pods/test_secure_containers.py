"""Secure containers take over the interface that a Pod has."""

import pytest

from lab.churn.leftovers import NETNS, PARKED
from lab.process import run, succeeds
from tests.lab.cluster import pod
from tests.lab.disruptive.pods.switch_rows import own_rows
from tests.lab.quiet.pods.secure_container import TAKEN, links_of, running

ADDRESS = "openstack.org/ip_address"
NODE = "node2"
pytestmark = pytest.mark.lab_only


def asking(cluster, kind):
    """A Pod with a port from the pool, parked on the node; or one that is made for it."""
    asked = pod(kind, node=NODE)
    if kind == "ordinary":
        network = cluster.lab.cloud.networks["pods"].v4.cidr
        asked["metadata"]["annotations"] = {ADDRESS: f"{network.rpartition('.')[0]}.123"}
    return asked


def row_of(cluster, kind):
    """Have a Pod run with a port of that kind; its row in Open vSwitch.

    Other tests use the node's pool at the same time: so the next port may not be parked yet.
    """
    found = []

    def is_right():
        cluster.apply(asking(cluster, kind))
        cluster.wait_ready(kind)
        found[:] = own_rows(cluster, NODE, kind)
        (row,) = found
        if (PARKED in row.ids) == (kind == "parked"):
            return True
        cluster.delete("pod", kind)
        return False

    cluster.wait_for(f"a Pod has a port that is {kind}", is_right)
    return found[0]


@pytest.mark.parametrize("kind", ["ordinary", "parked"])
def test_virtual_machine_of_a_secure_container_has_the_pods_network(cluster, kind):
    cluster.apply(pod("other", node="node1"))
    row = row_of(cluster, kind)
    cluster.wait_ready("other")
    netns, machine = row.ids[NETNS], cluster.lab.vm1
    (link,) = links_of(netns)
    print(f"{kind}: {link}")
    (entry,) = cluster.get("kuryrport", kind)["status"]["vifs"].values()
    port = cluster.ports()[entry["vif"]["versioned_object.data"]["id"]]
    assert link.kind in TAKEN
    assert link.mac == port["mac_address"]  # port security lets no other one pass
    assert {each.partition("/")[0] for each in link.addresses} == {
        ip["ip_address"] for ip in port["fixed_ips"]
    }
    others = [ip["ip"] for ip in cluster.get("pod", "other")["status"]["podIPs"]]
    with running(netns, kind) as guest:
        for address in (*others, machine.v4, machine.v6):
            ping = ["ping", "-c", "2", "-i", "0.2", "-W", "5", address]
            cluster.wait_for(f"{address} answers", lambda ping=ping: succeeds(ping, netns=guest))
        for address in others:
            host = f"[{address}]" if ":" in address else address
            answer = run(["curl", "-sf", "--max-time", "20", f"http://{host}:8080/"], netns=guest)
            assert answer.strip() == "other"
        cluster.until_vm_pings(*(ip["ip_address"] for ip in port["fixed_ips"]))
    cluster.delete("pod", kind, "other")
    cluster.wait_for("it is nobody's", lambda: cluster.is_released(port["id"]))
