"""Bulk requests for ports that are requested at the same time.

In each WINDOW a few requests may go (a few, since Neutron creates the ports of one request one
after another). The first ports that come go at once and alone; those that come after them go
together when the window ends. There is no task behind it: one of the callers of each batch sends
the request for all.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from kuryr_k8s import errors

Json = dict[str, Any]
WINDOW = 0.1  # seconds
REQUESTS = 4  # in a window, unless they would have more ports than SIZE
SUSTAINED = 2  # in a window that follows one in which all requests were needed
SIZE = 20  # ports of one request, at the most
IN_FLIGHT = 12  # requests of a project at the most; meanwhile the next ones grow


class _Batch(NamedTuple):
    bodies: list[Json]
    ports: asyncio.Future[list[Json]]

    def fail(self, error: Exception) -> None:
        if not self.ports.done():
            self.ports.set_exception(error)
            self.ports.exception()  # retrieved: perhaps nobody waits any more


class _Turn(NamedTuple):
    """The place of the caller's port in a batch; the caller of the first port sends the batch."""

    batch: _Batch
    place: int


class PortBatches:
    """Batches of ports to create.

    :param send: Creates all the ports of a list, in its order, or none.
    """

    def __init__(self, send: Callable[[list[Json]], Awaitable[list[Json]]]) -> None:
        self._send = send
        self._in_flight = 0
        self._waiting: deque[tuple[Json, asyncio.Future[_Turn]]] = deque()
        self._window_ends = -math.inf
        self._left = 0  # requests that the window has left
        self._timer: asyncio.TimerHandle | None = None

    async def create(self, body: Json) -> Json:
        """Create one port, perhaps together with others.

        :raises errors.CloudError: As if the port had been requested alone.
        """
        future: asyncio.Future[_Turn] = asyncio.get_running_loop().create_future()
        self._waiting.append((body, future))
        self._set_timer()
        try:
            turn = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result().place == 0:
                self._end(future.result().batch)
            raise
        if turn.place == 0:
            await self._send_batch(turn.batch)
        try:
            return (await asyncio.shield(turn.batch.ports))[turn.place]
        except asyncio.CancelledError:
            await asyncio.wait([turn.batch.ports])  # it is under way: nobody may ask meanwhile
            raise
        except errors.CloudError as error:
            if len(turn.batch.bodies) == 1 or not _is_refusal(error):
                raise
            # one port made the whole request fail: alone, each port gets its own answer
            return (await self._send([body]))[0]

    async def _send_batch(self, batch: _Batch) -> None:
        try:
            batch.ports.set_result(await self._send(batch.bodies))
        except Exception as error:
            batch.fail(error)
        finally:
            self._end(batch)

    def _end(self, batch: _Batch) -> None:
        batch.fail(errors.CloudError("the request was abandoned; its outcome is unknown"))
        self._in_flight -= 1
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is None and self._waiting and self._in_flight < IN_FLIGHT:
            loop = asyncio.get_running_loop()
            delay = 0.0 if self._left else max(0.0, self._window_ends - loop.time())
            self._timer = loop.call_later(delay, self._divide)

    def _divide(self) -> None:
        """Make batches of the waiting ports; those for which no request is left wait on."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        if now >= self._window_ends:
            goes_on = not self._left and now < self._window_ends + WINDOW
            self._window_ends, self._left = now + WINDOW, SUSTAINED if goes_on else REQUESTS
        waiting = [(body, future) for body, future in self._waiting if not future.done()]
        count = max(min(self._left, len(waiting)), math.ceil(len(waiting) / SIZE))
        count = min(count, IN_FLIGHT - self._in_flight)
        self._left = max(0, self._left - count)
        size = min(SIZE, math.ceil(len(waiting) / count)) if count else 0
        for start in range(0, min(len(waiting), count * size), size or 1):
            self._form(waiting[start : start + size])
        self._waiting = deque(waiting[count * size :])
        self._set_timer()

    def _form(self, members: list[tuple[Json, asyncio.Future[_Turn]]]) -> None:
        ports: asyncio.Future[list[Json]] = asyncio.get_running_loop().create_future()
        batch = _Batch([body for body, _ in members], ports)
        self._in_flight += 1
        for place, (_, future) in enumerate(members):
            future.set_result(_Turn(batch, place))


def _is_refusal(error: errors.CloudError) -> bool:
    """Return whether Neutron created nothing because of what was requested."""
    kinds = (errors.BadRequest, errors.NotFound, errors.Conflict, errors.OverQuota)
    return isinstance(error, kinds) and error.status != 401
