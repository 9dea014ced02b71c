"""The NeutronPorts of a pool: how many it wants, and which go."""

import pytest

from kuryr_k8s import errors
from kuryr_k8s.handlers.neutron_ports.members import LARGEST, QUICKLY, Members
from kuryr_k8s.model.neutronport import NeutronPort
from kuryr_k8s.model.neutronportpool import NeutronPortPool

NOW = 1000.0
LABELS = {"openstack.org/neutron-port-pool": "web"}
BOUND_TO = dict.fromkeys(("namespace", "name", "uid", "node", "kuryrPortUid"), "x")


def pool(generation=1, **spec):
    meta = {"namespace": "shop", "name": "web", "uid": "pool", "resourceVersion": "1"}
    meta["generation"] = generation
    return NeutronPortPool.read({"metadata": meta, "spec": {"min": 1} | spec})


def port(uid, phase="Available", *, deleting=False, spec=None, **status):
    meta = {"namespace": "shop", "name": f"web-{uid}", "uid": uid, "resourceVersion": "1"}
    meta |= {"generation": 1, "labels": LABELS}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    has = {"portId": uid} if phase in ("Available", "Bound") else {}
    has |= {"boundTo": BOUND_TO} if phase == "Bound" else {}
    return NeutronPort.read(
        {"metadata": meta, "spec": spec or {}, "status": {"phase": phase} | has | status}
    )


@pytest.fixture
def members():
    return Members(NOW)


def follow(members, now=NOW, **spec):
    members.follow(pool(**spec), now)


def note(members, *ports, now=NOW):
    for each in ports:
        members.note(each, now)


def test_those_without_a_port_yet_count_as_coming(members):
    note(members, port("a"), port("b", "Pending"))
    follow(members, min=3)
    assert members.missing(NOW) == 1


def test_those_that_pods_have_or_that_are_reserved_do_not_count(members):
    note(members, port("a", "Bound"), port("b", reservedFor="web-0"))
    follow(members, min=1)
    assert members.missing(NOW) == 1
    assert members.counts() == {"available": 0, "bound": 2, "pending": 0, "failed": 0}


def test_none_are_made_while_one_can_have_no_port(members):
    note(members, port("a", "Failed"))
    follow(members, min=3)
    assert members.missing(NOW) == 0


def test_no_more_wait_for_their_ports_than_are_made_at_a_time(members):
    follow(members, min=1000)
    assert members.missing(NOW) == LARGEST
    note(members, *(port(f"p{number}", "Pending") for number in range(LARGEST - 1)))
    assert members.missing(NOW) == 1


def test_more_are_made_where_all_that_was_made_is_used_up_soon(members):
    follow(members)
    for count in (1, 1, 2, 4):
        assert members.missing(NOW) == count
        members.made(count, NOW)
        follow(members)
    follow(members, now=NOW + QUICKLY)
    assert members.missing(NOW + QUICKLY) == 1


def test_attempts_that_make_none_do_not_count(members):
    for _ in range(5):
        follow(members)
        assert members.missing(NOW) == 1


def test_those_beyond_the_maximum_go_the_oldest_first(members):
    for number in range(3):
        note(members, port(f"p{number}"), now=NOW + number)
    follow(members, max=2)
    assert [each.uid for each in members.spare(NOW + 5)] == ["p0"]


def test_one_that_a_pod_takes_before_it_is_deleted_stays(members):
    note(members, port("a"), port("b"))
    follow(members, max=1)
    (spare,) = members.spare(NOW)
    note(members, port(spare.uid, "Bound"))
    assert members.spare(NOW) == []


def test_those_beyond_the_minimum_go_after_a_while(members):
    note(members, port("a"), port("b"))
    follow(members, ttlSeconds=10)
    assert members.until_old(NOW + 4) == 6
    assert members.spare(NOW + 9) == []
    assert len(members.spare(NOW + 10)) == 1
    assert members.until_old(NOW + 10) is None


def test_failed_ones_that_nobody_needs_go(members):
    note(members, port("a"), port("b", "Failed"))
    follow(members, min=1)
    assert [each.uid for each in members.spare(NOW)] == ["b"]


def test_what_differs_from_the_template_is_known_when_either_changes(members):
    note(members, port("a"), port("b", spec={"securityGroups": ["web"]}))
    follow(members)
    assert [each.uid for each in members.unlike()] == ["b"]
    template = {"spec": {"securityGroups": ["web"]}}
    follow(members, generation=2, template=template)
    assert [each.uid for each in members.unlike()] == ["a"]
    note(members, port("a", spec={"securityGroups": ["web"]}))
    assert members.unlike() == []


def test_what_never_changes_is_no_difference(members):
    note(members, port("a", spec={"fixedIPs": ["10.0.0.1"], "network": "other"}))
    follow(members, template={"spec": {"network": "tenant"}})
    assert members.unlike() == []


def test_one_that_is_gone_is_forgotten(members):
    note(members, port("a"))
    members.forget("a")
    follow(members)
    assert members.missing(NOW) == 1
    assert not members


def test_one_that_lost_its_port_and_cannot_have_it_again_is_replaced(members):
    note(members, port("a"), port("b", "Failed", macAddress="fa:16:3e:00:00:01"))
    follow(members, min=2)
    assert [each.uid for each in members.spare(NOW)] == ["b"]


def test_one_that_cannot_follow_the_template_is_not_tried_until_something_changes(members):
    note(members, port("a"))
    template = {"spec": {"securityGroups": ["web"]}}
    follow(members, generation=2, template=template)
    (unlike,) = members.unlike()
    members.refuse(unlike, errors.Refused("no"))
    assert members.unlike() == []
    assert str(members.refusal()) == "no"
    assert not members.are_alike
    follow(members, generation=3, template=template)
    assert [each.uid for each in members.unlike()] == ["a"]
    assert members.refusal() is None


def test_one_that_goes_while_a_pod_has_it_counts_as_bound(members):
    note(members, port("a", "Bound", deleting=True))
    assert members.counts()["bound"] == 1
