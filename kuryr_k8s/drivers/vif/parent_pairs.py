"""Address pairs of Pods on the ports of their nodes, changed in batches.

One change of a port is in flight at a time, and what is asked for meanwhile goes together in the
next one. There is no background task: one of the callers sends the change for all of them.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.address_pairs import AddressPair, AddressPairs, is_about_pairs
from kuryr_k8s.engine.limit import Priority, current_priority, prioritized

LOG = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Request:
    """A change that a caller waits for.

    :param remove: the MACs of the pairs that go.
    """

    add: frozenset[AddressPair]
    remove: frozenset[str]
    priority: Priority
    answer: asyncio.Future[None]

    def contradicts(self, other: "_Request") -> bool:
        """Return whether one of both adds pairs of a MAC whose pairs the other one removes."""
        return any(
            pair.mac_address in later.remove
            for earlier, later in ((self, other), (other, self))
            for pair in earlier.add
        )


@dataclass(slots=True, eq=False)
class _Port:
    """The requests for one port.

    :param waiting: the requests of all callers, in the order in which they came.
    """

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[_Request] = field(default_factory=list)


class ParentPairs:
    """The changes of all nodes' ports.

    :param attempts: see :meth:`AddressPairs.change`.
    """

    def __init__(self, api: AddressPairs, attempts: int) -> None:
        self._api = api
        self._attempts = attempts
        self._ports: defaultdict[str, _Port] = defaultdict(_Port)

    async def add(self, port_id: str, pairs: Collection[AddressPair]) -> None:
        """Add pairs; see :meth:`AddressPairs.change` for what is raised."""
        await self._ask(port_id, frozenset(pairs), frozenset())

    async def remove(self, port_id: str, mac: str) -> None:
        """Remove all pairs of a MAC; those of a port that is gone are gone.

        Neutron checks what stays, too. Where it refuses that, the pairs stay.
        """
        try:
            await self._ask(port_id, frozenset(), frozenset({mac}))
        except errors.NotFound:
            return
        except errors.CloudError as error:
            if not is_about_pairs(error):
                raise
            LOG.error("port %s keeps the address pairs of %s: %s", port_id, mac, error)

    async def _ask(
        self, port_id: str, add: frozenset[AddressPair], remove: frozenset[str]
    ) -> None:
        port = self._ports[port_id]
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request = _Request(add, remove, current_priority(), answer)
        port.waiting.append(request)
        try:
            async with port.turn:
                while not answer.done():
                    await self._send(port_id, port)
            await answer
        finally:  # whether or not it was sent: where its sender was cancelled, another one sends
            port.waiting.remove(request)
            if not port.waiting:
                del self._ports[port_id]

    async def _send(self, port_id: str, port: _Port) -> None:
        """Send what is waiting, up to what contradicts it: of two, the later one counts."""
        batch: list[_Request] = []
        for request in (each for each in port.waiting if not each.answer.done()):
            if any(request.contradicts(each) for each in batch):
                break
            batch.append(request)
        with prioritized(min(request.priority for request in batch)):
            await self._try(port_id, batch)

    async def _try(self, port_id: str, batch: Sequence[_Request]) -> None:
        """Send a batch; if it is refused, first what makes room, and then each of the others."""
        try:
            await self._change(port_id, batch)
        except errors.CloudError as error:
            removals = [request for request in batch if request.remove]
            parts = [removals, *([request] for request in batch if request.add)]
            if is_about_pairs(error) and len(batch) > max(map(len, parts)):
                for part in filter(None, parts):
                    await self._try(port_id, part)
            else:
                for request in batch:
                    _fail(request, error)

    async def _change(self, port_id: str, batch: Collection[_Request]) -> None:
        add: set[AddressPair] = set().union(*(request.add for request in batch))
        remove: set[str] = set().union(*(request.remove for request in batch))
        await self._api.change(port_id, add=add, remove=remove, attempts=self._attempts)
        for request in batch:
            if not request.answer.done():
                request.answer.set_result(None)


def _fail(request: _Request, error: Exception) -> None:
    if not request.answer.done():
        request.answer.set_exception(error)
        request.answer.exception()  # retrieved, since perhaps nobody waits any more
