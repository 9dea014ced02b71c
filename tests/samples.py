"""Samples of tests that are many of a kind: ``make test`` runs a part, ``make test-all`` all.

``@pytest.mark.sampled(5)`` marks one case in five of a function, chosen by the session's seed, as
those to run; the other ones become ``complete``. ``group`` names what is sampled together, where
that is not a single function.
"""

import random
from collections import defaultdict

import pytest

SEED = pytest.StashKey[int]()  # of the session


def choose(items, seed):
    """Mark the tests outside the samples as ``complete``; each group keeps at least one.

    A test that is ``complete`` by itself belongs to no sample.
    """
    groups = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker is not None and item.get_closest_marker("complete") is None:
            (of,) = marker.args
            function = item.nodeid.partition("[")[0]
            groups[marker.kwargs.get("group", function), of].append(item)
    for (group, of), members in groups.items():
        kept = sample([item.nodeid for item in members], of, f"{seed}: {group}")
        for item in members:
            if item.nodeid not in kept:
                item.add_marker(pytest.mark.complete)


def sample_modules(items, of):
    """Have one test in ``of`` of each module run, but for what is sampled by itself.

    For directories in which each test takes seconds, and each feature adds tests.
    """
    for item in items:
        if item.get_closest_marker("sampled") is None:
            module = item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.sampled(of, group=module))


def sample(names, of, seed):
    """Choose one in ``of`` of these names, rounded up; whatever their order is."""
    return set(random.Random(seed).sample(sorted(names), -(-len(names) // of)))
