"""Everything is killed while Pods come and go: nothing is stuck or left.

`python -m lab.churn` is the long version: orderly restarts and a node's reboot too, with a look at
everything after each single fault.
"""

import pytest

from lab.churn.campaign import Campaign
from lab.churn.faults import crashes, restarts
from lab.churn.pings import INTERVAL
from lab.lifecycle.lab import Lab
from tests.lab.cluster import addresses, ports_of

PODS = 16  # at a time
NOISE = 0.2  # seconds: a busy machine loses a ping now and then, with no fault at all
pytestmark = [pytest.mark.lab_only, pytest.mark.product("plain")]


def faults(which):
    lab = Lab()
    return restarts(lab, kill=True) if which == "killed" else crashes(lab, lab.nodes[-1])[:1]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("which", ["killed", "node killed"])
def test_pods_that_come_and_go_meanwhile_leave_nothing_and_none_is_stuck(cluster, which):
    campaign = Campaign(Lab(), cluster.namespace, count=PODS, calm=0.5)
    compared = []
    rows = campaign.run([faults(which)], lambda row: compared.append(compare(cluster)))
    assert sum(row.created for row in rows) > 0
    assert min(compared) >= PODS
    assert [said for row in rows for said in row.complaints()] == []


def compare(cluster):
    """Check that each Pod has the addresses of its own port in Neutron; return how many are."""
    pods = [live for live in cluster.get("pods") if "deletionTimestamp" not in live["metadata"]]
    taken = [ip for live in pods for ip in addresses(live)]
    assert len(set(taken)) == len(taken)
    ports = cluster.ports()
    recorded = {item["metadata"]["name"]: item for item in cluster.get("kuryrports")}
    for live in pods:
        [port] = ports_of(recorded[live["metadata"]["name"]])
        assert addresses(live) == [ip["ip_address"] for ip in ports[port]["fixed_ips"]]
    return len(pods)


def test_what_traffic_does_not_go_through_may_restart_without_an_interruption(cluster):
    lab = Lab()
    still = Campaign(lab, cluster.namespace, count=0, calm=0.5)
    both = [fault for kill in (False, True) for fault in restarts(lab, kill=kill)]
    wanted = [fault for fault in both if fault.what in ("daemon", "controller")]
    rows = still.run([wanted], lambda row: None)
    assert len(rows) == 4
    for row in rows:
        print(row.fault.what, row.fault.how, row.lost)
        assert all(lost is not None and lost * INTERVAL <= NOISE for lost in row.lost.values())
