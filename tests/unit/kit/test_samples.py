"""Samples: a part of many tests of a kind, the same part for the same seed."""

from tests.samples import sample

NAMES = [f"test_many[{number}]" for number in range(7)]


def test_sample_is_rounded_up_and_never_empty():
    assert len(sample(NAMES, 3, "1")) == 3
    assert len(sample(NAMES[:1], 3, "1")) == 1


def test_sample_depends_on_the_seed_alone():
    assert sample(NAMES, 3, "1") == sample(NAMES[::-1], 3, "1")
    assert len({frozenset(sample(NAMES, 3, str(seed))) for seed in range(20)}) > 1


def test_every_name_is_in_some_sample():
    assert set().union(*(sample(NAMES, 3, str(seed)) for seed in range(100))) == set(NAMES)
