"""The UNIX socket that kuryr-cni connects to. See kuryr-cni.c for the protocol."""

import asyncio
import contextlib
import logging
import select
import socket
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from kuryr_k8s.cni.patience import USUAL, Patience
from kuryr_k8s.engine.unix_socket import bind, user_of

LOG = logging.getLogger(__name__)
LARGEST = 4 * 1024 * 1024  # bytes of a request: GC lists all attachments of the node
Handle = Callable[[bytes], Awaitable[tuple[int, bytes]]]


class Server:
    """Hands each request to ``handle``, and sends back its (exit code, standard output).

    ``serving`` is set as soon as requests are taken. A request that nobody waits for any more is
    not begun: kuryr-cni has told the runtime that it failed, or has put it off, and the runtime
    may have sent others since.

    :param users: the numeric ids of the users that may send requests.
    """

    def __init__(
        self,
        path: Path,
        handle: Handle,
        *,
        users: Collection[int] = (0,),
        patience: Patience = USUAL,
    ) -> None:
        self.serving = asyncio.Event()
        self._path = path
        self._handle = handle
        self._users = users
        self._patience = patience.exchange

    async def run(self, stop: asyncio.Event, *, grace: float = 5.0) -> None:
        """Serve until ``stop`` is set; the requests that are being done then get time to end.

        :param grace: their time, in seconds.
        :raises errors.ConfigError: the socket cannot be made.
        """
        channel = bind(self._path)
        tasks: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:

            def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = group.create_task(self._serve(reader, writer), name="cni-request")
                tasks.add(task)
                task.add_done_callback(tasks.discard)

            server = await asyncio.start_unix_server(accept, sock=channel, backlog=1024)
            self.serving.set()
            try:
                await stop.wait()
            finally:
                server.close()
            if tasks:
                await asyncio.wait(tasks, timeout=grace)
            for task in tasks:
                task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):
            try:
                if self._peer(writer) in self._users:
                    async with asyncio.timeout(self._patience):
                        request = await _read(reader)
                    if _left(writer.get_extra_info("socket")):
                        LOG.warning("dropped a request: kuryr-cni does not wait for it any more")
                        return
                    code, answer = await self._handle(request)
                    writer.write(b"%d %d\n" % (code, len(answer)) + answer)
                    async with asyncio.timeout(self._patience):
                        await writer.drain()
            finally:
                writer.close()

    def _peer(self, writer: asyncio.StreamWriter) -> int:
        user = user_of(writer.get_extra_info("socket"))
        if user not in self._users:
            LOG.warning("refused a request of user %d", user)
        return user


def _left(channel: socket.socket) -> bool:
    """Return whether the other side has closed its socket, and not only stopped sending."""
    poll = select.poll()
    poll.register(channel.fileno(), 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Read a request up to its end. One that is too long is cut off, and so becomes invalid.

    Even that one is read to its end: a client that is still writing would never read the answer.
    """
    parts: list[bytes] = []
    length = 0
    while part := await reader.read(65536):
        if length < LARGEST:
            parts.append(part)
        length += len(part)
    return b"".join(parts)
