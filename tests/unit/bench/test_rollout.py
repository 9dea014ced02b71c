"""The course of a rollout: what is lost, what is dead, and what Octavia's delays allow at best."""

import pytest

from bench.rollout.case import RolloutCase
from bench.rollout.course import Course
from bench.rollout.floor import fastest
from bench.rollout.report import rollout_report
from bench.services.case import Delays
from bench.testbed.forwarding import State

FRONT = "10.96.0.1:80"
SLOW = Delays(0.5, 1.0)


def state(since, *pods, **weights):
    return State(since, {FRONT: dict.fromkeys(pods, 1) | weights})


def course(*states, ended=None, last=0.0, end=10.0, writes=2, calls=4):
    return Course(states, ended or {}, 0.0, last, end, writes, calls)


def test_nothing_is_lost_while_pods_that_live_are_forwarded_to():
    found = course(state(0, "a", "b"), state(4, "b", "c"), ended={"a": 4.1})
    assert (found.asked, found.lost, found.dead) == (200, 0, 0)


def test_share_of_the_pods_that_have_ended_is_lost():
    found = course(state(0, "a", "b"), state(4, "b", "c"), ended={"a": 2.0})
    assert (found.lost, found.dead) == (20, 1)


def test_everything_is_lost_while_nobody_is_forwarded_to():
    assert course(state(0, "a"), state(5), state(6, "b")).lost == 20


def test_pod_of_weight_zero_gets_no_requests():
    found = course(state(0, "a", b=0), ended={"b": 1.0})
    assert (found.lost, found.dead) == (0, 0)


def test_rollout_has_settled_when_the_last_pods_are_forwarded_to_for_good():
    states = (state(0, "a"), state(3, "b"), state(5, "a"), state(7, "b"), state(8, "b", a=0))
    assert course(*states, last=2.0).settled == 5.0


def test_floor_is_one_write_after_another_with_a_look_at_each():
    """The second Pod is replaced while the first change is PENDING, the third one as well."""
    changes = [(0.0, frozenset("a")), (1.0, frozenset("b")), (2.0, frozenset("c"))]
    changes.append((2.5, frozenset("d")))
    best = fastest(course(state(0, "a")), changes, [1], SLOW)
    assert [each.since for each in best.states] == [0.0, 2.5, 4.5]
    assert [set(*map(dict.keys, each.fronts.values())) for each in best.states] == [
        {"a"},
        {"b"},
        {"d"},
    ]
    assert (best.writes, best.calls) == (2, 4)


@pytest.mark.parametrize(("one_by_one", "done"), [(False, [1.5, 1.5]), (True, [1.5, 2.5])])
def test_floor_of_two_load_balancers_is_that_of_the_provider(one_by_one, done):
    changes = [(0.0, frozenset("a")), (0.001, frozenset("b"))]
    delays = Delays(0.5, 1.0, "ovn", one_by_one)
    best = fastest(course(state(0, "a")), changes, [1, 1], delays)
    assert [each.since for each in best.states[1:]] == pytest.approx(done, abs=0.01)


@pytest.mark.parametrize(
    ("found", "drain", "missed"),
    [
        (course(state(0, "a", "b"), ended={"a": 2.0}), 8.0, ["lost requests"]),
        (course(state(0, "a", "b"), ended={"a": 2.0}), 0.0, []),
        (course(state(0, *"abcd"), ended=dict.fromkeys("abc", 9.99)), 8.0, ["dead members"]),
        (course(state(0, "a"), writes=21), 8.0, ["Octavia writes"]),
    ],
)
def test_promises_about_rollouts_are_targets(found, drain, missed):
    floor = course(state(0, "a"), state(1, "b"))
    case = RolloutCase("ClusterIP", SLOW, 10, 0.8, drain, found, floor, 0)
    targets = rollout_report([case]).targets
    assert [each.name.rpartition(": ")[2] for each in targets if not each.reached] == missed


def test_what_no_program_can_do_is_promised_by_none():
    poor = course(state(0, *"abc"), state(1, *"abcd"), ended=dict.fromkeys("abc", 9.0))
    cases = [
        RolloutCase("ClusterIP", SLOW, 10, 0.8, 8.0, poor, floor, 0)
        for floor in (poor, course(state(0, "a"), state(1, "b")))
    ]
    reached = [
        [
            target.reached
            for target in rollout_report([case]).targets
            if "writes" not in target.name
        ]
        for case in cases
    ]
    assert reached == [[True, True], [False, False]]
