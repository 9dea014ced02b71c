"""The report of `bench pods`: its figures and its targets."""

import json

import pytest

from bench.pods.case import Case, Delays
from bench.pods.floor import Floor
from bench.pods.load import Cost, PodTimes
from bench.pods.pool import Pool
from bench.pods.report import pods_report
from bench.testbed.processes import Memory

FLOORS = {1: Floor(0.01, 0.02), 400: Floor(2.0, 1.0)}


def case(number, *, latency=0.0, runs=1, neutron=2, reads=0, peak=110.0, slowest=3.0):
    """Return a case whose Pods got their VIFs one after another, evenly."""
    seconds = [slowest * (i + 1) / number for i in range(number)]
    times = PodTimes(
        plugged=seconds,
        active=seconds,
        gone=seconds,
        created_all=1.0,
        plugged_all=slowest,
        active_all=slowest,
        gone_all=slowest,
        calls_until_active=number,
    )
    pods = number * runs
    cost = Cost(
        neutron={"POST /v2.0/ports": pods, "DELETE /v2.0/ports/{id}": (neutron - 1) * pods},
        writes=4 * pods,
        node_writes=2 * pods,
        reads=reads * pods,
        lists=0,
        kinds={"kuryr-controller create kuryrports": pods},
        cpu_seconds=0.01 * pods,
        rss_before=100.0,
        rss_peak=peak,
        rss_after=100.0,
        busy=0.5,
    )
    return Case("noop", Delays(latency), number, [times] * runs, cost)


def report_of(*cases):
    return pods_report(list(cases), Pool(), FLOORS, Memory(100.0, 101.0))


def missed(report):
    return [target.name for target in report.targets if not target.reached]


def test_calls_are_reported_for_each_pod_however_often_the_case_ran():
    figures = report_of(case(1, runs=20, slowest=0.02)).figures["cases"][0]
    assert figures["neutron_calls_per_pod"] == 2
    assert figures["kubernetes_writes_per_pod"] == 6
    assert figures["kubernetes_reads_per_pod"] == 0


def test_configured_latency_is_no_overhead():
    assert not missed(report_of(case(1, latency=0.3, slowest=0.34)))
    assert missed(report_of(case(1, latency=0.3, slowest=0.36))) == [
        "1 Pod, Neutron 0.3 s: VIFs, p50 above it"
    ]


@pytest.mark.parametrize(
    ("found", "name"),
    [
        ({"neutron": 1.3}, "400 Pods, Neutron 0 s: Neutron calls"),
        ({"reads": 1}, "400 at 0 s: Kubernetes reads"),
        ({"peak": 120.1}, "400 Pods, Neutron 0 s: memory, peak"),
        ({"slowest": 4.1}, "400 Pods, Neutron 0 s: VIFs of all"),
    ],
)
def test_each_promise_for_many_pods_is_a_target(found, name):
    assert not missed(report_of(case(400, neutron=1.2)))
    assert missed(report_of(case(400, **({"neutron": 1.2} | found)))) == [name]


def test_json_and_text_have_all_cases():
    report = report_of(case(1), case(400))
    read = json.loads(report.as_json())
    assert [case["pods"] for case in read["figures"]["cases"]] == [1, 400]
    assert read["figures"]["cases"][0]["neutron"]["POST /v2.0/ports"] == 1
    assert "ancestor, on comparable fakes" in report.as_text()
