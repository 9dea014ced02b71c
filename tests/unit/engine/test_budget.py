"""A budget gives so much per second, never more than its burst at once, and says when to come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuryr_k8s.engine.budget import Budget


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def budget(clock):
    return Budget(10.0, 5, clock=clock)


def test_it_is_full_at_the_beginning(budget):
    assert budget.take(3) == 3
    assert budget.take(3) == 2
    assert budget.take(1) == 0


def test_it_says_how_long_to_wait_and_keeps_its_word(budget, clock):
    budget.take(5)
    delay = budget.delay(2)
    assert delay == pytest.approx(0.2)
    clock.now += delay / 2
    assert budget.take(2) == 1
    clock.now += delay
    assert budget.take(2) == 2


def test_whoever_wants_more_than_the_burst_is_told_when_it_is_full(budget, clock):
    budget.take(5)
    assert budget.delay(50) == pytest.approx(0.5)
    clock.now += 60.0
    assert budget.delay(50) == 0.0
    assert budget.take(50) == 5


def test_asking_for_the_delay_costs_nothing(budget):
    assert [budget.delay(5) for _ in range(10)] == [0.0] * 10
    assert budget.take(5) == 5


@pytest.mark.parametrize(("rate", "burst"), [(0.0, 1), (-1.0, 1), (1.0, 0)])
def test_a_budget_that_never_gives_anything_is_none(rate, burst):
    with pytest.raises(ValueError, match="is none"):
        Budget(rate, burst)


@given(
    rate=st.floats(0.1, 1000),
    burst=st.integers(1, 100),
    steps=st.lists(st.tuples(st.floats(0, 10), st.integers(0, 200)), max_size=50),
)
def test_no_span_of_time_gets_more_than_its_rate_and_one_burst(rate, burst, steps):
    clock = Clock()
    budget = Budget(rate, burst, clock=clock)
    taken = []
    for seconds, count in steps:
        clock.now += seconds
        granted = budget.take(count)
        assert 0 <= granted <= count
        taken.append((clock.now, granted))
    for first, (begin, _) in enumerate(taken):
        total = 0
        for end, granted in taken[first:]:
            total += granted
            assert total <= burst + rate * (end - begin) + 1e-3


@given(
    rate=st.floats(0.1, 1000),
    burst=st.integers(1, 100),
    spent=st.integers(0, 100),
    count=st.integers(0, 150),
)
def test_after_the_delay_all_is_granted(rate, burst, spent, count):
    clock = Clock()
    budget = Budget(rate, burst, clock=clock)
    budget.take(spent)
    clock.now += budget.delay(count)
    assert budget.take(count) == min(count, burst)
