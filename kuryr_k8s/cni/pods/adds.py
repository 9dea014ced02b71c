"""Requests in flight: which ADD may run, and how it is called off."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from kuryr_k8s.cni.protocol import TRY_LATER, Attached, CNIError, Request


class Flight:
    """One ADD. ``plugging`` from the moment on that it may have touched the node."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.attached = Attached(container_id=request.container_id, ifname=request.ifname)
        self.plugging = False
        self.called_off = ""
        self.over = asyncio.Event()
        self._scope: asyncio.Timeout | None = None

    @contextlib.asynccontextmanager
    async def limited(self, deadline: float) -> AsyncIterator[None]:
        """Run the body until the loop's time ``deadline`` at the most, or until called off.

        :raises TimeoutError: either of both.
        """
        if self.called_off:
            raise TimeoutError
        async with asyncio.timeout_at(deadline) as self._scope:
            yield

    async def call_off(self, why: str) -> None:
        """End it, and wait until it has cleaned up."""
        self.called_off = why
        if self._scope is not None and not self._scope.expired():
            with contextlib.suppress(RuntimeError):  # the body is over already
                self._scope.reschedule(asyncio.get_running_loop().time())
        await self.over.wait()


class Flights:
    """The ADDs of the node: one at a time for each attachment, and for each interface of a Pod.

    The newest sandbox of a Pod is the one that counts, so it calls off the ADD of another.
    """

    def __init__(self) -> None:
        self._flights: dict[Attached, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def of_container(self, container_id: str) -> bool:
        return any(attached.container_id == container_id for attached in self._flights)

    def plugging(self, pod_uid: str) -> bool:
        """Is an ADD of this Pod at work on the node, or was it when it last looked?"""
        return any(
            flight.plugging and flight.request.pod_uid == pod_uid
            for flight in self._flights.values()
        )

    def find(self, attached: Attached) -> Flight | None:
        return self._flights.get(attached)

    @contextlib.asynccontextmanager
    async def admitted(self, request: Request, deadline: float) -> AsyncIterator[Flight]:
        """Wait for an ADD of the same attachment, call off one of the Pod's other sandbox.

        :raises CNIError: 11, a DEL of the attachment came meanwhile, or the time is over.
        """
        flight = Flight(request)
        try:
            async with asyncio.timeout_at(deadline):
                await self._clear_way(flight)
        except TimeoutError as error:
            raise CNIError(TRY_LATER, "another ADD of the Pod does not end") from error
        self._flights[flight.attached] = flight
        try:
            yield flight
        finally:
            del self._flights[flight.attached]
            flight.over.set()

    async def _clear_way(self, flight: Flight) -> None:
        while rivals := list(self._rivals(flight)):
            for rival in rivals:
                if rival.attached == flight.attached:
                    await rival.over.wait()
                    if rival.called_off:
                        raise CNIError(TRY_LATER, rival.called_off)
                else:
                    await rival.call_off("the Pod has got another sandbox")

    def _rivals(self, flight: Flight) -> Iterator[Flight]:
        for other in self._flights.values():
            same_pod = other.request.pod_uid == flight.request.pod_uid
            if other.attached == flight.attached or (
                same_pod and other.request.ifname == flight.request.ifname
            ):
                yield other


class Serial:
    """Bodies with the same key run one after another."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def held(self, key: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]
