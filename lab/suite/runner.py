"""Commands of the suite: started in sessions of their own, shown line by line, ended together."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.paths import REPOSITORY
from lab.process import COMPONENT_MARK, LAB_MARK
from lab.progress import Progress
from lab.suite import reports

COMPONENT = "suite"  # the mark of processes that a suite started
_REASON_LINES = 5  # of the end of a command that failed otherwise than by a test
_INTERRUPTED = ("interrupted",)


@dataclass(frozen=True)
class Result:
    """The outcome of one command."""

    name: str
    ok: bool
    seconds: float = 0.0
    # of processors, by its own processes; daemons of the lab that it keeps busy do not count
    cpu_seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    # the last lines of its output, or why it did not run
    end: tuple[str, ...] = ()


class Runner:
    """Runs commands side by side and keeps their results.

    :param mark: the directory of the lab's state, by which a later run finds what a killed one
        left.
    """

    def __init__(self, mark: Path, progress: Progress) -> None:
        self.results: list[Result] = []
        self.interrupted = False
        self.progress = progress
        self._mark = mark
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()

    def step(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        report: Path | None = None,
    ) -> bool:
        """Run a command, print each line under its name, and keep its result.

        :param report: the JUnit report that the command writes.
        :returns: whether it succeeded.
        """
        if self.interrupted:
            return self.missing(name, *_INTERRUPTED)
        begin = time.monotonic()
        with self.progress.during(name):
            self.progress.raw(f"=== {name}\n")
            code, cpu_seconds, end = self._run(name, argv, env or {})
        counts = reports.counts(report) if report else (0, 0, 0)
        seconds = time.monotonic() - begin
        self.results.append(Result(name, code == 0, seconds, cpu_seconds, *counts, tuple(end)))
        return code == 0

    def missing(self, name: str, why: str) -> bool:
        """Keep a failed result for a command that could not run.

        :returns: False, as a step that failed does.
        """
        self.results.append(Result(name, ok=False, end=(f"not run: {why}",)))
        return False

    def stop(self) -> None:
        """Interrupt the running commands, so that tests clean up; at the second call, kill all."""
        again, self.interrupted = self.interrupted, True
        for running in list(self._running):
            number = signal.SIGKILL if again else signal.SIGINT
            try:
                os.killpg(running.pid, number)
            except ProcessLookupError:
                continue

    def _run(
        self, name: str, argv: Sequence[str], env: Mapping[str, str]
    ) -> tuple[int, float, deque[str]]:
        marks = {LAB_MARK: str(self._mark), COMPONENT_MARK: COMPONENT}
        end = deque[str](maxlen=_REASON_LINES)
        with subprocess.Popen(
            argv,
            cwd=REPOSITORY,
            env={**os.environ, **marks, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            errors="replace",
        ) as running:
            with self._lock:
                self._running.add(running)
            assert running.stdout is not None
            for line in running.stdout:
                self.progress.raw(f"{name:<14}| {line.rstrip()}\n")
                if line.strip():
                    end.append(line.rstrip())
            _, status, used = os.wait4(running.pid, 0)
            running.returncode = os.waitstatus_to_exitcode(status)
        with self._lock:
            self._running.discard(running)
        return running.returncode, used.ru_utime + used.ru_stime, end
