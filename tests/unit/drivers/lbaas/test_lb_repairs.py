"""What is in ERROR is made anew a few times, each time later."""

import pytest

from kuryr_k8s.drivers.lbaas.record import LoadBalancerFailed, Repairs


def refused(repairs, now):
    with pytest.raises(LoadBalancerFailed) as failed:
        repairs.begin("lb", now)
    return str(failed.value)


def test_error_is_told_before_anything_is_done_about_it():
    repairs = Repairs(3, 5.0)
    assert "lb" in refused(repairs, 100.0)
    assert "will be made anew" in refused(repairs, 104.9)
    repairs.begin("lb", 105.0)


def test_what_has_begun_is_carried_on_until_no_error_is_left():
    repairs = Repairs(3, 5.0)
    refused(repairs, 0.0)
    for now in (5.0, 5.1, 6.0):
        repairs.begin("lb", now)
    repairs.error_cleared()
    refused(repairs, 7.0)


def test_delays_grow_and_the_last_word_is_that_people_are_needed():
    repairs, now, waited = Repairs(8, 5.0), 0.0, []
    for _ in range(8):
        refused(repairs, now)
        delay = next(seconds for seconds in range(1000) if begins(repairs, now + seconds))
        now += delay
        waited.append(delay)
        repairs.error_cleared()
    assert waited == [5, 10, 20, 40, 80, 160, 300, 300]
    assert "left to people" in refused(repairs, now + 10000)


def begins(repairs, now):
    try:
        repairs.begin("lb", now)
    except LoadBalancerFailed:
        return False
    return True


def test_limit_of_none_leaves_everything_to_people():
    assert "left to people" in refused(Repairs(0, 5.0), 0.0)
