"""Periodic searches for cloud objects that nothing names any more."""

import abc
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from kuryr_k8s import errors
from kuryr_k8s.engine.clock import CLOCK, Clock
from kuryr_k8s.engine.controller import Controller, Observer
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.patience import PATIENCE, Patience

T = TypeVar("T")


class Sweep(abc.ABC, Generic[T]):
    """One list of all objects of a kind, now and then, held against what names them.

    An object goes when two searches have found it unwanted, ``confirm_after`` seconds apart, and
    a live read says so too. Only that makes up for a cache that lags, and for a creation that is
    under way. One that cannot be removed does not save the others.

    A sweep may take as long as its calls take, of which each has its own end: a list that is cut
    off would begin again at its first page, and never end where there is much to list.

    :param name: of the loop, in logs and metrics.
    :param interval: seconds between two searches; shorter while something is suspected.
    :param first_after: seconds until the first one, which otherwise is made at the start.
    """

    KEY = "all"

    def __init__(
        self,
        name: str,
        *,
        interval: float,
        confirm_after: float | None = None,
        first_after: float = 0.0,
        clock: Clock = CLOCK,
        observe: Observer | None = None,
        patience: Patience = PATIENCE,
    ) -> None:
        self._interval = interval
        self._confirm_after = interval if confirm_after is None else min(interval, confirm_after)
        self._clock = clock
        self._suspects: dict[Hashable, float] = {}  # when each was first found
        self._leaving: list[T] = []  # confirmed, and not removed yet
        self._next = clock.now() + first_after  # when the next search is due
        self.loop = Controller[str](
            name,
            self.reconcile,
            queue=WorkQueue(clock, cap=patience.sweep_retry),
            workers=1,
            deadline=None,
            observe=observe,
            patience=patience,
        )
        self.loop.queue.add(self.KEY)

    @abc.abstractmethod
    async def search(self) -> Sequence[T]:
        """Return all objects that nothing names, as far as the caches know."""

    @abc.abstractmethod
    def identity(self, item: T) -> Hashable:
        """Return what tells the object from all others."""

    async def confirm(self, items: Sequence[T]) -> Sequence[T]:
        """Return those of the objects that nothing names by a live read either."""
        return items

    def still_unwanted(self, items: Sequence[T]) -> Sequence[T]:
        """Return those that nothing has come to name since, as far as the caches know."""
        return items

    @abc.abstractmethod
    async def remove(self, item: T) -> None:
        """Remove the object; gone already is as good.

        :raises errors.KuryrError: it is tried again.
        """

    def search_after(self, seconds: float) -> None:
        """Search again after so many seconds, if no search is due before."""
        self._next = min(self._next, self._clock.now() + seconds)
        self.loop.queue.add_after(self.KEY, seconds)

    def resume(self) -> None:
        """Go on with removals that had to wait."""
        self.loop.queue.add(self.KEY)

    async def reconcile(self, _key: str) -> float:
        """Search if a search is due, and remove what is left to remove.

        :returns: seconds until the next search.
        """
        now = self._clock.now()
        if now >= self._next:
            # before the search: what asks for the next one meanwhile gets it
            self._next = now + self._interval
            try:
                self._leaving = await self._find(now)
            except BaseException:
                self._next = now
                raise
        elif self._leaving:
            self._leaving = list(await self.confirm(self._leaving))
        await self._remove()
        if self._suspects:
            self._next = min(self._next, now + self._confirm_after)
        return max(0.0, self._next - now)

    async def _find(self, now: float) -> list[T]:
        unwanted = {self.identity(item): item for item in await self.search()}
        self._suspects = {key: self._suspects.get(key, now) for key in unwanted}
        again = [
            item
            for key, item in unwanted.items()
            if now - self._suspects[key] >= self._confirm_after
        ]
        return list(await self.confirm(again)) if again else []

    async def _remove(self) -> None:
        failure: errors.KuryrError | None = None
        self._leaving = list(self.still_unwanted(self._leaving))
        for item in tuple(self._leaving):
            try:
                await self.remove(item)
            except errors.KuryrError as error:
                failure = error
            else:
                self._leaving.remove(item)
                self._suspects.pop(self.identity(item), None)
        if failure is not None:
            raise failure
