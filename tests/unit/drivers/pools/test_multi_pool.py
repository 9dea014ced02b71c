"""One pool driver of a third party before two pod_vif drivers: its metrics and its loops."""

import pytest
from prometheus_client import CollectorRegistry

from kuryr_k8s.config import read
from kuryr_k8s.drivers.pools.metrics import PoolCollector
from kuryr_k8s.drivers.pools.multi import MultiPool
from kuryr_k8s.drivers.pools.waiters import WaitTimes
from tests.kit.contexts import driver_context
from tests.kit.packages import describe_package

POOL = """
from prometheus_client import Counter
from kuryr_k8s.drivers.pools.noop import NoopPool
from kuryr_k8s.engine.controller import Controller

COMMON = Counter("example_common", "Of the whole program", registry=None)


class Counting(NoopPool):
    def __init__(self, context, vif=None):
        super().__init__(context, vif)
        self.asked = Counter("example_asked", "Requests", registry=None)
        self.by_node = Counter("example_by_node", "Requests", ["node"], registry=None)

    def collectors(self):
        return (self.asked, self.by_node, COMMON)

    def loops(self):
        return (Controller("counting", None),)
"""
MAPPING = "neutron-vif:counting,nested-vlan:counting"


class Names:
    """Stands for the pod_vif drivers: each is its name."""

    def __getitem__(self, slot):
        return self.named(slot, "neutron-vif")

    def named(self, _slot, name, _option=""):
        return name


@pytest.fixture
def context(site_packages, tmp_path):
    (site_packages / "example_counting.py").write_text(POOL)
    group = "kuryr_k8s.controller.drivers.vif_pool"
    describe_package(site_packages, "example", group, "counting = example_counting:Counting")
    file = tmp_path / "kuryr.conf"
    file.write_text(f"[vif_pool]\nvif_pool_mapping = {MAPPING}\n")
    return driver_context(read(["--config-file", str(file)], "test"), None, drivers=Names())


@pytest.fixture
def pool(context):
    return MultiPool(context)


@pytest.fixture
def metrics(pool):
    registry = CollectorRegistry()
    for collector in pool.collectors():
        registry.register(collector)
    return registry


def test_samples_of_both_pools_are_told_apart_by_the_pod_vif_driver(pool, metrics):
    of_servers, of_machines = pool.parts()
    of_servers.asked.inc(2)
    of_machines.asked.inc(3)
    values = [
        metrics.get_sample_value("example_asked_total", {"pod_vif": name})
        for name in ("neutron-vif", "nested-vlan")
    ]
    assert values == [2, 3]
    assert len([family for family in metrics.collect() if family.name == "example_asked"]) == 1


def test_samples_that_one_pool_has_alone_stay_as_they_are(pool, metrics):
    of_servers, of_machines = pool.parts()
    of_servers.by_node.labels("server").inc(2)
    of_machines.by_node.labels("machine").inc(3)
    values = [
        metrics.get_sample_value("example_by_node_total", {"node": name})
        for name in ("server", "machine")
    ]
    assert values == [2, 3]


def test_metric_that_both_pools_have_in_common_counts_once(pool, metrics):
    assert metrics.get_sample_value("example_common_total", {}) == 0


def test_loops_of_both_pools_have_names_of_their_own(pool):
    """By its name the metrics show a loop's queue."""
    assert [loop.name for loop in pool.loops()] == [
        "counting-neutron-vif",
        "counting-nested-vlan",
    ]


class Keeper:
    """Stands for a pool driver that keeps ports, and has no pool yet."""

    name = "neutron"

    def pools(self):
        return ()


def test_both_of_two_pools_with_the_same_name_are_counted(pool, monkeypatch):
    for part, hits in zip(pool.parts(), (2, 3), strict=True):
        times = WaitTimes()
        times.hits = hits
        collector = PoolCollector(Keeper(), times)
        monkeypatch.setattr(part, "collectors", lambda collector=collector: (collector,))
    (joint,) = pool.collectors()
    registry = CollectorRegistry()
    registry.register(joint)
    labels = {"driver": "neutron", "outcome": "hit"}
    values = [
        registry.get_sample_value("kuryr_pool_requests_total", labels | {"pod_vif": name})
        for name in ("neutron-vif", "nested-vlan")
    ]
    assert values == [2, 3]
