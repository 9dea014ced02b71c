"""Metrics of calls to the OpenStack APIs."""

import re

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kuryr_k8s.engine.limit import AdaptiveLimit, Priority

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class CallMetrics:
    """Counts calls by method, kind of object and outcome; the ``observe`` of a Transport."""

    def __init__(self, service: str, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            f"kuryr_{service}_call_seconds",
            f"Calls of {service} by method, kind and HTTP status (0: no answer)",
            ["method", "kind", "status"],
            buckets=SECONDS,
            registry=registry,
        )

    def __call__(self, method: str, path: str, status: int, seconds: float) -> None:
        found = re.match(r"/(?:lbaas/)?([a-z-]+)", path)
        kind = found.group(1) if found else "other"
        self._seconds.labels(method, kind, str(status)).observe(seconds)


class LimitMetrics(Collector):
    """The limit of a Transport and its users, read when Prometheus asks."""

    def __init__(self, service: str, limit: AdaptiveLimit) -> None:
        self._prefix, self._limit = f"kuryr_{service}_calls", limit

    def collect(self) -> list[GaugeMetricFamily]:
        limit = GaugeMetricFamily(
            f"{self._prefix}_limit", "Calls that may be in flight at present", self._limit.value
        )
        in_flight = GaugeMetricFamily(
            f"{self._prefix}_in_flight", "Calls in flight by priority", labels=["priority"]
        )
        waiting = GaugeMetricFamily(
            f"{self._prefix}_waiting", "Calls that wait for a slot", labels=["priority"]
        )
        for priority in Priority:
            name = priority.name.lower()
            in_flight.add_metric([name], self._limit.in_flight(priority))
            waiting.add_metric([name], self._limit.waiting(priority))
        projects = GaugeMetricFamily(
            f"{self._prefix}_waiting_projects",
            "Projects whose calls wait for a slot; they take turns",
            self._limit.projects_waiting,
        )
        return [limit, in_flight, waiting, projects]
