"""Whom a pool's ports are given to, and how many are made."""

import pytest

from tests.kit.pools.ports import KEY, OTHER, add, claim, places, ports_of, state_of

# -- who gets a port


def test_a_claim_has_the_same_port_until_it_gives_it_back():
    state = state_of("a b")
    assert {state.take(KEY, claim(1), 5.0).id for _ in range(3)} == {"a"}
    state.return_port("a", 6.0)
    assert state.take(KEY, claim(1), 7.0).id == "b"


def test_parked_ports_go_first_then_those_that_were_free_for_longest():
    state = state_of("a b c")
    state.set_parked("node1", frozenset({"c"}))
    assert [state.take(KEY, claim(n), 5.0).id for n in range(3)] == ["c", "a", "b"]


def test_what_a_node_parks_says_nothing_of_other_nodes_ports():
    state = state_of("a")
    add(state, "b", OTHER)
    state.set_parked("node1", frozenset({"a", "b"}))
    assert [state.record(port).parked for port in "ab"] == [True, False]
    state.set_parked("node2", frozenset({"b"}))
    assert [state.record(port).parked for port in "ab"] == [True, True]


def test_a_parked_port_that_is_gone_is_forgotten():
    state = state_of("a")
    state.set_parked("node1", frozenset({"a"}))
    state.remove("a")
    assert state.record("a") is None
    add(state, "a", KEY)
    assert not state.record("a").parked


def test_those_who_wait_are_served_first_come_first_served():
    state = state_of()
    for number in range(3):
        assert state.take(KEY, claim(number), 0.0) is None
    state.take(KEY, claim(0), 1.0)  # asking again is not coming again
    state.begin(KEY, 3, 1.0)
    assert state.made(KEY, 3, ports_of("a b"), 2.0) == [claim(0), claim(1)]
    assert state.adopt(ports_of("c")[0], 2.0) == claim(2)
    assert [state.take(KEY, claim(n), 3.0).id for n in range(3)] == ["a", "b", "c"]


def test_a_claim_that_found_a_port_in_one_pool_waits_for_no_other():
    state = state_of()
    state.take(OTHER, claim(1), 0.0)
    add(state, "a", KEY)
    assert state.take(KEY, claim(1), 1.0).id == "a"
    assert state.adopt(ports_of("b", OTHER)[0], 2.0) is None
    assert places(state, OTHER) == {"available": ["b"]}


def test_who_went_away_waiting_is_not_served():
    state = state_of()
    state.take(KEY, claim(1), 0.0)
    assert state.return_ports_of("pod1", 1.0) == []
    assert state.adopt(ports_of("a")[0], 2.0) is None


def test_a_port_that_is_not_fit_is_given_to_nobody():
    state = state_of()
    state.take(KEY, claim(1), 0.0)
    state.begin(KEY, 1, 0.0)
    assert state.made(KEY, 1, ports_of("a", fit=False), 1.0) == []
    assert places(state) == {"leaving": ["a"]}
    assert state.wanted(KEY, 1.0)[0] == 1


# -- how many are made


@pytest.mark.parametrize(
    ("waiting", "creating", "limits", "wanted"),
    [
        (100, 0, {"minimum": 5, "batch": 10}, (100, 5)),
        (3, 0, {"minimum": 5, "batch": 10}, (3, 7)),
        (100, 60, {"minimum": 5, "batch": 10}, (40, 5)),
        (3, 10, {"minimum": 5, "batch": 10}, (0, 0)),
        (3, 0, {"minimum": 0, "batch": 10}, (3, 0)),
        (3, 0, {"minimum": 5, "batch": 10, "maximum": 6}, (3, 6)),
        (1, 0, {"minimum": 5, "batch": 10, "maximum": 2}, (1, 2)),
    ],
    ids=[
        "everybody at once, and the minimum",
        "what is left of a batch",
        "those under way are counted",
        "enough is under way",
        "no minimum",
        "not above the maximum",
        "the maximum is less than the minimum",
    ],
)
def test_ports_are_made_for_those_who_wait_and_for_those_to_come(
    waiting, creating, limits, wanted
):
    state = state_of(**limits)
    for number in range(waiting):
        state.take(KEY, claim(number), 0.0)
    state.begin(KEY, creating, 0.0)
    assert state.wanted(KEY, 0.0) == wanted


def test_what_is_ordered_is_made_once():
    state = state_of("a", minimum=1)
    state.order(KEY, 7, 0.0)
    assert state.wanted(KEY, 0.0) == (0, 7)
    state.begin(KEY, 5, 0.0)
    assert state.wanted(KEY, 0.0) == (0, 2)
    state.begin(KEY, 2, 0.0)
    state.made(KEY, 7, [], 1.0)
    assert state.wanted(KEY, 1.0) == (0, 0)


def test_an_order_above_the_maximum_is_forgotten_when_the_pool_is_full():
    state = state_of("a", minimum=0, maximum=1)
    state.order(KEY, 7, 0.0)
    state.shrink(KEY, 1.0)
    state.remove("a")
    assert state.wanted(KEY, 2.0) == (0, 0)


def test_an_order_above_the_maximum_does_not_replace_ports_that_become_too_old():
    state = state_of("a b", minimum=1, maximum=2, ttl=60.0)
    state.order(KEY, 7, 0.0)
    state.shrink(KEY, 60.0)
    assert state.wanted(KEY, 60.0) == (0, 0)


def test_an_order_that_could_not_be_met_before_the_pool_was_idle_is_forgotten():
    state = state_of(idle=60.0)
    state.order(KEY, 7, 0.0)
    state.shrink(KEY, 60.0)
    assert state.pools == {}


def test_ports_that_come_back_are_counted_as_coming():
    state = state_of("a", minimum=0)
    state.take(KEY, claim(1), 5.0)
    state.return_port("a", 6.0)
    assert state.take(KEY, claim(2), 6.0) is None
    assert state.wanted(KEY, 6.0) == (0, 0)


def test_a_creation_that_failed_is_not_waited_for():
    state = state_of(minimum=0)
    state.take(KEY, claim(1), 0.0)
    state.begin(KEY, 1, 0.0)
    assert state.wanted(KEY, 0.0) == (0, 0)
    assert state.made(KEY, 1, [], 1.0) == []
    assert state.wanted(KEY, 1.0) == (1, 0)


def test_a_port_that_a_survey_saw_before_the_answer_came_is_taken_once():
    state = state_of()
    state.begin(KEY, 1, 0.0)
    state.adopt(ports_of("a")[0], 1.0)
    state.take(KEY, claim(1), 2.0)
    assert state.made(KEY, 1, ports_of("a"), 3.0) == []
    assert places(state) == {"in_use": ["a"]}


# -- recovery


def test_ports_of_an_earlier_life_are_with_their_pods_or_free():
    state = state_of(cooldown=30.0)
    for port, holder in zip(ports_of("a b"), ["pod1", None], strict=True):
        state.recover(port, holder, 0.0)
    assert places(state) == {"available": ["b"], "in_use": ["a"]}
    assert (state.record("a").holder.pod_uid, state.record("b").holder) == ("pod1", None)
    assert state.return_port("a", 1.0)
    assert places(state) == {"available": ["b"], "returning": ["a"]}


def test_a_port_of_nobodys_pool_is_not_taken_back():
    assert state_of("a").return_port("b", 1.0) is False
