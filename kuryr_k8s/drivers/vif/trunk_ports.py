"""The subports of one trunk, attached and detached in batches.

One request is in flight at a time, and ports that are requested meanwhile go together in the next
one. So the known VLAN ids are up to date, except for changes that others make: where they took an
id that was chosen here, Neutron answers 409; then the trunk is read again, and other ids are
chosen. There is no background task: one of the callers sends the request for all of them.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron import trunks
from kuryr_k8s.cloud.neutron.trunks import Trunk, Trunks
from kuryr_k8s.drivers.base import NoVLANID
from kuryr_k8s.drivers.vif import vlan_ids

LOG = logging.getLogger(__name__)
T = TypeVar("T")
WINDOW = 0.01  # seconds
SIZE = 50  # the most ports of one request: Neutron takes 0.1 s for each
CLOSED = ("TrunkDisabled", "TrunkInErrorState")
UNFIT = (*CLOSED, "SubPortMtuGreaterThanTrunkPortMtu")


class TrunkUnfit(errors.Conflict, errors.Refused):
    """The trunk is disabled, or its network's MTU is less than the Pods'."""

    reason = "KuryrTrunkUnfit"


class _Request(NamedTuple, Generic[T]):
    port_id: str
    answer: asyncio.Future[T]

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # retrieved, since perhaps nobody waits any more

    def grant(self, value: T) -> None:
        if not self.answer.done():
            self.answer.set_result(value)


class TrunkPorts:
    """The subports of one trunk.

    :param attempts: how often VLAN ids are chosen for a batch while others take them.
    """

    def __init__(self, api: Trunks, trunk: Trunk, attempts: int) -> None:
        self.id = trunk.id
        self.parent = trunk.port_id
        self._api = api
        self._attempts = attempts
        self._known: dict[str, int] | None = dict(trunk.vlan_ids)
        self._turn = asyncio.Lock()
        self._to_attach: deque[_Request[int]] = deque()
        self._to_detach: deque[_Request[None]] = deque()

    def carries(self, port_id: str) -> bool:
        """Return whether the port is a subport, as far as is known."""
        return self._known is not None and port_id in self._known

    def reread(self) -> None:
        """Read the subports again before the next change: others may have detached one."""
        self._known = None

    async def attach(self, port_id: str) -> int:
        """Make the port a subport, unless it is one already.

        :returns: its VLAN id.
        :raises NoVLANID: there is no free VLAN id.
        :raises errors.NotFound: of kind ``NO_PORT``, or the trunk is gone.
        :raises TrunkUnfit: the trunk takes no ports, or not this one.
        """
        return await self._ask(port_id, self._to_attach, self._attach)

    async def detach(self, port_id: str) -> None:
        """Make sure that the port is not a subport; if the trunk is gone, it is not.

        :raises TrunkUnfit: the trunk is disabled.
        """
        await self._ask(port_id, self._to_detach, self._detach)

    async def _ask(
        self,
        port_id: str,
        waiting: deque[_Request[T]],
        send: Callable[[list[_Request[T]]], Awaitable[None]],
    ) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        request = _Request(port_id, answer)
        waiting.append(request)
        try:
            await asyncio.sleep(WINDOW)  # the ports of one bulk request are attached together
            async with self._turn:
                while not answer.done():
                    await self._send(waiting, send)
        finally:
            if not answer.done():
                answer.cancel()  # so that it is not sent any more
        return await answer

    async def _send(
        self, waiting: deque[_Request[T]], send: Callable[[list[_Request[T]]], Awaitable[None]]
    ) -> None:
        batch: list[_Request[T]] = []
        while waiting and len(batch) < SIZE:
            request = waiting.popleft()
            if not request.answer.done():
                batch.append(request)
        try:
            await send(batch)
        except errors.CloudError as error:
            for request in batch:
                request.fail(error)
        finally:
            unknown = errors.CloudError("the request was cancelled; its outcome is unknown")
            for request in batch:
                request.fail(unknown)

    async def _attach(self, batch: list[_Request[int]]) -> None:
        try:
            await self._add(batch)
        except (errors.Conflict, errors.NotFound, errors.BadRequest) as error:
            if len(batch) == 1 or _concerns_all(error):
                raise
            # one port made the request fail, and none was attached: each gets its own answer alone
            for request in batch:
                try:
                    await self._add([request])
                except errors.CloudError as alone:
                    request.fail(alone)

    async def _add(self, batch: list[_Request[int]]) -> None:
        conflict: errors.CloudError | None = None
        for _ in range(self._attempts):
            chosen = await self._choose(batch)
            if not chosen:
                return
            try:
                trunk = await self._changed(self._api.add_subports(self.id, chosen))
            except errors.Conflict as error:
                if error.kind not in (trunks.VLAN_TAKEN, trunks.ATTACHED):
                    raise
                LOG.info("trunk %s is used by others too: %s", self.id, error.brief)
                conflict = error
                continue
            for request in batch:
                request.grant(trunk.vlan_ids[request.port_id])
            return
        if conflict is not None:
            raise conflict

    async def _choose(self, batch: list[_Request[int]]) -> dict[str, int]:
        """Choose VLAN ids for the ports of the batch, and answer the requests that need none."""
        known = await self._subports()
        for request in batch:
            if request.port_id in known:
                request.grant(known[request.port_id])
        left = dict.fromkeys(request.port_id for request in batch if not request.answer.done())
        chosen = dict(zip(left, vlan_ids.free(known.values(), len(left)), strict=False))
        for request in batch:
            if request.port_id in left and request.port_id not in chosen:
                self._known = None  # others may have freed some
                request.fail(NoVLANID(f"no free VLAN id on trunk {self.id}"))
        return chosen

    async def _detach(self, batch: list[_Request[None]]) -> None:
        left = list(dict.fromkeys(request.port_id for request in batch))
        while left:
            try:
                await self._changed(self._api.remove_subports(self.id, left))
                break
            except errors.NotFound as error:
                if error.kind != trunks.NOT_ATTACHED:
                    break  # without the trunk, they are ordinary ports
                known = await self._subports()
                still = [port_id for port_id in left if port_id in known]
                if len(still) == len(left):
                    raise
                left = still
        for request in batch:
            request.grant(None)

    async def _subports(self) -> dict[str, int]:
        if self._known is None:
            self._known = dict((await self._api.get_trunk(self.id)).vlan_ids)
        return self._known

    async def _changed(self, request: Awaitable[Trunk]) -> Trunk:
        """Send a change; without an answer, the subports are read again before the next one."""
        self._known = None
        try:
            trunk = await request
        except errors.Conflict as error:
            if error.kind in UNFIT:
                raise TrunkUnfit(
                    error.brief,
                    status=error.status,
                    request_id=error.request_id,
                    kind=error.kind,
                ) from error
            raise
        self._known = dict(trunk.vlan_ids)
        return trunk


def _concerns_all(error: errors.CloudError) -> bool:
    """Return whether each of the ports would fail alone, too."""
    gone = isinstance(error, errors.NotFound) and error.kind != trunks.NO_PORT
    return gone or error.kind in CLOSED
