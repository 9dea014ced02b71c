"""A wire that can be cut: what the client sends goes to a port of this machine, until it is dead.

Several clients of one server, each behind a relay of its own, die one by one.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Relay:
    """Bytes in both directions; `url` is the target's with the relay's own port."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._host, self._port = parts.hostname, parts.port
        self._scheme = parts.scheme
        self._server: asyncio.Server | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._dead = False
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"{self._scheme}://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cut()
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def cut(self) -> None:
        """From now on nothing gets through, in either direction."""
        self._dead = True
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._dead:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection(self._host, self._port)
        ends = {writer, back}
        self._writers |= ends
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, back))
                group.create_task(_pump(there, writer))
        finally:
            self._writers -= ends
            for end in ends:
                end.transport.abort()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Until the source ends; then the target does."""
    try:
        while chunk := await source.read(2**16):
            target.write(chunk)
            await target.drain()
    except ConnectionError:
        pass
    target.close()
