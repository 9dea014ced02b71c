"""The metrics of pools, read when Prometheus asks."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from kuryr_k8s.drivers.base import KeepsPorts
from kuryr_k8s.drivers.pools.waiters import WaitTimes

STATES = ("available", "in_use", "returning", "leaving", "waiting", "creating", "target")
SampleId = tuple[str, frozenset[tuple[str, str]]]  # its name, and its labels


class PoolCollector(Collector):
    """Ports by place and state; requests that found a port, and those that had to wait."""

    def __init__(self, driver: KeepsPorts, times: WaitTimes) -> None:
        self._driver = driver
        self._times = times

    def collect(self) -> Iterator[Metric]:
        ports = GaugeMetricFamily(
            "kuryr_pool_ports", "Ports of pools", labels=["driver", "place", "state"]
        )
        requests = CounterMetricFamily(
            "kuryr_pool_requests", "Ports requested from pools", labels=["driver", "outcome"]
        )
        waits = HistogramMetricFamily(
            "kuryr_pool_wait_seconds",
            "How long requests waited that found their pool empty",
            labels=["driver"],
        )
        name, times = self._driver.name, self._times
        for (place, state), count in _count(self._driver).items():
            ports.add_metric([name, place, state], count)
        requests.add_metric([name, "hit"], times.hits)
        requests.add_metric([name, "miss"], times.misses)
        waits.add_metric([name], list(times.buckets.items()), times.seconds)
        yield from (ports, requests, waits)


def _count(driver: KeepsPorts) -> Counter[tuple[str, str]]:
    """Count the ports of all pools by place and state."""
    counts: Counter[tuple[str, str]] = Counter()
    for pool in driver.pools():
        numbers = pool.numbers._asdict()
        for state in STATES:
            counts[pool.key.place, state] += numbers[state]
    return counts


class JointCollector(Collector):
    """The metrics of several pool drivers: each metric once, with the samples of all of them.

    Samples that would be the same bear the pod_vif driver besides, in the label ``pod_vif``.

    :param collectors: of each pool driver, by the name of the pod_vif driver behind it.
    """

    def __init__(self, collectors: Mapping[str, Sequence[Collector]]) -> None:
        # drivers of one class may have a collector in common: then it counts for all of them
        owners = {collector: vif for vif, own in collectors.items() for collector in own}
        self._collectors = tuple(owners.items())

    def collect(self) -> Iterator[Metric]:
        found = [
            (vif, metric) for collector, vif in self._collectors for metric in collector.collect()
        ]
        owners: dict[SampleId, set[str]] = defaultdict(set)
        for vif, metric in found:
            for sample in metric.samples:
                owners[_id_of(sample)].add(vif)
        joint: dict[str, Metric] = {}
        for vif, metric in found:
            own = Metric(metric.name, metric.documentation, metric.type, metric.unit)
            for sample in metric.samples:
                shared = len(owners[_id_of(sample)]) > 1
                labels = sample.labels | {"pod_vif": vif} if shared else sample.labels
                joint.setdefault(metric.name, own).samples.append(sample._replace(labels=labels))
        yield from joint.values()


def _id_of(sample: Sample) -> SampleId:
    return sample.name, frozenset(sample.labels.items())
