"""Leadership by a Lease (coordination.k8s.io/v1): one controller works, the others stand by.

The holder renews the Lease every third of its duration. It gives up if it could not renew it for
two thirds, which is before anybody else may take it; three attempts fit in between, even if the
requests hang. The time stamps in the Lease are for people.
Its expiry is measured with the reader's own clock, from the moment at which the reader saw the
Lease change.

While a virtual machine is paused, its clocks stand still, and the Lease of a holder in it runs out
unnoticed. Therefore the holder also measures the time since its last renewal with the clock of the
API server, by the ``Date`` of each answer. If that clock is ahead, so much less is left, and the
Lease is renewed at once, or found to be lost. What a machine that goes on sends before the first
answer of the API server reaches it, nothing in it can hold back: see the preconditions of writes.

The holder renews a Lease that bears its identity, and no other: another controller may have
worked since the last look if the Lease is free, expired or deleted by now. Who has lost the Lease
never takes it again.

A standby watches the Lease, and therefore takes one that was released at once. The watch is used
for nothing else: a Lease is taken after a read. If the watch falls silent, or shows less than a
read did, the Lease is read regularly.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime

from kuryr_k8s import errors
from kuryr_k8s.engine.clock import CLOCK, Clock, timeout
from kuryr_k8s.k8s.api import Json, KubeApi
from kuryr_k8s.k8s.resources import LEASES, Key
from kuryr_k8s.k8s.server_clock import ServerClock

LOG = logging.getLogger(__name__)
LOOK = 2.0  # seconds
ATTEMPT = 1 / 9  # of the duration, which one attempt to take or renew the Lease may take
PAUSE = 1 / 45  # of the duration, between two attempts to renew it
RELEASE = 5.0  # seconds that the release of the Lease may take
LATE = 0.01  # seconds: so much after its end a Lease is taken, not before


class LeaseLost(errors.KuryrError):
    """Another controller may work from now on, or has already: stop at once."""


class Lease:
    """The right to write.

    ``holder`` and ``transitions`` are as they were seen last.

    :param duration: Seconds that a Lease outlives its last renewal.
    :param look: Maximum number of seconds between two reads of a Lease that no watch follows.
    :param identity: Our identity, unique to this process.
    """

    def __init__(
        self,
        api: KubeApi,
        key: Key,
        identity: str,
        *,
        duration: float,
        look: float = LOOK,
        clock: Clock = CLOCK,
    ) -> None:
        self.key = key
        self.identity = identity
        self.duration = duration
        self.held = False
        self.holder = ""
        self.transitions = 0
        self._api = api
        self._clock = clock
        self._look = min(look, duration / 10)
        self._version = ""  # resourceVersion seen last
        self._seen = self._expires = clock.now()  # when it was first seen; when it may be taken
        self._deaf = False  # the watch did not tell what a read did
        self._renewed = 0.0
        self._server = ServerClock(clock)
        self._ahead = -math.inf  # the server's clock, when the Lease was renewed
        self._lost = ""  # how, if it was; for good
        self._due = asyncio.Event()  # a renewal, before its time
        self._begun = self._succeeded = 0  # numbers of attempts: the last one, the last success
        self._renewal = asyncio.Event()  # set by the next success

    @property
    def remaining(self) -> float:
        """Seconds for which nobody else can have the Lease; the limit for an outside write."""
        if not self.held:
            return 0.0
        return self._renewed + self.duration - self._clock.now() - self._missed

    @property
    def _missed(self) -> float:
        """Seconds since the last renewal by the server's clock that ours did not count."""
        if self._ahead == -math.inf:  # that server does not tell the time
            return 0.0
        return max(0.0, self._server.ahead - self._ahead)

    def hear(self, date: str) -> None:
        """Note the ``Date`` of an answer that the API server has just given to this process."""
        self._server.hear(date)
        if self.held and self._missed > self.duration * ATTEMPT and not self._due.is_set():
            LOG.warning(
                "Lease %s: by the API server's clock %.0f s more have passed than by ours",
                self.key,
                self._missed,
            )
            self._due.set()

    @property
    def expires_in(self) -> float:
        """Seconds until another controller may take the Lease, as far as we know, or 0.

        0 also means that nobody holds it.
        """
        if self.held or not self.holder:
            return max(0.0, self.remaining)
        return max(0.0, self._expires - self._clock.now())

    async def confirm(self) -> None:
        """Wait until a renewal has succeeded that began after this call.

        For where something suggests that another controller has the Lease. All who ask before a
        renewal begins wait for the same one. If the Lease turns out to be lost, :meth:`hold`
        cancels them with all other work.

        :raises LeaseLost: It was lost, or is not held yet.
        """
        if not self.held:
            raise LeaseLost(self._lost or f"the Lease {self.key} is not held")
        begun = self._begun
        while self._succeeded <= begun:
            self._due.set()
            await self._renewal.wait()

    async def hold(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, run ``work`` while renewing it, and release it at the end.

        :raises LeaseLost: The Lease could not be renewed in time.
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
        """Wait until the Lease is ours; renew it if it is.

        :raises LeaseLost: It was ours.
        """
        logged = False
        while True:
            before, known = self.holder, self._version
            try:
                if await self._attempt():
                    if before not in ("", self.identity):
                        LOG.warning("%s has not renewed the Lease %s", before, self.key)
                    LOG.info("this controller (%s) holds the Lease %s", self.identity, self.key)
                    return
                self._deaf = known not in ("", self._version)
                if not logged:
                    LOG.info("standing by: %s holds the Lease %s", self.holder, self.key)
                    logged = True
                if await self._is_released():
                    continue
            except errors.KubeError as error:
                LOG.log(
                    logging.DEBUG if logged else logging.WARNING, "Lease %s: %s", self.key, error
                )
                self._deaf = logged = True
            await self._clock.sleep(self._look)

    async def _is_released(self) -> bool:
        """Watch until it is time to try for the Lease (True), or until the watch ends."""
        query = {"fieldSelector": f"metadata.name={self.key.name}"}
        events = self._api.watch(LEASES, query, namespace=self.key.namespace, idle=self.duration)
        try:
            async with (
                timeout(self._clock, self._patience()) as give,
                aclosing(events),
            ):
                async for event in events:
                    version = int(event["object"]["metadata"]["resourceVersion"])
                    if event["type"] == "DELETED" or version <= int(self._version or 0):
                        continue  # no news; a server's cache may lag behind what we have read
                    self._deaf = False
                    self._note(event["object"])
                    if self._may_take(event["object"]):
                        return True
                    give(self._patience())
        except TimeoutError:
            return True
        return False

    def _patience(self) -> float:
        """Return the seconds until the Lease must be read if the watch shows nothing."""
        now = self._clock.now()
        overdue = 0.0 if self._deaf else self._seen + self.duration / 2 - now
        end = self._expires + LATE - now
        patience = max(self._look, overdue)
        return min(patience, end) if end > 0 else patience

    async def _renew_for_ever(self) -> None:
        while True:
            await self._until_due()
            deadline = self._renewed + self.duration * 2 / 3 - self._clock.now()
            try:
                async with timeout(self._clock, deadline):
                    await self._renew()
            except TimeoutError as error:
                raise LeaseLost(f"the Lease {self.key} could not be renewed") from error

    async def _until_due(self) -> None:
        """Wait for a third of the duration, or until there is reason to renew the Lease sooner."""
        with suppress(TimeoutError):
            async with timeout(self._clock, self.duration / 3):
                await self._due.wait()
        self._due.clear()

    async def _renew(self) -> None:
        """Renew the Lease, and try again if the API fails.

        :raises LeaseLost: It is not ours any more.
        """
        while True:
            try:
                await self._attempt()
            except errors.KubeError as error:
                LOG.warning("Lease %s: %s", self.key, error)
            else:
                return
            await self._clock.sleep(self.duration * PAUSE)

    async def _attempt(self) -> bool:
        """Try once, but not for long: one request that hangs must leave time for the next one.

        :returns: Whether the Lease is ours afterwards.
        :raises LeaseLost: It was ours.
        :raises errors.KubeError: The API failed, or did not answer in time.
        """
        seconds = self.duration * ATTEMPT
        self._begun += 1
        try:
            async with timeout(self._clock, seconds):
                ours = await self._try()
        except TimeoutError as error:
            raise errors.KubeError(f"no answer within {seconds:.1f} s") from error
        if ours:
            self._succeeded = self._begun
            self._renewal.set()
            self._renewal = asyncio.Event()
        return ours

    async def _try(self) -> bool:
        """Take the Lease if that is allowed, or renew it if it is ours.

        :returns: Whether the Lease is ours afterwards.
        :raises LeaseLost: It was ours.
        :raises errors.KubeConflict: It is ours as far as we know, but changed while we renewed it.
        """
        if self._lost:
            raise LeaseLost(self._lost)
        started = self._clock.now()
        lease = await self._api.find(LEASES, self.key)
        ahead = self._server.ahead  # before the write: what comes after it counts
        if lease is not None:
            self._note(lease)
        if self.held:
            self._require_ours(lease)
        elif not self._may_take(lease):
            return False
        try:
            if lease is None:
                meta: Json = {"namespace": self.key.namespace, "name": self.key.name}
                await self._api.create(LEASES, {"metadata": meta, "spec": self._spec({})})
            else:
                await self._write(lease, self._spec(lease.get("spec") or {}))
        except errors.KubeConflict:
            if self.held:  # by whomever: our own late write, or a label; the next read will tell
                raise
            return False
        self._renewed, self._ahead = started, ahead
        self._server.begin_period()
        self.held = True
        self.holder = self.identity
        return True

    def _require_ours(self, lease: Json | None) -> None:
        """Give the Lease up for good if it does not bear our identity any more.

        :raises LeaseLost: It does not.
        """
        if lease is None:
            self._lost = f"somebody deleted the Lease {self.key}"
        elif self.holder != self.identity:
            self._lost = f"another controller took the Lease {self.key}"
        if self._lost:
            self.held = False
            raise LeaseLost(self._lost)

    def _note(self, lease: Json) -> None:
        """Note what a Lease says that was just read or seen."""
        spec = lease.get("spec") or {}
        version = lease["metadata"]["resourceVersion"]
        if version != self._version:
            self._version, self._seen = version, self._clock.now()
            self._expires = self._seen + float(spec.get("leaseDurationSeconds") or self.duration)
        self.holder = spec.get("holderIdentity") or ""
        self.transitions = spec.get("leaseTransitions") or 0

    def _may_take(self, lease: Json | None) -> bool:
        """Return whether nobody works under the Lease; whoever held a deleted one may still."""
        if lease is not None and self.holder in ("", self.identity):
            return True
        return self._clock.now() >= self._expires

    async def _write(self, lease: Json, changes: Json) -> None:
        """Change fields of the Lease that was read, unless it has changed since.

        This is an update, not a patch: the API server's FlowSchema system-leader-election, which
        lets renewals pass while it is overloaded, covers get, create and update only.
        """
        spec = (lease.get("spec") or {}) | changes
        await self._api.update(LEASES, lease | {"spec": spec})

    def _spec(self, old: Json) -> Json:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: Json = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self.duration)),
            "renewTime": now,
        }
        if old.get("holderIdentity") != self.identity:
            spec["acquireTime"] = now
            self.transitions = (old.get("leaseTransitions") or 0) + 1
            spec["leaseTransitions"] = self.transitions
        return spec

    async def _release(self) -> None:
        """Release the Lease, so that nobody has to wait for its end."""
        if not self.held:
            return
        self.held = False
        try:
            async with asyncio.timeout(RELEASE):
                lease = await self._api.find(LEASES, self.key)
                if lease and lease.get("spec", {}).get("holderIdentity") == self.identity:
                    await self._write(lease, {"holderIdentity": ""})
        except (errors.KubeError, TimeoutError) as error:
            LOG.warning("the Lease %s was not released: %s", self.key, error)
