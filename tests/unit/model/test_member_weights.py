"""Services share requests by their weights, however many Pods they have."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuryr_k8s.model.load_balancer import Member
from kuryr_k8s.model.member_weights import LARGEST, weighted


def members(service, number, draining=0):
    return [
        Member(address=f"10.{service}.0.{each}", port=80, weight=int(each >= draining))
        for each in range(number)
    ]


def weights(*shares):
    return [member.weight for member in weighted(shares)]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([(members(1, 3), 100)], [1, 1, 1]),
        ([(members(1, 1), 100), (members(2, 1), 50)], [2, 1]),
        ([(members(1, 1), 100), (members(2, 2), 100)], [2, 1, 1]),
        ([(members(1, 2), 1), (members(2, 1), 256)], [1, 1, 256]),  # too fine for Octavia
        ([(members(1, 1), 0), (members(2, 1), 7)], [0, 1]),
        ([(members(1, 1), 0), (members(2, 2), 0)], [0, 0, 0]),
        ([(members(1, 0), 100), (members(2, 1), 1)], [1]),
        ([(members(1, 2, draining=1), 100), (members(2, 1), 100)], [0, 1, 1]),
        ([], []),
    ],
)
def test_members_have_the_share_of_their_service_among_them(shares, expected):
    assert weights(*shares) == expected


def test_pod_behind_two_services_is_one_member_with_both_weights():
    both = members(1, 1)
    assert weights((both, 1), (both, 2), (members(2, 1), 3)) == [1, 1]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 256)), min_size=1, max_size=4))
def test_weights_are_octavias_and_shares_are_as_asked_up_to_rounding(given_shares):
    shares = [(members(place, number), weight) for place, (number, weight) in
              enumerate(given_shares)]  # fmt: skip
    found = weighted(shares)
    assert all(0 <= member.weight <= LARGEST for member in found)
    served = [(len(mine), weight) for mine, weight in shares if mine and weight]
    largest = max((Fraction(weight, number) for number, weight in served), default=1)
    by_key = {member.key: member.weight for member in found}
    top = max(by_key.values(), default=0)
    for mine, weight in shares:
        for member in mine:
            exact = Fraction(weight, len(mine)) / largest * top
            if weight == 0:
                assert by_key[member.key] == 0
            else:
                assert abs(by_key[member.key] - exact) <= 1
