"""Functional tests need the lab up and the product installed on it (`make test` does both)."""

import os

import pytest

from tests.functional.cluster import fresh_cluster


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/functional/" in str(item.path):
            item.add_marker(pytest.mark.functional)
            item.add_marker(pytest.mark.timeout(1200))  # each step has a limit of its own


@pytest.fixture
def cluster():
    """A namespace of one's own; after the test nothing of it may be left anywhere."""
    if os.geteuid() != 0:
        pytest.fail("functional tests run as root, on a machine with the lab")
    with fresh_cluster() as cluster:
        yield cluster
    cluster.assert_nothing_leaks()
