"""Calls of OpenStack APIs, counted for Prometheus."""

import re

from prometheus_client import CollectorRegistry, Histogram

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class CallMetrics:
    """Counts calls by method, kind of object and outcome: a Transport's ``observe``."""

    def __init__(self, service: str, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            f"kuryr_{service}_call_seconds",
            f"Calls of {service} by method, kind and HTTP status (0: no answer)",
            ["method", "kind", "status"],
            buckets=SECONDS,
            registry=registry,
        )

    def __call__(self, method: str, path: str, status: int, seconds: float) -> None:
        found = re.match(r"/([a-z-]+)", path)
        kind = found.group(1) if found else "other"
        self._seconds.labels(method, kind, str(status)).observe(seconds)
