"""The metrics of pools, read when Prometheus asks."""

from collections import Counter
from collections.abc import Iterator, Mapping

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


class PoolCollector(Collector):
    """Ports by place and state; requests that found a port, and those that had to wait.

    :param drivers: pool drivers, by name.
    :param times: how long requests waited, by the driver's name.
    """

    def __init__(self, drivers: Mapping[str, KeepsPorts], times: Mapping[str, WaitTimes]) -> None:
        self._drivers = drivers
        self._times = times

    @classmethod
    def combine(cls, collectors: "list[PoolCollector]") -> "PoolCollector":
        """Make one collector of several: each metric has one description."""
        drivers: dict[str, KeepsPorts] = {}
        times: dict[str, WaitTimes] = {}
        for collector in collectors:
            drivers |= collector._drivers
            times |= collector._times
        return cls(drivers, times)

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
        for name, driver in self._drivers.items():
            for (place, state), count in _count(driver).items():
                ports.add_metric([name, place, state], count)
        for name, times in self._times.items():
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
