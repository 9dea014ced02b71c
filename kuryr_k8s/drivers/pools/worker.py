"""The workers of a pool driver, and the Events on the Nodes whose pools are in trouble."""

from typing import Protocol

from kuryr_k8s.drivers.base import DriverContext, PoolKey
from kuryr_k8s.drivers.pools.shared import Pools, PoolWork
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.k8s.events import Reference, node_reference, words_for_users
from kuryr_k8s.k8s.resources import NODES, Key

WORKERS = 128  # creations, and rounds of upkeep, at the same time


class Worked(Protocol):
    """What the workers need of a pool driver."""

    @property
    def name(self) -> str:
        """Return the driver's name."""

    @property
    def pools(self) -> Pools:
        """Return its pools."""

    async def work(self, work: PoolWork) -> float | None:
        """Do one piece of work; return the seconds until the next, if any."""

    def is_well(self, key: PoolKey) -> bool:
        """Return whether the pool has what it wants."""


def pool_loop(context: DriverContext, pool: Worked) -> Controller[PoolWork]:
    """Return the loop that runs a pool driver's work."""
    worker = _Worker(context, pool)
    return Controller[PoolWork](
        f"pool-{pool.name}",
        worker.reconcile,
        queue=WorkQueue(context.clock, cap=context.patience.sweep_retry),  # Pods wait for pools
        workers=WORKERS,
        report=worker.report,
        observe=context.observe,
        patience=context.patience,
    )


class _Worker:
    def __init__(self, context: DriverContext, pool: Worked) -> None:
        self._events = context.events
        self._nodes = context.informers.of(NODES)
        self._pool = pool

    async def reconcile(self, key: PoolWork) -> float | None:
        again = await self._pool.work(key)
        if self._pool.is_well(key.key) and (about := self._about(key)):
            self._events.well(self._source(key), about)
        return again

    async def report(self, key: PoolWork, error: Exception | None, failures: int) -> None:
        """Report trouble by one Event for a pool, however many Pods wait for it."""
        about = self._about(key)
        if about is None or error is None:
            return
        if words := words_for_users(error, failures):
            reason, note = words
            text = f"ports for Pods of this node in project {key.key.project_id}: {note}"
            await self._events.warn(self._source(key), about, reason, text)

    def _source(self, key: PoolWork) -> str:
        return f"{self._pool.name} pool {hash(key.key):x} {key.lane >= 0}"

    def _about(self, key: PoolWork) -> Reference | None:
        name = self._pool.pools.nodes.get(key.key.place, "")
        return node_reference(self._nodes.get(Key("", name)))
