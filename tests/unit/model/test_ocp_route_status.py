"""The status of a Route has an entry for each router, and ours changes alone."""

from kuryr_k8s.model.ocp_route import ingress_text
from kuryr_k8s.model.ocp_route_status import Admission, entries

GOOD = Admission(host="a.com", wildcard_policy="None", is_admitted=True)
BAD = Admission(
    host="a.com", wildcard_policy="None", is_admitted=False, reason="Why", message="that"
)
OTHER = {"host": "a.com", "routerName": "default", "conditions": [{"type": "Admitted"}]}
FIRST = {
    "host": "a.com",
    "routerName": "kuryr",
    "wildcardPolicy": "None",
    "conditions": [{"type": "Admitted", "status": "True", "lastTransitionTime": "t1"}],
}


def test_first_entry_is_added_to_those_of_other_routers():
    assert entries("", GOOD, "t1") == [FIRST]
    assert entries(ingress_text([OTHER]), GOOD, "t1") == [OTHER, FIRST]


def test_time_of_transition_changes_with_the_status_alone():
    shown = ingress_text([FIRST, OTHER])
    assert entries(shown, GOOD, "t2") == [FIRST, OTHER]
    [ours, _] = entries(shown, BAD, "t2")
    [condition] = ours["conditions"]
    assert condition == {
        "type": "Admitted", "status": "False", "reason": "Why", "message": "that",
        "lastTransitionTime": "t2",
    }  # fmt: skip
    [later, _] = entries(ingress_text([ours, OTHER]), BAD, "t3")
    assert later == ours


def test_entry_goes_alone_and_a_second_one_of_ours_with_it():
    assert entries(ingress_text([FIRST, OTHER, FIRST]), None, "t2") == [OTHER]
    assert entries(ingress_text([FIRST, OTHER, FIRST]), GOOD, "t2") == [FIRST, OTHER]


def test_canonical_hostname_is_told_where_there_is_one():
    named = Admission(
        host="a", wildcard_policy="None", is_admitted=True, canonical_hostname="router.com"
    )
    assert entries("", named, "t")[0]["routerCanonicalHostname"] == "router.com"
