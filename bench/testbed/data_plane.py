"""Tells the fake cloud which ports nodes have plugged: many in one call, when they come so."""

from __future__ import annotations

import asyncio

from bench.testbed.fake_cloud import CloudControl


class Wiring:
    """A port that is plugged becomes ACTIVE `after` so many seconds."""

    def __init__(self, cloud: CloudControl, after: float) -> None:
        self._cloud = cloud
        self.after = after
        self._queue: asyncio.Queue[tuple[bool, list[str], asyncio.Future[None]]] = asyncio.Queue()

    async def plug(self, ports: list[str]) -> None:
        """Returns when they are ACTIVE."""
        due = asyncio.get_running_loop().time() + self.after
        await self._tell(True, ports)
        await asyncio.sleep(due - asyncio.get_running_loop().time())

    async def unplug(self, ports: list[str]) -> None:
        """Returns when they are DOWN."""
        await self._tell(False, ports)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            waiting = [await self._queue.get()]
            while not self._queue.empty():
                waiting.append(self._queue.get_nowait())
            for plugged in (True, False):
                ports = [port for one in waiting if one[0] == plugged for port in one[1]]
                if ports and plugged:
                    await self._cloud.plug(ports, self.after)
                elif ports:
                    await self._cloud.unplug(ports)
            for _, _, told in waiting:
                if not told.done():
                    told.set_result(None)

    async def _tell(self, plugged: bool, ports: list[str]) -> None:
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((plugged, ports, told))
        await told
