"""Which of a pool's ports come back, and which ones go."""

from kuryr_k8s.drivers.pools.resources import Kind, Resource
from tests.kit.pools.ports import (
    FOREIGN,
    KEY,
    OTHER,
    THIRD,
    add,
    claim,
    places,
    ports_of,
    state_of,
)

# -- the way back


def returned(names, **limits):
    """A state whose ports were all in use, and came back at 10.0."""
    state = state_of(names, **limits)
    for number, port in enumerate(names.split()):
        assert state.take(KEY, claim(number), 5.0).id == port
    for port in names.split():
        state.return_port(port, 10.0)
    return state


def test_a_port_is_available_again_when_it_is_checked_and_cool():
    state = returned("a b", cooldown=30.0)
    state.passed(ports_of("a")[0], 11.0)
    state.pools[KEY].cool(39.0)
    assert places(state) == {"returning": ["a", "b"]}
    state.pools[KEY].cool(40.0)
    assert places(state) == {"available": ["a"], "returning": ["b"]}


def test_a_checked_port_is_given_before_it_is_cool_only_where_nothing_else_is_left():
    state = returned("a b", cooldown=30.0)
    for port in ports_of("b a"):
        state.passed(port, 11.0)
    add(state, "c", KEY)
    given = [state.take(KEY, claim(number), 12.0).id for number in range(3)]
    assert given == ["c", "a", "b"]


def test_an_unchecked_port_is_given_to_whoever_waits_as_soon_as_it_is_checked():
    state = returned("a", cooldown=30.0)
    assert state.take(KEY, claim(7), 11.0) is None
    assert state.passed(ports_of("a")[0], 12.0) == claim(7)
    assert places(state) == {"in_use": ["a"]}


def test_a_pool_that_was_emptied_fills_itself_again_for_who_waits_for_a_port_that_returns():
    state = returned("a", minimum=2)
    state.empty(KEY, None, 10.0)
    assert state.pools[KEY].target(10.0) == 0
    assert state.take(KEY, claim(7), 11.0, [KEY, OTHER]) is None
    assert state.pools[KEY].target(11.0) == 2


def test_who_waits_does_not_count_on_a_port_whose_check_failed():
    state = returned("a b")
    for number in (7, 8):
        state.take(KEY, claim(number), 11.0)
    assert state.wanted(KEY, 11.0)[0] == 0
    state.check_failed("a")
    assert state.wanted(KEY, 11.0)[0] == 1
    assert {port.id for port in state.pools[KEY].due()} == {"a", "b"}
    assert state.passed(ports_of("a")[0], 12.0) == claim(7)
    state.return_port("a", 13.0)  # that was then
    assert state.wanted(KEY, 13.0)[0] == 0


def test_a_port_set_aside_is_its_pods_until_that_lets_go_of_it():
    state = state_of("a b")
    assert state.take(KEY, claim(1), 5.0).id == "a"
    state.set_aside(claim(1))
    assert state.take(KEY, claim(1), 6.0).id == "b"
    assert state.record("a").holder.pod_uid == claim(1).pod_uid
    assert state.return_ports_of(claim(1).pod_uid, 7.0) == ["b"]
    assert places(state) == {"in_use": ["a"], "returning": ["b"]}
    state.return_port("a", 8.0)
    assert places(state) == {"returning": ["a", "b"]}


def test_a_port_dismissed_while_it_is_checked_stays_so():
    state = returned("a")
    state.dismiss("a", 11.0)
    state.take(KEY, claim(7), 11.0)
    assert state.passed(ports_of("a")[0], 12.0) is None
    assert places(state) == {"leaving": ["a"]}


def test_a_port_that_returns_above_the_maximum_goes():
    assert places(returned("a b c", maximum=2)) == {"returning": ["a", "b"], "leaving": ["c"]}


def test_of_ports_that_return_to_a_full_pool_only_as_many_stay_as_pods_wait():
    state = state_of("a b c", maximum=1)
    for number in range(4):
        state.take(KEY, claim(number), 5.0)
    for port in "abc":
        state.return_port(port, 10.0)
    assert places(state) == {"returning": ["a", "b"], "leaving": ["c"]}


