"""The report of `bench services`: its figures and its targets."""

import dataclasses
import json

import pytest

from bench.ancestor.services import tables
from bench.services.case import Delays, LargeService, Restart, ServiceCase, read_delays
from bench.services.floor import Floor
from bench.services.load import Churn, Cost, Resize, ServiceTimes
from bench.services.objects import slices_of
from bench.services.report import services_report
from bench.testbed.processes import Memory
from bench.testbed.publication import ANNOTATION, STATUS
from kuryr_k8s.model.annotations import LBAAS_STATE, LBAAS_STATE_CUT

SLOW = Delays(0.3, 1.0)
FLOORS = {1: Floor(made=1.3, seen=1.6), 500: Floor(made=10.0, seen=20.0)}


def case(number, *, seconds=1.7, total=24.0, octavia=1, writes=3, runs=1):
    """Return a case of Services that are equally fast."""
    cost = Cost(
        octavia * number, 0, {}, writes * number, 0, {}, 0.01 * number, 0.5, Memory(80.0, 90.0)
    )
    times = ServiceTimes([seconds] * number, 0.5, total, cost)
    return ServiceCase(number, 2, SLOW, FLOORS[number], [times] * runs)


def restart(*, octavia=0, writes=0, done=9.0, reads=10):
    return Restart(500, SLOW, 3.0, done, octavia, reads, {}, writes, 1.0, Memory(80.0, 90.0))


def missed(cases=(), churns=(), restarts=()):
    report = services_report(cases, [(SLOW, churn) for churn in churns], restarts)
    return [target.name.rpartition(": ")[2] for target in report.targets if not target.reached]


def test_everything_in_time_reaches_every_target():
    churn = Churn(seconds=11.0, between=10.0, octavia_writes=11, writes=11)
    assert not missed([case(1), case(500)], [churn], [restart()])


@pytest.mark.parametrize(
    ("found", "names"),
    [
        ({"cases": [case(1, seconds=1.81)]}, ["ACTIVE, p50 above Octavia's own"]),
        ({"cases": [case(500, total=26.1)]}, ["all ACTIVE"]),
        ({"cases": [case(500, octavia=3)]}, ["Octavia writes"]),
        ({"cases": [case(1, writes=5)]}, ["Kubernetes writes"]),
        ({"churns": [Churn(10.0, 10.0, 12, 1)]}, ["Octavia writes"]),
        ({"restarts": [restart(octavia=1)]}, ["Octavia writes"]),
        ({"restarts": [restart(writes=1)]}, ["Kubernetes writes"]),
        ({"restarts": [restart(done=10.1)]}, ["done"]),
    ],
)
def test_each_promise_is_a_target(found, names):
    assert missed(**found) == names


def test_restart_may_not_take_longer_however_much_it_reads():
    report = services_report([], [], [restart(reads=1000, done=10.1)])
    (done, *_writes) = report.targets
    assert not done.reached


def test_what_a_restart_needs_is_counted_from_the_services_and_not_from_its_calls():
    (figures,) = services_report([], [], [restart(reads=9999)]).figures["restarts"]
    assert figures["reads_needed"] == 3 + 2 + 500
    assert figures["alone"] == pytest.approx(0.3 * (2 + 42))  # 500 pools, 12 at a time
    assert dataclasses.replace(restart(), number=501).pages == 2


def test_costs_are_reported_for_each_service_however_often_the_case_ran():
    (figures,) = services_report([case(1, runs=20)], [], []).figures["cases"]
    assert figures["octavia_writes_per_service"] == 1
    assert figures["kubernetes_writes_per_service"] == 3


def test_both_projects_are_compared_with_the_same_floor():
    found = {"theirs": [case(1, seconds=6.8, total=6.8)], "ours": [case(1, total=1.7)]}
    times, _costs = tables(found)
    (row,) = times.rows
    assert row[-2:] == pytest.approx([4.0, 4.0])


def test_delays_are_read_as_seconds_a_call_and_seconds_pending():
    assert read_delays(["0:0", "0.3:1"]) == [Delays(0.0, 0.0), SLOW]


def test_members_are_counted_where_each_controller_publishes_them():
    state = json.dumps({"versioned_object.data": {"members": [{}, {}]}})
    endpoints = {"metadata": {"name": "web", "annotations": {LBAAS_STATE: state}}}
    assert ANNOTATION.members(endpoints) == 2
    endpoints["metadata"]["annotations"][LBAAS_STATE_CUT] = "2 of 5000"
    assert ANNOTATION.members(endpoints) == 5000
    assert ANNOTATION.members({"metadata": {"name": "web"}}) is None
    assert STATUS.members({"metadata": {}, "status": {"members": [{}]}}) == 1
    assert STATUS.members({"metadata": {}, "status": {}}) is None
    assert STATUS.path("shop") == "/apis/openstack.org/v1/namespaces/shop/kuryrloadbalancers"


def large(*, seconds=2.5, octavia=1):
    cost = Cost(octavia, 2, {}, 1, 0, {}, 0.5, 0.5, Memory(80.0, 90.0))
    made = ServiceTimes([4.0], 3.0, 4.0, cost)
    return LargeService(5000, SLOW, made, [Resize(4999, seconds, cost)])


def test_large_service_is_shown_beside_one_write_and_one_look():
    report = services_report([], [], [], [large()])
    (table,) = report.tables
    assert [(row[0].rpartition(": ")[2], *row[1:3]) for row in table.rows] == [
        ("created", 4.0, 1.6),
        ("4999 endpoints", 2.5, 1.6),
    ]
    (figures,) = report.figures["larges"]
    assert figures["alone"] == 1.6


@pytest.mark.parametrize(
    ("found", "names"),
    [({}, []), ({"seconds": 3.3}, ["published"]), ({"octavia": 2}, ["Octavia writes"])],
)
def test_one_endpoint_among_thousands_is_one_write_in_twice_octavias_time(found, names):
    targets = services_report([], [], [], [large(**found)]).targets
    assert [each.name.rpartition(": ")[2] for each in targets if not each.reached] == names


@pytest.mark.parametrize(("endpoints", "sizes"), [(0, [0]), (100, [100]), (250, [100, 100, 50])])
def test_endpoints_are_divided_among_slices_as_kubernetes_does(endpoints, sizes):
    slices = slices_of("web", "default", endpoints)
    assert [len(each["endpoints"]) for each in slices] == sizes
    assert len({each["metadata"]["name"] for each in slices}) == len(sizes)
