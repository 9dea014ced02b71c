"""The subports of one trunk, attached and detached in batches.

One request is on its way at a time, and what is asked for meanwhile goes together in the next
one. So the VLAN ids that we know of are up to date, but for what others do with the trunk: where
they took an id that we chose, Neutron answers 409; then the trunk is read again, and other ids are
chosen. There is no task behind it: one of the callers sends the request for all.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron import trunks
from kuryr_k8s.cloud.neutron.trunks import Trunk, Trunks
from kuryr_k8s.drivers.vif import vlan_ids

LOG = logging.getLogger(__name__)
T = TypeVar("T")
WINDOW = 0.01  # seconds
SIZE = 50  # ports of one request at the most: Neutron takes 0.1 s for each
CLOSED = ("TrunkDisabled", "TrunkInErrorState")
UNFIT = (*CLOSED, "SubPortMtuGreaterThanTrunkPortMtu")


class TrunkUnfit(errors.Conflict, errors.Refused):
    """The trunk is disabled, or its network's MTU is less than the Pods': in Neutron's words."""

    reason = "KuryrTrunkUnfit"


class _Wish(NamedTuple, Generic[T]):
    port_id: str
    answer: asyncio.Future[T]

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # looked at: perhaps nobody waits any more

    def grant(self, value: T) -> None:
        if not self.answer.done():
            self.answer.set_result(value)


class TrunkPorts:
    """:param attempts: how often ids are chosen for a batch that others are in the way of."""

    def __init__(self, api: Trunks, trunk: Trunk, attempts: int) -> None:
        self.id = trunk.id
        self.parent = trunk.port_id
        self._api = api
        self._attempts = attempts
        self._known: dict[str, int] | None = dict(trunk.vlan_ids)
        self._turn = asyncio.Lock()
        self._wanted: deque[_Wish[int]] = deque()
        self._unwanted: deque[_Wish[None]] = deque()

    def carries(self, port_id: str) -> bool:
        """Whether the port is one of the subports, as far as is known."""
        return self._known is not None and port_id in self._known

    async def attach(self, port_id: str) -> int:
        """Make the port a subport, if it is none yet; its VLAN id.

        :raises errors.OverQuota: there is no free VLAN id.
        :raises errors.NotFound: of kind ``NO_PORT``, or the trunk is gone.
        :raises TrunkUnfit: the trunk takes no ports, or not this one.
        """
        return await self._ask(port_id, self._wanted, self._attach)

    async def detach(self, port_id: str) -> None:
        """The port is no subport of this trunk afterwards; nor if the trunk is gone.

        :raises TrunkUnfit: the trunk is disabled.
        """
        await self._ask(port_id, self._unwanted, self._detach)

    async def _ask(
        self,
        port_id: str,
        waiting: deque[_Wish[T]],
        send: Callable[[list[_Wish[T]]], Awaitable[None]],
    ) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        wish = _Wish(port_id, answer)
        waiting.append(wish)
        try:
            await asyncio.sleep(WINDOW)  # the ports of one bulk request come together
            async with self._turn:
                while not answer.done():
                    await self._send(waiting, send)
        finally:
            if not answer.done():
                answer.cancel()  # it is not to be sent any more
        return await answer

    async def _send(
        self, waiting: deque[_Wish[T]], send: Callable[[list[_Wish[T]]], Awaitable[None]]
    ) -> None:
        batch: list[_Wish[T]] = []
        while waiting and len(batch) < SIZE:
            wish = waiting.popleft()
            if not wish.answer.done():
                batch.append(wish)
        try:
            await send(batch)
        except errors.CloudError as error:
            for wish in batch:
                wish.fail(error)
        finally:
            unknown = errors.CloudError("the request was given up; what came of it is not known")
            for wish in batch:
                wish.fail(unknown)

    async def _attach(self, batch: list[_Wish[int]]) -> None:
        try:
            await self._add(batch)
        except (errors.Conflict, errors.NotFound, errors.BadRequest) as error:
            if len(batch) == 1 or _concerns_all(error):
                raise
            # one port spoils the whole request, and none was attached: alone, each gets its due
            for wish in batch:
                try:
                    await self._add([wish])
                except errors.CloudError as alone:
                    wish.fail(alone)

    async def _add(self, batch: list[_Wish[int]]) -> None:
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
            for wish in batch:
                wish.grant(trunk.vlan_ids[wish.port_id])
            return
        if conflict is not None:
            raise conflict

    async def _choose(self, batch: list[_Wish[int]]) -> dict[str, int]:
        """VLAN ids for those of the batch that have none and can have one; the others are told."""
        known = await self._subports()
        for wish in batch:
            if wish.port_id in known:
                wish.grant(known[wish.port_id])
        left = dict.fromkeys(wish.port_id for wish in batch if not wish.answer.done())
        chosen = dict(zip(left, vlan_ids.free(known.values(), len(left)), strict=False))
        for wish in batch:
            if wish.port_id in left and wish.port_id not in chosen:
                self._known = None  # others may have given some back
                wish.fail(errors.OverQuota(f"no free VLAN id on trunk {self.id}"))
        return chosen

    async def _detach(self, batch: list[_Wish[None]]) -> None:
        left = list(dict.fromkeys(wish.port_id for wish in batch))
        while left:
            try:
                await self._changed(self._api.remove_subports(self.id, left))
                break
            except errors.NotFound as error:
                if error.kind != trunks.NOT_ATTACHED:
                    break  # with the trunk gone, they are ordinary ports
                known = await self._subports()
                still = [port_id for port_id in left if port_id in known]
                if len(still) == len(left):
                    raise
                left = still
        for wish in batch:
            wish.grant(None)

    async def _subports(self) -> dict[str, int]:
        if self._known is None:
            self._known = dict((await self._api.get_trunk(self.id)).vlan_ids)
        return self._known

    async def _changed(self, request: Awaitable[Trunk]) -> Trunk:
        """The answer to a change; without one, what came of it is to be read."""
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
    """Whether it would meet each of the ports alone."""
    gone = isinstance(error, errors.NotFound) and error.kind != trunks.NO_PORT
    return gone or error.kind in CLOSED
