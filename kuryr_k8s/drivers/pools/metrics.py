"""What Prometheus is told of pools, read when it asks."""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from kuryr_k8s.drivers.pools.shared import Pools

STATES = ("available", "in_use", "returning", "leaving", "waiting", "creating", "target")


class PoolCollector(Collector):
    """Ports by place and state; requests that found a port, and that had to wait for one.

    :param pools: by the name of the driver that keeps them.
    """

    def __init__(self, pools: Mapping[str, Pools]) -> None:
        self._pools = pools

    def collect(self) -> Iterator[Metric]:
        ports = GaugeMetricFamily(
            "kuryr_pool_ports", "Ports of pools", labels=["driver", "place", "state"]
        )
        requests = CounterMetricFamily(
            "kuryr_pool_requests", "Ports asked of pools", labels=["driver", "outcome"]
        )
        waits = HistogramMetricFamily(
            "kuryr_pool_wait_seconds",
            "How long those had to wait who found their pool empty",
            labels=["driver"],
        )
        for driver, pools in self._pools.items():
            for (place, state), count in _count(pools).items():
                ports.add_metric([driver, place, state], count)
            requests.add_metric([driver, "hit"], pools.waits.hits)
            requests.add_metric([driver, "miss"], pools.waits.misses)
            buckets = list(pools.waits.buckets.items())
            waits.add_metric([driver], buckets, pools.waits.seconds)
        yield from (ports, requests, waits)


def _count(pools: Pools) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for pool in pools.state.pools.values():
        numbers = pools.numbers(pool)
        for state in STATES:
            counts[pool.key.place, state] += numbers[state]
    return counts
