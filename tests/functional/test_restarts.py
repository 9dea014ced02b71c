"""Everything restarts, is killed, or crashes while 20 Pods come and go: nothing is stuck or left.

`python -m lab.churn` is the long version, with a look at everything after each single fault.
"""

import pytest

from lab.churn.campaign import Campaign
from lab.churn.faults import crashes, restarts
from lab.lifecycle import Lab


def groups(which):
    lab = Lab()
    killed, rebooted = crashes(lab, lab.nodes[-1])
    return {
        "restarted": [restarts(lab, kill=False)],
        "killed": [restarts(lab, kill=True)],
        "node killed": [[killed]],
        "node rebooted": [[rebooted]],
    }[which]


@pytest.mark.parametrize("which", ["restarted", "killed", "node killed", "node rebooted"])
def test_pods_that_come_and_go_meanwhile_leave_nothing_and_none_is_stuck(cluster, which):
    campaign = Campaign(Lab(), cluster.namespace, calm=0.5)
    rows = campaign.run(groups(which), lambda row: None)
    assert sum(row.created for row in rows) > 0
    assert [said for row in rows for said in row.complaints()] == []


def test_what_traffic_does_not_go_through_may_restart_without_a_ping_lost(cluster):
    lab = Lab()
    still = Campaign(lab, cluster.namespace, count=0, calm=0.5)
    faults = [fault for kill in (False, True) for fault in restarts(lab, kill=kill)]
    wanted = [fault for fault in faults if fault.what in ("daemon", "controller")]
    rows = still.run([wanted], lambda row: None)
    assert [row.lost for row in rows] == [{"IPv4": 0, "IPv6": 0}] * 4
