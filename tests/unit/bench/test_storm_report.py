"""The report of `bench storm`: what Pods waited, what it cost, and what is promised."""

from bench.storm.figures import LeaseAge, Phase
from bench.storm.report import storm_report

NAMES = ("come", "exhausted", "freed", "raised", "outage", "recovery", "deletions")


def phase(name, *, waits=(), creations=0, rows=0, age=5.0):
    lease = LeaseAge(oldest=age, holders=1)
    return Phase(name, waits, 10.0, creations + 1, creations, rows, lease)


def phases(**changed):
    waiting = {name: phase(name, waits=(0.5, 1.0)) for name in NAMES}
    return waiting | {"exhausted": phase("exhausted"), "outage": phase("outage")} | changed


def missed(**changed):
    report = storm_report(300, 10_000, phases(**changed))
    return [target.name for target in report.targets if not target.reached]


def test_storm_that_keeps_all_promises_misses_no_target():
    report = storm_report(300, 10_000, phases())
    assert report.reached
    assert "10000 Pods on 300 nodes" in report.as_text()
    assert report.figures["freed"]["waits"] == (0.5, 1.0)


def test_each_promise_that_is_not_kept_misses_its_target():
    assert missed(freed=phase("freed", waits=(0.5, 9.0))) == ["free port to a waiting Pod, P95"]
    assert missed(recovery=phase("recovery", waits=(9.0,))) == [
        "Neutron serves again to the first Pod"
    ]
    assert missed(exhausted=phase("exhausted", creations=100)) == [
        "creations a second while the quota is used up"
    ]
    assert missed(deletions=phase("deletions", waits=(9.0,))) == ["one Pod beside the deletions"]
    assert missed(outage=phase("outage", age=40.0)) == ["age of the Lease"]


def test_pods_that_were_all_served_before_miss_no_target():
    assert not missed(recovery=phase("recovery"), freed=phase("freed"))