# -- those that go


def test_unused_ports_go_after_their_time_but_only_above_the_minimum():
    state = state_of("a b c d", minimum=2, ttl=60.0)
    state.shrink(KEY, 60.0)
    assert places(state) == {"available": ["b", "c", "d"], "leaving": ["a"]}
    state.shrink(KEY, 900.0)
    assert places(state) == {"available": ["c", "d"], "leaving": ["a", "b"]}
    assert state.wanted(KEY, 900.0) == (0, 0)


def test_an_idle_pool_shrinks_to_nothing():
    state = returned("a b", idle=60.0)
    add(state, "c", KEY)
    state.shrink(KEY, 69.0)
    assert places(state) == {"available": ["c"], "returning": ["a", "b"]}
    state.shrink(KEY, 70.0)
    assert places(state) == {"leaving": ["a", "b", "c"]}
    assert state.wanted(KEY, 70.0) == (0, 0)
    for port in "abc":
        state.remove(port)
    assert state.pools == {}


def test_a_pool_is_not_idle_while_its_ports_are_in_use_nor_right_after():
    state = state_of("a b", idle=60.0)
    state.take(KEY, claim(1), 5.0)
    state.shrink(KEY, 1000.0)
    state.return_port("a", 1000.0)
    state.shrink(KEY, 1059.0)
    assert places(state) == {"available": ["b"], "returning": ["a"]}


def test_a_pool_is_not_idle_while_somebody_waits():
    state = state_of(minimum=2, idle=60.0)
    state.take(KEY, claim(1), 0.0)
    assert state.pools[KEY].target(1000.0) == 2


def test_the_projects_fullest_pools_give_ports_for_those_who_wait():
    state = state_of("a b")
    for names, key in [("c d e", OTHER), ("f g h i", FOREIGN), ("j", THIRD)]:
        add(state, names, key)
    project = Resource(Kind.PROJECT, KEY.project_id)
    assert state.reclaim(project, 4, 9.0) == {OTHER: 3, KEY: 1}
    assert places(state, OTHER) == {"leaving": ["c", "d", "e"]}
    assert places(state) == {"available": ["b"], "leaving": ["a"]}
    assert state.reclaim(project, 9, 9.0) == {KEY: 1, THIRD: 1}
    assert places(state, FOREIGN) == {"available": ["f", "g", "h", "i"]}


def test_a_closed_pool_lets_go_of_all_and_is_opened_by_who_asks_for_it():
    state = state_of("a b c")
    state.take(KEY, claim(1), 5.0)
    state.begin(KEY, 2, 5.0)
    assert state.close(KEY, 6.0) == []
    assert places(state) == {"in_use": ["a"], "leaving": ["b", "c"]}
    state.return_port("a", 7.0)
    state.made(KEY, 1, ports_of("d"), 7.0)
    assert places(state) == {"leaving": ["a", "b", "c", "d"]}
    assert state.wanted(KEY, 7.0) == (0, 0)
    state.take(KEY, claim(2), 8.0)
    assert state.made(KEY, 1, ports_of("e"), 9.0) == [claim(2)]


def test_those_who_waited_for_a_closed_pool_are_named_once():
    state = state_of()
    state.take(KEY, claim(1), 0.0)
    assert state.close(KEY, 1.0) == [claim(1)]
    assert state.close(KEY, 1.0) == []


def test_a_port_that_vanished_from_its_pod_is_known_no_more():
    state = state_of("a b")
    state.take(KEY, claim(1), 5.0)
    assert state.remove("a") == "pod1"
    assert state.remove("a") is None
    assert state.take(KEY, claim(1), 6.0).id == "b"


def test_a_port_that_nobody_has_goes():
    state = state_of("a b")
    state.take(KEY, claim(1), 5.0)
    state.dismiss_orphan("a", 6.0)
    assert places(state) == {"available": ["b"], "leaving": ["a"]}
    assert state.take(KEY, claim(1), 7.0).id == "b"
