"""Events on the Nodes whose pools are in trouble."""

from collections.abc import Mapping

from kuryr_k8s.drivers.base import DriverContext
from kuryr_k8s.drivers.pools.parts import UPKEEP, PoolTask
from kuryr_k8s.k8s.events import Reference, node_reference, words_for_users
from kuryr_k8s.k8s.resources import NODES, Key


class PoolReporter:
    """Reports a pool's trouble by one Event, however many Pods wait for the pool.

    :param name: of the pool driver.
    :param places: the names of the Nodes, by place.
    """

    def __init__(self, name: str, context: DriverContext, places: Mapping[str, str]) -> None:
        self._name = name
        self._events = context.events
        self._nodes = context.informers.of(NODES)
        self._places = places

    def well(self, task: PoolTask) -> None:
        """Note that the pool has what it needs."""
        if about := self._about(task):
            self._events.well(self._source(task), about)

    async def report(self, key: PoolTask, error: Exception | None, failures: int) -> None:
        """Report the outcome of a task."""
        about = self._about(key)
        if about is None or error is None:
            return
        if words := words_for_users(error, failures):
            reason, note = words
            text = f"ports for Pods of this node in project {key.key.project_id}: {note}"
            await self._events.warn(self._source(key), about, reason, text)

    def _source(self, task: PoolTask) -> str:
        return f"{self._name} pool {hash(task.key):x} {task.number != UPKEEP}"

    def _about(self, task: PoolTask) -> Reference | None:
        name = self._places.get(task.key.place, "")
        return node_reference(self._nodes.get(Key("", name)))
