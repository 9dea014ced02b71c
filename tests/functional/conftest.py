"""Functional tests need the lab up and the product installed on it (`make test` does both)."""

import os
import uuid

import pytest

from lab.kuryr import kubectl
from tests.functional.cluster import Cluster


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/functional/" in str(item.path):
            item.add_marker(pytest.mark.functional)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture
def cluster():
    """A namespace of one's own; after the test nothing of it may be left anywhere."""
    if os.geteuid() != 0:
        pytest.fail("functional tests run as root, on a machine with the lab")
    namespace = f"test-{uuid.uuid4().hex[:8]}"
    cluster = Cluster(namespace)
    kubectl(cluster.lab, "create", "namespace", namespace)
    cluster.wait_for(
        "the namespace has its ServiceAccount",
        lambda: cluster.find("serviceaccount", "default"),
    )
    yield cluster
    # Pods first: a namespace with something in it is looked at again only after a while
    for kind in ("deployments", "statefulsets", "pods"):
        cluster.kubectl("delete", kind, "--all", "--timeout=120s", timeout=150)
    cluster.wait_for("the KuryrPorts are gone", lambda: not cluster.get("kuryrports"), 90)
    kubectl(cluster.lab, "delete", "namespace", namespace, "--wait=false")
    cluster.assert_nothing_leaks()
