"""The metrics of pools, read when Prometheus asks."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from kuryr_k8s.drivers.base import KeepsPorts
from kuryr_k8s.drivers.pools.waiters import WaitTimes

STATES = ("available", "in_use", "returning", "leaving", "waiting", "creating", "target")


class Source(NamedTuple):
    """A pool driver, and how long requests to it waited."""

    driver: KeepsPorts
    times: WaitTimes


class PoolCollector(Collector):
    """Ports by place and state; requests that found a port, and those that had to wait.

    Each metric has one description, so a program has one such collector for all its pool drivers.
    """

    def __init__(self, sources: Iterable[Source]) -> None:
        self.sources = tuple({source.driver.name: source for source in sources}.values())

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
        for driver, times in self.sources:
            name = driver.name
            for (place, state), count in _count(driver).items():
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
