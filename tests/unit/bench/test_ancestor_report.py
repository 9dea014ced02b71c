"""The report of `bench ancestor`: its figures and its targets."""

import pytest

from bench.ancestor.pods_report import Measurements, ancestor_report
from bench.pods.case import Case, Delays
from bench.pods.floor import Floor
from bench.pods.load import Churn, Cost, PodTimes
from bench.pods.pool import Pool

FLOORS = {100: Floor(creation=0.2, deletion=0.2)}
IDLE = 60.0


def case(pool, *, latency=0.3, vifs=0.0, active=0.0, gone=0.0, calls=0):
    """Return a case of 100 Pods that are equally fast."""
    times = PodTimes(
        plugged=[vifs] * 100,
        active=[active] * 100,
        gone=[gone] * 100,
        created_all=0.1,
        plugged_all=vifs,
        active_all=active,
        gone_all=gone,
        calls_until_active=calls,
    )
    cost = Cost({}, 400, 200, 0, 0, {}, 1.0, 100.0, 110.0, 100.0, 0.5)
    return Case(pool, Delays(latency, after=1.0), 100, [times], cost)


def theirs(pool):
    return case(pool, vifs=3.0, active=5.0, gone=1.5, calls=400)


def report_of(ours, idle=None):
    churns = {ours.pool: Churn([1.0, 2.0], 2.0)}
    found = {
        "theirs": Measurements([theirs(ours.pool)], churns, {"GET /v2.0/ports": 3}),
        "ours": Measurements([ours], churns, idle or {}),
    }
    return ancestor_report(found, [Pool(ours.pool)], FLOORS, IDLE)


def missed(report):
    return [target.name.partition(": ")[2] for target in report.targets if not target.reached]


REACHED = {"vifs": 0.29, "active": 1.39, "gone": 0.39, "calls": 20}


@pytest.mark.parametrize(
    ("worse", "name"),
    [
        ({"vifs": 0.31}, "VIFs, p50 above the configured delays"),
        ({"active": 1.41}, "ACTIVE, p50 above the configured delays"),
        ({"calls": 21}, "Neutron calls until ACTIVE"),
        ({"gone": 0.41}, "GONE of all above them"),
    ],
)
def test_each_promise_for_a_warm_pool_is_a_target(worse, name):
    assert not missed(report_of(case("warm", **REACHED)))
    assert missed(report_of(case("warm", **(REACHED | worse)))) == [name]


def test_a_cold_pool_is_promised_a_time_and_not_a_share():
    found = REACHED | {"calls": 400}
    assert not missed(report_of(case("cold", **(found | {"vifs": 1.5}))))
    assert missed(report_of(case("cold", **(found | {"vifs": 1.6})))) == ["VIFs of all"]


def test_without_a_pool_the_deletion_of_the_port_counts_as_neutrons_time():
    assert not missed(report_of(case("noop", **(REACHED | {"gone": 0.7}))))
    assert missed(report_of(case("noop", **(REACHED | {"gone": 0.71}))))


def test_idle_controller_may_list_once_a_minute():
    good = case("warm", **REACHED)
    assert not missed(report_of(good, {"GET /v2.0/ports": 1}))
    assert missed(report_of(good, {"GET /v2.0/ports": 2})) == ["Neutron calls"]


def test_configured_delays_are_subtracted_from_both():
    text = report_of(case("cold", vifs=0.6, active=1.8)).as_text()
    vifs = next(line for line in text.splitlines() if line.startswith("100 cold"))
    assert vifs.split()[-3:] == ["2.7", "0.3", "9"]
