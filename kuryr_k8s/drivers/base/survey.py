"""Agreement between a driver's memory and the cloud."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from kuryr_k8s.cloud.paging import Reading

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Survey(Generic[K, T]):
    """Lists of all that a driver has made, and the owners about whom its memory may be wrong.

    One list after the start tells of everything. From then on the driver's memory is right, except
    about an owner for whom a write was not answered: the cloud is asked about that owner again.
    And except for what others have changed since a page was read: the next list shows it.

    Each list goes on where it stopped, whoever asks for it again: so it ends however long it
    takes.

    :param list_all: lists everything and corrects the memory.
    """

    def __init__(self, list_all: Callable[[Reading], Awaitable[T]]) -> None:
        self._list_all = list_all
        self._lock = asyncio.Lock()
        self._reading = Reading()
        self._shown = 0
        self.done = False
        self.doubtful: set[K] = set()

    @property
    def objects(self) -> int:
        """Count the objects that the first list has shown so far."""
        return self._shown if self.done else self._reading.rows

    async def require(self) -> None:
        """List everything, unless that has been done."""
        if self.done:
            return
        async with self._lock:
            if not self.done:
                await self._run()

    async def repeat(self) -> T:
        """List everything again."""
        async with self._lock:
            return await self._run()

    async def verify(self, owner: K, ask: Callable[[K], Awaitable[None]]) -> None:
        """Make sure that the memory is right about the owner.

        :param ask: reads what one owner has and corrects the memory.
        :raises kuryr_k8s.errors.CloudError: the cloud does not answer.
        """
        await self.require()
        if owner in self.doubtful:
            await ask(owner)
            self.doubtful.discard(owner)

    async def _run(self) -> T:
        found = await self._list_all(self._reading)
        if not self.done:
            self._shown, self.done = self._reading.rows, True
        self._reading = Reading()
        return found
