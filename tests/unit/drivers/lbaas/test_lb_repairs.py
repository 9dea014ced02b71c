"""What is in ERROR is made anew a few times, each time later."""

from dataclasses import replace

import pytest

from kuryr_k8s.drivers.lbaas import steps as lb_steps
from kuryr_k8s.drivers.lbaas.repairs import (
    LoadBalancerFailed,
    Repairs,
    broken_parts,
    check_forwards_nothing,
    part_mended,
)
from kuryr_k8s.model.load_balancer import ERROR
from tests.kit.lbaas.octavia_model import made
from tests.kit.lbaas.plans import listener, pool, wanted


def refused(repairs, now, part="pool web"):
    with pytest.raises(LoadBalancerFailed) as failed:
        repairs.check(part, "lb", now)
    return str(failed.value)


def made_anew(repairs, now, part="pool web"):
    repairs.check(part, "lb", now)
    repairs.begun(part)


def test_error_is_told_before_anything_is_done_about_it():
    repairs = Repairs(3, 5.0)
    assert "lb" in refused(repairs, 100.0)
    assert "pool web is in ERROR and will be made anew" in refused(repairs, 104.9)
    made_anew(repairs, 105.0)


def test_what_is_still_in_error_after_its_repair_waits_for_twice_as_long():
    repairs = Repairs(3, 5.0)
    refused(repairs, 0.0)
    made_anew(repairs, 5.0)
    refused(repairs, 6.0)
    refused(repairs, 15.9)
    made_anew(repairs, 16.0)


def test_repair_that_could_not_be_sent_does_not_count():
    repairs = Repairs(1, 5.0)
    refused(repairs, 0.0)
    repairs.check("pool web", "lb", 5.0)
    repairs.check("pool web", "lb", 6.0)
    made_anew(repairs, 7.0)
    assert "left to people" in refused(repairs, 100.0)


def test_parts_do_not_wait_for_each_other():
    repairs = Repairs(1, 5.0)
    refused(repairs, 0.0)
    made_anew(repairs, 5.0)
    assert "left to people" in refused(repairs, 100.0)
    refused(repairs, 100.0, part="pool dns")
    made_anew(repairs, 105.0, part="pool dns")


def test_delays_grow_and_the_last_word_is_that_people_are_needed():
    repairs, now, waited = Repairs(8, 5.0), 0.0, []
    for _ in range(8):
        refused(repairs, now)
        delay = next(seconds for seconds in range(1000) if begins(repairs, now + seconds))
        now += delay
        waited.append(delay)
        repairs.cleared()
    assert waited == [5, 10, 20, 40, 80, 160, 300, 300]
    assert "left to people" in refused(repairs, now + 10000)


def test_update_that_mends_a_part_has_no_limit_but_its_delays():
    repairs = Repairs(1, 5.0)
    now = 0.0
    for _ in range(40):
        with pytest.raises(LoadBalancerFailed, match="will be made anew"):
            repairs.check("listener", "lb", now, is_update=True)
        now += 300.0
        repairs.check("listener", "lb", now, is_update=True)
        repairs.begun("listener")


def begins(repairs, now):
    try:
        made_anew(repairs, now)
    except LoadBalancerFailed:
        return False
    return True


def test_limit_of_none_leaves_everything_to_people():
    assert "left to people" in refused(Repairs(0, 5.0), 0.0)


def test_change_of_members_is_no_repair_though_one_of_them_is_in_error():
    """Else a member that never works would hold up those that come and go."""
    found = made(wanted(listener(), pool(members=["10.2.0.1", "10.2.0.2"])))
    (there,) = found.pools
    first, second = there.pool.members
    statuses = there.member_statuses | {first.key: ERROR}
    found = replace(found, pools=(replace(there, member_statuses=statuses),))
    again = lb_steps.SetMembers(there.id, (first, second))
    fewer = lb_steps.SetMembers(there.id, (first,))
    broken = broken_parts(found)
    assert part_mended(again, found, broken) == "a member of pool web"
    assert part_mended(fewer, found, broken) is None


@pytest.mark.parametrize(
    ("operating", "members", "left"),
    [
        ("ONLINE", ["10.2.0.1"], True),
        ("DEGRADED", ["10.2.0.1"], True),
        ("ERROR", ["10.2.0.1"], False),
        ("OFFLINE", ["10.2.0.1"], False),
        ("ONLINE", ["10.2.0.9"], False),
    ],
    ids=["online", "degraded", "error", "offline", "none of its Pods is left"],
)
def test_load_balancer_in_error_is_left_alone_while_it_forwards(operating, members, left):
    found = made(wanted(listener(), pool(members=["10.2.0.1", "10.2.0.2"])))
    found = replace(found, provisioning_status=ERROR, operating_status=operating)
    desired = wanted(listener(), pool(members=members))
    if left:
        with pytest.raises(LoadBalancerFailed, match="openstack loadbalancer failover"):
            check_forwards_nothing(desired, found)
    else:
        check_forwards_nothing(desired, found)
