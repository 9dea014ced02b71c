"""The first survey of Octavia after the start, which may take long: owners wait for it."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from kuryr_k8s import errors
from kuryr_k8s.cloud.paging import Reading
from kuryr_k8s.drivers.base import DriverContext
from kuryr_k8s.drivers.base.survey import Survey
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.model.owner import Owner

LOG = logging.getLogger(__name__)
T = TypeVar("T")


class AwaitedSurvey(Survey[Owner, T]):
    """Survey whose first list is read page by page until it ends, by a loop of its own.

    Or by a sweep that comes first; but by no reconcile of an owner, as each has a deadline. Owners
    wait. While Octavia tells nothing, they get its error, so that users hear of an outage.

    :param name: of the loop.
    :param wake: called for each owner that waited, when everything is known; and when an attempt
        has read nothing.

    ``beside`` is another one that runs at the same time: what has waited for both is woken once.
    """

    KEY = "all"

    def __init__(
        self,
        context: DriverContext,
        name: str,
        list_all: Callable[[Reading], Awaitable[T]],
        wake: Callable[[Owner], None],
    ) -> None:
        super().__init__(list_all)
        self.beside: AwaitedSurvey[Any] | None = None
        self._patience = context.patience
        self._wake = wake
        self._waiting: dict[Owner, None] = {}  # an ordered set
        self._begun = False
        self._problem: errors.KuryrError | None = None  # of the last attempt, if it read nothing
        self._objects_then = 0
        self.loop = Controller[str](
            name,
            self._read,
            queue=WorkQueue(context.clock, cap=context.patience.sweep_retry),
            workers=1,
            deadline=None,
            observe=context.observe,
            patience=context.patience,
        )

    @property
    def is_running(self) -> bool:
        """Return whether the first list has begun and not ended."""
        return self._begun and not self.done

    def check(self, owner: Owner) -> None:
        """Make sure that everything has been listed once.

        :raises errors.Wait: it has not; the owner is woken when it has.
        :raises errors.KuryrError: so it is, and Octavia has told nothing when it was last asked.
        """
        if self.done:
            return
        self._begun = True
        self._await(owner)
        if self._problem is not None and self.objects == self._objects_then:
            raise self._problem.with_traceback(None)
        raise errors.Wait(
            "what is in Octavia is being listed first", delay=self._patience.first_survey
        )

    def _await(self, owner: Owner) -> None:
        if not self._waiting:  # from now on the loop goes on by itself until it has ended
            self.loop.queue.add(self.KEY)
        self._waiting[owner] = None

    async def _read(self, _key: str) -> None:
        try:
            await self.require()
        except errors.KuryrError:
            if self._problem is None:
                self.loop.queue.forget(self.KEY)  # only an attempt that reads nothing is a failure
            raise

    async def _run(self) -> T:
        if self.done:
            return await super()._run()
        self._begun = True
        before, told = self.objects, self._problem is not None
        try:
            found = await super()._run()
        except errors.KuryrError as error:
            self._objects_then = self.objects
            self._problem = error if self.objects == before else None
            if not told and self._problem is not None:
                self._wake_all(self._waiting)
            raise
        LOG.info("%s has ended: %d objects", self.loop.name, self.objects)
        self._problem = None
        waiting, self._waiting = self._waiting, {}
        beside = self.beside
        if beside is not None and beside.is_running and beside._problem is None:
            for owner in waiting:
                beside._await(owner)
        else:
            self._wake_all(waiting)
        return found

    def _wake_all(self, owners: Iterable[Owner]) -> None:
        for owner in list(owners):
            self._wake(owner)
