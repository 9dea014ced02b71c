"""Samples of tests that are many of a kind: ``make test`` runs a part, ``make test-all`` all.

``@pytest.mark.sampled(5)`` marks one case in five of a function, chosen by the session's seed, as
those to run; the other ones become ``complete``. ``group`` names what is sampled together, where
that is not a single function.
"""

import random
from collections import defaultdict
from pathlib import Path

import pytest

SEED = pytest.StashKey[int]()  # of the session

# Where each test takes seconds, and each feature adds tests: one in so many of each module, or of
# each directory where modules have few tests that take minutes.
DIRECTORIES = {
    Path("tests/component"): (10, lambda path: path),
    Path("tests/lab/quiet"): (3, lambda path: path),
    Path("tests/lab/machine"): (5, lambda path: path),
    Path("tests/lab/disruptive"): (5, lambda path: path.parent),
}


def choose(items, seed):
    """Mark the tests outside the samples as ``complete``; each group keeps at least one.

    A test that is ``complete`` by itself belongs to no sample.
    """
    _sample_directories(items)
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
    """Have one test in ``of`` of each module run, but for what is sampled by itself."""
    _sample_groups(items, of, lambda path: path)


def _sample_directories(items):
    """Have a part of the tests of some directories run."""
    for directory, (of, group_of) in DIRECTORIES.items():
        mine = [item for item in items if directory in _path(item).parents]
        _sample_groups(mine, of, group_of)


def _sample_groups(items, of, group_of):
    for item in items:
        if item.get_closest_marker("sampled") is None:
            group = group_of(_path(item))
            item.add_marker(pytest.mark.sampled(of, group=str(group)))


def _path(item):
    return item.path.relative_to(item.config.rootpath)


def sample(names, of, seed):
    """Choose one in ``of`` of these names, rounded up; whatever their order is."""
    return set(random.Random(seed).sample(sorted(names), -(-len(names) // of)))
