"""Reports of the nodes to the fake cloud's data plane."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from bench.testbed.cloud_control import CloudControl


class _Report(NamedTuple):
    plugged: bool
    ports: list[str]
    sent: asyncio.Future[None]


class DataPlaneClient:
    """A client of the data plane that sends reports of the same moment in one call.

    A plugged port becomes ACTIVE in `after` seconds.
    """

    def __init__(self, cloud: CloudControl, after: float) -> None:
        self._cloud = cloud
        self.after = after
        self._queue: asyncio.Queue[_Report] = asyncio.Queue()

    async def plug(self, ports: list[str]) -> None:
        """Report the ports as plugged; return when they are ACTIVE."""
        due = asyncio.get_running_loop().time() + self.after
        await self._report(ports, plugged=True)
        await asyncio.sleep(due - asyncio.get_running_loop().time())

    async def unplug(self, ports: list[str]) -> None:
        """Report the ports as unplugged; return when they are DOWN."""
        await self._report(ports, plugged=False)

    async def run(self) -> None:
        """Send the reports until cancelled."""
        while True:
            reports = [await self._queue.get()]
            while not self._queue.empty():
                reports.append(self._queue.get_nowait())
            if plugged := _ports(reports, plugged=True):
                await self._cloud.plug(plugged, self.after)
            if unplugged := _ports(reports, plugged=False):
                await self._cloud.unplug(unplugged)
            for report in reports:
                if not report.sent.done():
                    report.sent.set_result(None)

    async def _report(self, ports: list[str], *, plugged: bool) -> None:
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(_Report(plugged, ports, sent))
        await sent


def _ports(reports: list[_Report], *, plugged: bool) -> list[str]:
    return [port for report in reports if report.plugged == plugged for port in report.ports]
