"""One controller at work, the others standing by: a Lease (coordination.k8s.io/v1).

The holder renews it every third of its duration, and gives up when it could
not for two thirds: before anybody else may take it. The stamps written are
for people; expiry is measured with the reader's own clock, from the moment
at which it saw the Lease change.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from kuryr_k8s import errors
from kuryr_k8s.k8s.api import Json, KubeApi
from kuryr_k8s.k8s.resources import LEASES, Key

LOG = logging.getLogger(__name__)


class LeaseLost(errors.KuryrError):
    """Another controller may be at work from now on: stop at once."""


class Lease:
    """The right to write.

    :param duration: seconds that a Lease outlives its last renewal.
    :param identity: who we are, unique to this process.
    """

    def __init__(
        self,
        api: KubeApi,
        key: Key,
        identity: str,
        *,
        duration: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._key = key
        self._identity = identity
        self._duration = duration
        self._clock = clock
        self._observed: tuple[str, float] = ("", 0.0)  # resourceVersion, when first seen
        self._renewed = 0.0
        self.held = False

    @property
    def remaining(self) -> float:
        """Seconds for which nobody else can have it; what an outside write may take at most."""
        return self._renewed + self._duration - self._clock() if self.held else 0.0

    async def hold(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, then run ``work`` while renewing; give it back at the end.

        :raises LeaseLost: it could not be renewed in time.
        """
        await self.acquire()
        try:
            async with asyncio.TaskGroup() as group:
                renewal = group.create_task(self._renew_for_ever(), name="lease")
                await work()
                renewal.cancel()
        finally:
            await self._release()

    async def acquire(self) -> None:
        """Return when the Lease is ours."""
        told = False
        while True:
            try:
                if await self._try():
                    LOG.info("this controller (%s) holds the Lease %s", self._identity, self._key)
                    return
                if not told:
                    LOG.info("standing by: another controller holds the Lease %s", self._key)
                    told = True
            except errors.KubeError as error:
                LOG.warning("Lease %s: %s", self._key, error)
            await asyncio.sleep(self._duration / 5)

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._duration / 3)
            deadline = self._renewed + self._duration * 2 / 3 - self._clock()
            try:
                async with asyncio.timeout(deadline):
                    await self._renew()
            except TimeoutError as error:
                raise LeaseLost(f"the Lease {self._key} could not be renewed") from error

    async def _renew(self) -> None:
        """Return when it is renewed; an API that fails is asked again."""
        while True:
            try:
                if await self._try():
                    return
                raise LeaseLost(f"another controller took the Lease {self._key}")
            except errors.KubeError as error:
                LOG.warning("Lease %s: %s", self._key, error)
            await asyncio.sleep(self._duration / 15)

    async def _try(self) -> bool:
        """Take or renew the Lease if that is allowed; whether it is ours afterwards."""
        started = self._clock()
        lease = await self._api.find(LEASES, self._key)
        try:
            if lease is None:
                meta: Json = {"namespace": self._key.namespace, "name": self._key.name}
                await self._api.create(LEASES, {"metadata": meta, "spec": self._spec({})})
            elif self._may_take(lease):
                await self._write(lease, self._spec(lease.get("spec", {})))
            else:
                self.held = False
                return False
        except errors.KubeConflict:
            self.held = False
            return False
        self._renewed = started
        self.held = True
        return True

    def _may_take(self, lease: Json) -> bool:
        spec = lease.get("spec") or {}
        if not spec.get("holderIdentity") or spec["holderIdentity"] == self._identity:
            return True
        version = lease["metadata"]["resourceVersion"]
        if version != self._observed[0]:
            self._observed = (version, self._clock())
        expires = self._observed[1] + float(spec.get("leaseDurationSeconds") or self._duration)
        return self._clock() > expires

    async def _write(self, lease: Json, spec: Json) -> None:
        version = lease["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "spec": spec}
        await self._api.merge_patch(LEASES, self._key, patch)

    def _spec(self, old: Json) -> Json:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: Json = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._duration)),
            "renewTime": now,
        }
        if old.get("holderIdentity") != self._identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (old.get("leaseTransitions") or 0) + 1
        return spec

    async def _release(self) -> None:
        """Give the Lease back, so that nobody has to wait for its end."""
        if not self.held:
            return
        self.held = False
        try:
            async with asyncio.timeout(2.0):
                lease = await self._api.find(LEASES, self._key)
                if lease and lease.get("spec", {}).get("holderIdentity") == self._identity:
                    await self._write(lease, {"holderIdentity": ""})
        except (errors.KubeError, TimeoutError) as error:
            LOG.warning("the Lease %s was not given back: %s", self._key, error)
