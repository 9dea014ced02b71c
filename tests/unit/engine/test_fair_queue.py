"""Whoever waits takes turns with others, however much one has asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuryr_k8s.engine.fair_queue import FairQueue


def test_owners_take_turns_and_each_ones_items_are_in_order():
    queue = FairQueue()
    for number in range(3):
        queue.append("greedy", number)
    queue.append("modest", "a")
    assert queue.popleft() == 0
    queue.append("modest", "b")
    assert [queue.popleft() for _ in range(len(queue))] == ["a", 1, "b", 2]
    with pytest.raises(IndexError):
        queue.popleft()


def test_item_that_is_taken_back_is_nobodys_turn():
    queue = FairQueue()
    queue.append("one", 1)
    queue.append("other", 2)
    queue.discard("one", 1)
    queue.discard("one", 1)
    assert queue.owners == 1
    assert queue.popleft() == 2


@given(st.lists(st.integers(0, 4), max_size=60))
def test_nobody_waits_for_more_than_one_item_of_each_other_owner(owners):
    queue = FairQueue()
    for place, owner in enumerate(owners):
        queue.append(owner, (owner, place))
    taken = [queue.popleft()[0] for _ in range(len(owners))]
    assert sorted(taken) == sorted(owners)
    for owner in set(owners):
        places = [place for place, each in enumerate(taken) if each == owner]
        for first, second in zip([-1, *places], places, strict=False):
            between = taken[first + 1 : second]
            assert len(between) == len(set(between))
