"""The order of the daemon's start, and the search for leftovers."""

import asyncio
import logging
from collections.abc import Sequence

from kuryr_k8s import errors
from kuryr_k8s.cni.parts import Job, Part
from kuryr_k8s.cni.pods.attachments import Attachments
from kuryr_k8s.cni.spool import Handle, Spool

LOG = logging.getLogger(__name__)


class Housekeeping(Part):
    """Settles the daemon, then looks for leftovers for ever.

    :param synced: set once the cache of KuryrPorts is filled.
    :param interval: seconds between two searches for leftovers.
    """

    def __init__(
        self,
        attachments: Attachments,
        spool: Spool,
        handle: Handle,
        *,
        synced: asyncio.Event,
        interval: float = 60.0,
    ) -> None:
        self._attachments = attachments
        self._spool = spool
        self._handle = handle
        self._synced = synced
        self._interval = interval

    def loops(self) -> Sequence[Job]:
        """Return the only loop."""
        return [Job("housekeeping", self.run)]

    async def run(self) -> None:
        """Do the DELs that were put off, then search for leftovers until cancelled."""
        self._spool.prepare()
        await self._synced.wait()
        await self._attachments.reachable()
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
            await self._attachments.reachable()
            await self._attachments.sweep()
            await self._spool.drain(self._handle)
        except errors.KuryrError as error:
            LOG.warning("looking for leftovers: %s", error)
