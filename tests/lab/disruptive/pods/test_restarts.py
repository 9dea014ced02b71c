"""Everything is killed while 20 Pods come and go: nothing is stuck or left.

`python -m lab.churn` is the long version: orderly restarts and a node's reboot too, with a look at
everything after each single fault.
"""

import pytest

from lab.churn.campaign import Campaign
from lab.churn.faults import crashes, restarts
from lab.lifecycle.lab import Lab


def faults(which):
    lab = Lab()
    return restarts(lab, kill=True) if which == "killed" else crashes(lab, lab.nodes[-1])[:1]


@pytest.mark.parametrize("which", ["killed", "node killed"])
def test_pods_that_come_and_go_meanwhile_leave_nothing_and_none_is_stuck(cluster, which):
    campaign = Campaign(Lab(), cluster.namespace, calm=0.5)
    rows = campaign.run([faults(which)], lambda row: None)
    assert sum(row.created for row in rows) > 0
    assert [said for row in rows for said in row.complaints()] == []


def test_what_traffic_does_not_go_through_may_restart_without_a_ping_lost(cluster):
    lab = Lab()
    still = Campaign(lab, cluster.namespace, count=0, calm=0.5)
    both = [fault for kill in (False, True) for fault in restarts(lab, kill=kill)]
    wanted = [fault for fault in both if fault.what in ("daemon", "controller")]
    rows = still.run([wanted], lambda row: None)
    assert [row.lost for row in rows] == [{"IPv4": 0, "IPv6": 0}] * 4
