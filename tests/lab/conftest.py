"""Tests on the lab, which must be up, with the product installed (`make test` does both)."""

import os

import pytest

from tests.lab.cluster import fresh_cluster


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/lab/" in str(item.path):
            item.add_marker(pytest.mark.timeout(1200))  # each step has a limit of its own


@pytest.fixture
def cluster():
    """A namespace of one's own; after the test nothing of it may be left anywhere."""
    if os.geteuid() != 0:
        pytest.fail("these tests run as root, on a machine with the lab")
    with fresh_cluster() as cluster:
        yield cluster
    cluster.assert_nothing_leaks()
