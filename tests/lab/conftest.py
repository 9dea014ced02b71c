"""Tests on the lab with the product installed (`make test` brings both), or on a site that exists.

Markers: `product` names the configuration of the controller that a test needs (`full` if it names
none), `lab_only` says that it needs the lab's own powers, and `complete` that only
`make test-all` runs it. README.md has the rest.
"""

import os

import pytest

from lab.suite import interrupted
from tests.lab import product
from tests.lab.cluster import fresh_cluster
from tests.lab.site import on_the_lab

ORDER = tuple(product.CONFIGURATIONS)


def pytest_configure():
    interrupted.this_run()  # before processes are started for parts of it


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/lab/" in str(item.path):
            item.add_marker(pytest.mark.timeout(1200))  # each step has a limit of its own
            if configuration_of(item) == "router":
                # there is one router, and Octavia makes one change of it at a time
                item.add_marker(pytest.mark.xdist_group("router"))
    items.sort(key=lambda item: ORDER.index(configuration_of(item)))


def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput") and not session.config.option.collectonly:
        product.restore()


def configuration_of(item):
    """Return the name of the controller's configuration that the test needs."""
    marker = item.get_closest_marker("product")
    return marker.args[0] if marker else ORDER[0]


@pytest.fixture(autouse=True)
def configured(request):
    """Let the controller have the configuration that the test needs."""
    if os.geteuid() != 0 and on_the_lab():
        pytest.fail("these tests run as root, on a machine with the lab")
    product.ensure(configuration_of(request.node))


@pytest.fixture
def cluster(configured):
    """A namespace of one's own; after the test nothing of it may be left anywhere."""
    with fresh_cluster() as cluster:
        yield cluster
    cluster.assert_nothing_leaks()
