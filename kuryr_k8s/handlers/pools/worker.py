"""Runs a pool driver's work, and tells of its trouble on the Node whose pool it is."""

from kuryr_k8s.drivers.base import VIFPoolDriver
from kuryr_k8s.drivers.pools.port_pool import PortPool
from kuryr_k8s.drivers.pools.shared import PoolWork
from kuryr_k8s.handlers.base import HandlerContext, node_reference, words_for_users
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import Key


def pools_of(driver: VIFPoolDriver) -> list[PortPool]:
    """The drivers that keep ports, of those that the options name."""
    return [part for part in driver.parts() if isinstance(part, PortPool)]


class PoolWorker:
    """What a Controller needs to run the work of one pool driver."""

    def __init__(self, context: HandlerContext, pool: PortPool) -> None:
        self._context = context
        self._pool = pool

    async def reconcile(self, key: PoolWork) -> float | None:
        again = await self._pool.work(key)
        if self._pool.is_well(key.key) and (about := self._about(key)):
            self._context.events.well(self._source(key), about)
        return again

    async def report(self, key: PoolWork, error: Exception | None, failures: int) -> None:
        """One Event for a pool, however many Pods wait for it."""
        about = self._about(key)
        if about is None or error is None:
            return
        if words := words_for_users(error, failures):
            reason, note = words
            text = f"ports for Pods of this node in project {key.key.project_id}: {note}"
            await self._context.events.warn(self._source(key), about, reason, text)

    def _source(self, key: PoolWork) -> str:
        return f"{self._pool.name} pool {hash(key.key):x} {key.lane >= 0}"

    def _about(self, key: PoolWork) -> Reference | None:
        name = self._pool.pools.nodes.get(key.key.place, "")
        return node_reference(self._context.informers.nodes.get(Key("", name)))
