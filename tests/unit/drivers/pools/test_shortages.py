"""Pools that wait for the same thing: who tries, and whose ports are freed for it."""

import pytest

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import NoVLANID
from kuryr_k8s.drivers.pools.resources import Kind, ReserveReached, Resource, lacking
from kuryr_k8s.drivers.pools.shortages import Shortages
from tests.kit.clock import ManualClock
from tests.kit.pools.ports import FOREIGN, KEY, OTHER, THIRD, add, places, state_of

QUOTA = errors.OverQuota("quota", status=409)


@pytest.fixture
def clock():
    return ManualClock(100.0)


@pytest.fixture
def shortages(clock):
    return Shortages(clock.now, 2.0)


def refuse(shortages, *keys, awaited=True, failure=QUOTA):
    for key in keys:
        shortages.refused(key, failure, awaited=awaited)


def may_try(shortages, key):
    return shortages.turn(key) is None


def test_one_pool_tries_for_all_that_were_refused(shortages, clock):
    refuse(shortages, KEY, OTHER, THIRD)
    assert not any(may_try(shortages, key) for key in (KEY, OTHER, THIRD))
    clock.advance(2.0)
    assert [may_try(shortages, key) for key in (OTHER, KEY, THIRD)] == [True, False, False]


def test_pool_that_was_not_refused_may_try(shortages):
    refuse(shortages, KEY)
    assert may_try(shortages, OTHER)


def is_first(shortages, key):
    [met] = shortages.refused(key, QUOTA, awaited=True)
    return met.is_first


def test_each_attempt_of_the_pool_whose_turn_it_is_has_ports_freed(shortages, clock):
    refuse(shortages, KEY, awaited=False)  # a pool to be filled was the first
    assert not is_first(shortages, OTHER)
    assert not is_first(shortages, THIRD)
    for _ in range(2):
        clock.advance(2.0)
        assert may_try(shortages, OTHER)
        assert is_first(shortages, OTHER)
        assert not is_first(shortages, THIRD)


def test_pools_of_other_projects_do_not_wait_for_a_quota(shortages):
    refuse(shortages, KEY)
    refuse(shortages, FOREIGN, failure=NoVLANID("none"))
    assert shortages.relieved(OTHER) == [KEY, FOREIGN]  # a port at FOREIGN's place


def test_pools_for_which_pods_wait_go_first(shortages):
    refuse(shortages, KEY, awaited=False)
    refuse(shortages, OTHER, THIRD)
    assert shortages.relieved(KEY, 1) == [OTHER]
    assert shortages.relieved(KEY) == [THIRD, KEY]


def test_pool_that_pods_come_to_wait_for_goes_before_those_to_be_filled(shortages):
    refuse(shortages, KEY, OTHER, awaited=False)
    assert shortages.want(OTHER) == 2.0
    assert shortages.want(OTHER) is None
    assert shortages.relieved(KEY, 1) == [OTHER]


def test_success_lets_others_follow_until_one_is_refused(shortages):
    refuse(shortages, KEY, OTHER, THIRD)
    assert shortages.relieved(KEY) == [KEY, OTHER]
    shortages.leave(KEY)
    assert may_try(shortages, OTHER)
    refuse(shortages, OTHER)
    shortages.tried(OTHER)
    assert not may_try(shortages, THIRD)
    assert shortages.relieved(KEY) == [OTHER, THIRD]


def test_pods_do_not_wait_for_what_pools_leave_to_others(shortages):
    refuse(shortages, KEY, awaited=False, failure=ReserveReached("reserve"))
    assert not may_try(shortages, KEY)
    assert shortages.want(KEY) == 0.0
    assert may_try(shortages, KEY)


def test_as_many_returning_ports_are_freed_as_pods_miss(shortages):
    refuse(shortages, KEY)
    for met in shortages.refused(KEY, QUOTA, awaited=True):
        met.shortage.missing = 2
    assert [shortages.take_missing(OTHER) for _ in range(3)] == [True, True, False]
    assert not shortages.take_missing(FOREIGN)


def freed_for(failure, key=KEY):
    """Whose ports are freed for a pool that was refused like this."""
    state = state_of("a")
    elsewhere = OTHER._replace(network_id="network2", subnet_ids=("subnet2",))
    for names, pool in [("b", OTHER), ("c", elsewhere), ("d", FOREIGN)]:
        add(state, names, pool)
    for resource in lacking(failure, key):
        state.reclaim(resource, 9, 9.0)
    pools = {"a": KEY, "b": OTHER, "c": elsewhere, "d": FOREIGN}
    return {name for name, pool in pools.items() if "leaving" in places(state, pool)}


def test_only_ports_are_freed_that_take_up_what_is_missing():
    assert freed_for(QUOTA) == {"a", "b", "c"}
    assert freed_for(errors.NoAddress("full", status=409)) == {"a", "b", "d"}
    assert freed_for(NoVLANID("none")) == {"a"}


@pytest.mark.parametrize("status", [0, 429, 503, 504])
def test_neutron_itself_is_what_pools_wait_for_in_an_outage(status):
    failure = errors.CloudError("busy", status=status)
    failure.api = "neutron"
    assert [resource.kind for resource in lacking(failure, KEY)] == [Kind.NEUTRON]
    assert lacking(errors.CloudError("odd", status=500), KEY) == ()


def test_pool_that_needs_nothing_lets_the_next_one_try_in_its_place(shortages, clock):
    refuse(shortages, KEY, OTHER)
    assert shortages.leave(KEY) == {OTHER: 2.0}
    clock.advance(2.0)
    refuse(shortages, KEY)
    assert shortages.leave(OTHER) == {KEY: 2.0}
    assert shortages.leave(KEY) == {}


def test_pool_that_was_refused_while_no_pod_waits_goes_behind_those_with_pods(shortages):
    refuse(shortages, KEY, OTHER)
    refuse(shortages, KEY, awaited=False)
    assert shortages.relieved(KEY) == [OTHER, KEY]


def test_pool_without_waiting_pods_leaves_what_is_freed_to_those_that_wait(shortages):
    refuse(shortages, KEY)
    assert shortages.give_way(OTHER) is not None
    assert shortages.give_way(FOREIGN) is None
    assert shortages.relieved(OTHER) == [KEY, OTHER]
    shortages.leave(KEY)
    assert shortages.give_way(OTHER) is None


def test_pool_whose_pods_are_gone_goes_behind_those_with_pods(shortages):
    refuse(shortages, KEY, OTHER)
    assert shortages.give_way(KEY) is not None
    assert shortages.relieved(THIRD) == [OTHER, KEY]
    shortages.leave(OTHER)
    assert shortages.give_way(KEY) is None


def test_pool_leaves_the_queues_for_all_that_it_does_not_lack(shortages):
    refuse(shortages, KEY, OTHER)
    refuse(shortages, KEY, failure=errors.NoAddress("full", status=409))
    subnet = Resource(Kind.SUBNET, "subnet")
    assert shortages.leave(KEY, {subnet}) == {OTHER: 2.0}
    assert shortages.relieved(THIRD) == [OTHER, KEY]  # KEY as it waits for an address
