"""What the daemon does of its own accord: the order of its start, and cleaning up."""

import asyncio
import logging

from kuryr_k8s import errors
from kuryr_k8s.cni.pods.attachments import Attachments
from kuryr_k8s.cni.spool import Handle, Spool

LOG = logging.getLogger(__name__)


class Housekeeping:
    """:param synced: the caches are filled. :param connected: Open vSwitch is reached.
    :param interval: seconds between two looks for leftovers.
    """

    def __init__(
        self,
        attachments: Attachments,
        spool: Spool,
        handle: Handle,
        *,
        synced: asyncio.Event,
        connected: asyncio.Event,
        interval: float = 60.0,
    ) -> None:
        self._attachments = attachments
        self._spool = spool
        self._handle = handle
        self._synced = synced
        self._connected = connected
        self._interval = interval

    async def run(self) -> None:
        """Settle, then look for leftovers for ever."""
        self._spool.prepare()
        await self._synced.wait()
        await self._connected.wait()
        left = await self._spool.drain(self._handle)
        self._attachments.settled.set()
        LOG.info(
            "settled: %d interfaces are attached, %d DELs put off",
            len(self._attachments.all()),
            left,
        )
        while True:
            await self._tidy()
            await asyncio.sleep(self._interval)

    async def _tidy(self) -> None:
        try:
            await self._connected.wait()
            await self._attachments.sweep()
            await self._spool.drain(self._handle)
        except errors.KuryrError as error:
            LOG.warning("looking for leftovers: %s", error)
