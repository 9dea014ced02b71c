"""Services share requests by their weights, however many Pods they have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuryr_k8s.model.load_balancer import Member
from kuryr_k8s.model.member_weights import LARGEST, PRECISION, weighted


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
        ([(members(1, 2), 1), (members(2, 1), 256)], [1, 0, 256]),  # Octavia has no halves
        ([(members(1, 4), 1), (members(2, 1), 99)], [1, 1, 0, 0, 198]),
        ([(members(1, 3), 5), (members(2, 1), 6)], [5, 5, 5, 18]),
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
    assert weights((both, 1), (both, 2), (members(2, 1), 3)) == [3, 3]


def changed(one, other):
    """How many members of both have another weight."""
    before = {member.key: member.weight for member in weighted(one)}
    after = {member.key: member.weight for member in weighted(other)}
    return sum(1 for key in before.keys() & after.keys() if before[key] != after[key])


@pytest.mark.parametrize("place", [0, 1, 50, 99])
def test_with_the_pod_that_goes_at_most_one_takes_over_where_few_of_many_get_requests(place):
    many, one = members(1, 100), members(2, 1)
    fewer = [member for member in many if member is not many[place]]
    assert changed([(many, 1), (one, 99)], [(fewer, 1), (one, 99)]) <= 1


def test_pods_are_served_evenly_where_that_costs_no_share_worth_mentioning():
    found = weights((members(1, 80), 89), (members(2, 1), 97))
    assert found == [1] * 80 + [87]


NUMBERS, WEIGHTS = st.integers(0, 300), st.integers(0, LARGEST)


@given(st.lists(st.tuples(NUMBERS, WEIGHTS), min_size=1, max_size=4))
def test_shares_are_true_to_a_thousandth_of_all_requests_and_no_service_is_without_any(numbers):
    shares = [(members(place, number), weight) for place, (number, weight) in enumerate(numbers)]
    by_key = {member.key: member.weight for member in weighted(shares)}
    assert len(by_key) == sum(number for number, _ in numbers)
    assert all(0 <= weight <= LARGEST for weight in by_key.values())
    total = sum(by_key.values())
    asked = sum(weight for number, weight in numbers if number)
    for mine, weight in shares:
        found = [by_key[member.key] for member in mine]
        if mine and weight:
            assert abs(sum(found) / total - weight / asked) <= PRECISION + 1e-9
            assert sum(found) >= 1
            assert max(found) - min(found) <= 1
        else:
            assert not any(found)


@given(NUMBERS.filter(bool), NUMBERS.filter(bool), WEIGHTS.filter(bool), WEIGHTS.filter(bool))
def test_no_pod_is_without_requests_if_all_can_have_some(number, other, weight, of_other):
    """Each has a weight that fits into a share of this precision, whatever the others have."""
    found = weights((members(1, number), weight), (members(2, other), of_other))
    share = weight / (weight + of_other)
    possible = any(
        abs(total / (total + rest) - share) <= PRECISION
        for total in range(number, LARGEST * number + 1, max(1, number // 4))
        for rest in (round(total * of_other / weight),)
        if other <= rest <= LARGEST * other
    )
    if possible:
        assert all(found)


@given(st.lists(st.tuples(st.integers(1, 6), WEIGHTS), min_size=2, max_size=4))
def test_pods_behind_several_services_have_a_weight_that_octavia_takes(numbers):
    shares = [(members(1, number), weight) for number, weight in numbers]
    found = [member.weight for member in weighted(shares)]
    assert all(0 <= weight <= LARGEST for weight in found)
    assert any(found) == any(weight for _, weight in numbers)


def test_members_that_drain_get_nothing_and_stay():
    assert weights((members(1, 3, draining=2), 1), (members(2, 1), 1)) == [0, 0, 1, 1]
