"""The ADDs that are being done: which one may run, and how it is called off."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from kuryr_k8s.cni.protocol import TRY_LATER, Attached, CNIError, Request


class Add:
    """One ADD. ``plugging`` is True as soon as it may have changed something on the node."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.attached = Attached(container_id=request.container_id, ifname=request.ifname)
        self.plugging = False
        self.called_off = ""
        self.over = asyncio.Event()
        self._scope: asyncio.Timeout | None = None

    @contextlib.asynccontextmanager
    async def limited(self, deadline: float) -> AsyncIterator[None]:
        """Run the body until a deadline, in the loop's time, or until the ADD is called off.

        :raises TimeoutError: in both cases.
        """
        if self.called_off:
            raise TimeoutError
        async with asyncio.timeout_at(deadline) as self._scope:
            yield

    async def call_off(self, reason: str) -> None:
        """End the ADD, and wait until it has cleaned up."""
        self.called_off = reason
        if self._scope is not None and not self._scope.expired():
            with contextlib.suppress(RuntimeError):  # the body is over already
                self._scope.reschedule(asyncio.get_running_loop().time())
        await self.over.wait()


class Adds:
    """The ADDs of the node: one at a time for each attachment, and for each interface of a Pod.

    Only the newest sandbox of a Pod counts, so its ADD calls off the ADD of another sandbox.
    """

    def __init__(self) -> None:
        self._adds: dict[Attached, Add] = {}

    def __len__(self) -> int:
        return len(self._adds)

    def of_container(self, container_id: str) -> bool:
        """Return whether an ADD of this container is being done."""
        return any(attached.container_id == container_id for attached in self._adds)

    def under_way(self, pod_uid: str) -> bool:
        """Return whether the runtime is setting a sandbox of this Pod up."""
        return any(add.request.pod_uid == pod_uid for add in self._adds.values())

    def plugging(self, pod_uid: str) -> bool:
        """Return whether an ADD of this Pod is changing the node, or waits after it did."""
        return any(add.plugging and add.request.pod_uid == pod_uid for add in self._adds.values())

    def find(self, attached: Attached) -> Add | None:
        """Return the ADD of this attachment, None if there is none."""
        return self._adds.get(attached)

    @contextlib.asynccontextmanager
    async def admitted(self, request: Request, deadline: float) -> AsyncIterator[Add]:
        """Run the body as the ADD of its attachment.

        This waits for another ADD of the same attachment, and calls off an ADD of the Pod's other
        sandbox.

        :raises CNIError: 11, a DEL of the attachment came meanwhile, or the deadline has passed.
        """
        add = Add(request)
        try:
            async with asyncio.timeout_at(deadline):
                await self._clear_way(add)
        except TimeoutError as error:
            raise CNIError(TRY_LATER, "another ADD of the Pod does not end") from error
        self._adds[add.attached] = add
        try:
            yield add
        finally:
            del self._adds[add.attached]
            add.over.set()

    async def _clear_way(self, add: Add) -> None:
        while rivals := list(self._rivals(add)):
            for rival in rivals:
                if rival.attached == add.attached:
                    await rival.over.wait()
                    if rival.called_off:
                        raise CNIError(TRY_LATER, rival.called_off)
                else:
                    await rival.call_off("the Pod has got another sandbox")

    def _rivals(self, add: Add) -> Iterator[Add]:
        for other in self._adds.values():
            same_pod = other.request.pod_uid == add.request.pod_uid
            if other.attached == add.attached or (
                same_pod and other.request.ifname == add.request.ifname
            ):
                yield other
