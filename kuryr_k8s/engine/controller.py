"""The loop that takes keys from a queue, reconciles them, and decides when to look again.

All outcomes of a reconcile are decided in :meth:`Controller.step`, and nowhere else: no handler
and no driver sleeps or retries by itself.
"""

import asyncio
import copy
import functools
import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, Protocol, Self, TypeVar

from kuryr_k8s import errors
from kuryr_k8s.engine.limit import Priority, prioritized
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.patience import PATIENCE, Patience

LOG = logging.getLogger(__name__)
RESUMED = 2  # keys that come back with an answer: each brings others in turn
UNKNOWN = ""  # the API that was too slow for a reconcile
K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)


class Reporter(Protocol[K_contra]):
    """Reports to users: called after a reconcile with the error, or None if all is well.

    ``failures`` counts the attempts in a row that failed.
    """

    def __call__(
        self, key: K_contra, error: Exception | None, failures: int
    ) -> Awaitable[None]: ...


class Observer(Protocol):
    """Counts reconciles: called after each with its outcome and its length in seconds."""

    def __call__(self, name: str, outcome: str, seconds: float) -> None: ...


class Controller(Generic[K]):
    """Runs ``reconcile(key)`` for every key of a queue, for at most ``workers`` keys at a time.

    A quarter of the workers (at least one, if there are two or more) is kept for urgent keys, and
    as many for calm ones that wait.

    Keys that failed because an API of the cloud did not serve wait for long in the end. When it
    serves again, a few of them come back with each of its answers (:meth:`resume`): as many calls
    as it bears, and none while it fails.

    :param deadline: Seconds that one reconcile may take; None: as many as its calls take, of which
        each has its own end.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        queue: WorkQueue[K] | None = None,
        workers: int = 8,
        deadline: float | None = 120.0,
        report: Reporter[K] | None = None,
        observe: Observer | None = None,
        patience: Patience = PATIENCE,
    ) -> None:
        self.name = name
        self.queue = queue if queue is not None else WorkQueue()
        self._reconcile = reconcile
        self._workers = workers
        self._deadline = deadline
        self._report = report
        self._observe = observe
        self._patience = patience
        self._refused: set[K] = set()  # keys whose last outcome was a refusal
        self._failed: defaultdict[str, dict[K, None]] = defaultdict(dict)  # by the API that did

    def renamed(self, name: str) -> Self:
        """Return this loop under another name; run one of the two."""
        loop = copy.copy(self)
        loop.name = name
        return loop

    async def run(self) -> None:
        """Work until cancelled; only a bug in this class, not one in a handler, stops the loop."""
        slots = asyncio.Semaphore(self._workers)
        most = max(1, self._workers - max(1, self._workers // 4))
        async with asyncio.TaskGroup() as group:
            while True:
                await slots.acquire()
                key = await self.queue.get(most=most)
                task = group.create_task(self.step(key), name=f"{self.name} {key}")
                task.add_done_callback(functools.partial(self._done, slots, key))

    def _done(self, slots: asyncio.Semaphore, key: K, _task: asyncio.Task[None]) -> None:
        slots.release()
        self.queue.done(key)

    def resume(self, api: str) -> None:
        """Bring back some keys that failed because this API did not serve: it has answered."""
        waiting = self._failed[api] or self._failed[UNKNOWN]
        for key in list(itertools.islice(waiting, RESUMED)):
            del waiting[key]
            self.queue.hasten(key)

    async def step(self, key: K) -> None:
        """Reconcile one key once, and queue it again as the outcome requires."""
        started = time.monotonic()
        problem: Exception | None = None
        again: float | None = None
        priority = Priority.POD if self.queue.is_urgent(key) else Priority.CLEANUP
        try:
            with prioritized(priority):
                async with asyncio.timeout(self._deadline):
                    again = await self._reconcile(key)
        except Exception as error:
            problem = error
        outcome = self._decide(key, problem, again)
        if self._observe is not None:
            self._observe(self.name, outcome, time.monotonic() - started)
        if outcome != "wait":
            await self._report_outcome(key, problem)

    async def _report_outcome(self, key: K, problem: Exception | None) -> None:
        """Report the outcome; a report that fails has no consequences."""
        if self._report is None:
            return
        try:
            async with asyncio.timeout(self._deadline):
                await self._report(key, problem, self.queue.failures(key))
        except Exception:
            LOG.exception("%s %s: the outcome was not reported", self.name, key)

    def _decide(self, key: K, problem: Exception | None, again: float | None) -> str:
        """Decide when to look at the key again.

        :returns: The outcome in one word, for the metrics.
        """
        if not isinstance(problem, errors.Refused):
            self._refused.discard(key)
        for failed in self._failed.values():
            failed.pop(key, None)
        if isinstance(problem, errors.CloudError) and problem.is_outage:
            self._failed[problem.api][key] = None
        elif isinstance(problem, TimeoutError):
            self._failed[UNKNOWN][key] = None
        match problem:
            case None:
                self.queue.forget(key)
                if again is not None:
                    self.queue.add_after(key, again)
                return "success"
            case errors.Wait():
                LOG.debug("%s %s: waiting: %s", self.name, key, problem)
                self.queue.add_after(key, problem.delay)
                return "wait"
            case errors.Refused():
                asked_before = key in self._refused
                self._refused.add(key)
                patience = self._patience
                delay = patience.refused if asked_before else patience.first_refused
                delay = self.queue.retry(key, at_least=delay)
                self._log(key, problem, delay, logging.ERROR)
                return "refused"
            case errors.KuryrError() | TimeoutError():
                delay = self.queue.retry(key, at_least=self._asked_delay(problem))
                self._log(key, problem, delay, logging.WARNING)
                return "error"
            case _:
                delay = self.queue.retry(key)
                text = "%s %s: unforeseen, again in %.1f s"
                LOG.error(text, self.name, key, delay, exc_info=problem)
                return "error"

    def _log(self, key: K, problem: Exception, delay: float, level: int) -> None:
        """Log the first failure in a row in full; Events and metrics show the repetitions."""
        level = level if self.queue.failures(key) == 1 else logging.DEBUG
        what = str(problem) or type(problem).__name__
        LOG.log(level, "%s %s: again in %.1f s: %s", self.name, key, delay, what)

    def _asked_delay(self, error: Exception) -> float:
        """Return the seconds that the other side asked for by ``Retry-After``."""
        if isinstance(error, errors.CloudError | errors.KubeError):
            return min(error.retry_after or 0.0, self._patience.longest_asked)
        return 0.0
