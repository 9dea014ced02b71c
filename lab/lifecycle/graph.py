"""Steps that run in parallel, each as soon as the steps that it needs are done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from lab.progress import Progress


@dataclass(frozen=True)
class Step:
    """One piece of work: idempotent, and named so that others can need it."""

    name: str
    run: Callable[[], object]
    needs: tuple[str, ...] = ()
    # Steps that take no noticeable time on a warm start are not worth a line.
    quiet_below: float = 0.0


class StepError(Exception):
    """A step failed; the cause is the exception it ended with."""

    def __init__(self, step: str, cause: BaseException) -> None:
        super().__init__(f"{step} failed: {str(cause).partition(chr(10))[0]}")
        self.step = step


def check(steps: Iterable[Step]) -> dict[str, Step]:
    """Index the steps by name.

    :raises ValueError: two steps have one name, or a step needs one that is not there.
    """
    by_name: dict[str, Step] = {}
    for step in steps:
        if step.name in by_name:
            raise ValueError(f"two steps are called {step.name}")
        by_name[step.name] = step
    for step in by_name.values():
        missing = [need for need in step.needs if need not in by_name]
        if missing:
            raise ValueError(f"{step.name} needs {missing}, which nobody provides")
    return by_name


def closure(steps: Iterable[Step], wanted: Iterable[str]) -> list[Step]:
    """Select the wanted steps and everything that they need, directly or not."""
    by_name = check(steps)
    keep: set[str] = set()
    todo = list(wanted)
    while todo:
        name = todo.pop()
        if name not in keep:
            keep.add(name)
            todo.extend(by_name[name].needs)
    return [step for step in by_name.values() if step.name in keep]


def execute(steps: Iterable[Step], progress: Progress, workers: int = 12) -> None:
    """Run all steps; after a failure nothing new is started.

    :raises StepError: a step failed; it names the first one.
    """
    waiting = check(steps)
    done: set[str] = set()
    running: dict[Future[float], Step] = {}
    failure: StepError | None = None
    with ThreadPoolExecutor(workers) as pool:
        while waiting or running:
            ready = [] if failure else [s for s in waiting.values() if done.issuperset(s.needs)]
            for step in ready:
                del waiting[step.name]
                running[pool.submit(_timed, step, progress)] = step
            if not running:
                break
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                step = running.pop(future)
                error = future.exception()
                if error is not None:
                    failure = failure or StepError(step.name, error)
                else:
                    done.add(step.name)
    if failure is not None:
        raise failure from failure.__cause__
    if waiting:
        raise ValueError(f"these steps need each other: {sorted(waiting)}")


def _timed(step: Step, progress: Progress) -> float:
    begin = time.monotonic()
    try:
        with progress.during(step.name):
            step.run()
    except BaseException as error:
        progress.failed(step.name, time.monotonic() - begin, error)
        raise
    seconds = time.monotonic() - begin
    if seconds >= step.quiet_below:
        progress.done(step.name, seconds)
    return seconds
