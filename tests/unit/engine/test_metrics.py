"""What Prometheus reads of loops and their queues."""

from prometheus_client import CollectorRegistry

from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.metrics import QueueMetrics, ReconcileMetrics


async def test_reconciles_are_timed_and_keys_at_work_are_told_from_those_that_wait():
    registry = CollectorRegistry()
    keys = []  # at work, and waiting: during each reconcile

    def value(name, **labels):
        return registry.get_sample_value(name, {"handler": "vif", **labels})

    async def reconcile(_key):
        keys.append((value("kuryr_queue_active"), value("kuryr_queue_keys")))

    loop = Controller("vif", reconcile, observe=ReconcileMetrics(registry))
    registry.register(QueueMetrics({"vif": loop.queue}))
    for key in "abc":
        loop.queue.add(key)
    for _ in "abc":
        key = await loop.queue.get()
        await loop.step(key)
        loop.queue.done(key)
    assert keys == [(1, 2), (1, 1), (1, 0)]
    assert value("kuryr_queue_active") == 0
    assert value("kuryr_reconcile_seconds_count") == 3
    assert value("kuryr_reconciles_total", outcome="success") == 3
