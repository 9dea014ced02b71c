"""Processes and objects that an interrupted or killed run of the tests left behind."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from lab.paths import Paths
from lab.process import kill_all, marked
from lab.suite.runner import COMPONENT


@contextmanager
def only_run(paths: Paths) -> Iterator[bool]:
    """Hold the lock of the only run on this lab; the kernel drops it when the process dies.

    :returns: False if another run holds it.
    """
    with (paths.state / "suite.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def clear(paths: Paths) -> None:
    """Kill the processes of a run that was killed; only the run that is alone may do so."""
    kill_all(marked(paths.state, COMPONENT))
