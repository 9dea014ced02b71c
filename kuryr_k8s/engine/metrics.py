"""Metrics of loops and queues, and gauges of what programs know."""

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kuryr_k8s.engine.workqueue import WorkQueue

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


def gauge(name: str, documentation: str, read: Callable[[], float]) -> Gauge:
    """Return a gauge that is read when Prometheus asks, for a part's ``collectors``."""
    found = Gauge(name, documentation, registry=None)
    found.set_function(read)
    return found


class ReconcileMetrics:
    """Counts reconciles by handler and outcome; controllers take it as ``observe``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "kuryr_reconcile_seconds",
            "Length of a reconcile",
            ["handler"],
            buckets=SECONDS,
            registry=registry,
        )
        self._outcomes = Counter(
            "kuryr_reconciles", "Reconciles by outcome", ["handler", "outcome"], registry=registry
        )

    def __call__(self, name: str, outcome: str, seconds: float) -> None:
        self._seconds.labels(name).observe(seconds)
        self._outcomes.labels(name, outcome).inc()


class QueueMetrics(Collector):
    """The depth of the queues, read when Prometheus asks."""

    def __init__(self, queues: Mapping[str, "WorkQueue[Any]"]) -> None:
        self._queues = queues

    def collect(self) -> list[GaugeMetricFamily]:
        ready = GaugeMetricFamily(
            "kuryr_queue_keys", "Keys that wait for a worker", labels=["handler"]
        )
        active = GaugeMetricFamily(
            "kuryr_queue_active", "Keys being worked on", labels=["handler"]
        )
        for name, queue in self._queues.items():
            ready.add_metric([name], len(queue))
            active.add_metric([name], queue.active)
        return [ready, active]
