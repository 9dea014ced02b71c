"""Processes that start at the same instant, and the time that each of them takes."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

TIMEOUT = 120.0  # seconds for all of them together


@dataclass(frozen=True)
class Program:
    """A program to start, with exactly this environment and this standard input."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    stdin: bytes = b""


@dataclass(frozen=True)
class Run:
    """A process that has ended; `begin` and `end` are times of time.monotonic()."""

    begin: float
    end: float
    code: int
    output: bytes

    @property
    def seconds(self) -> float:
        """Seconds from the start to the end."""
        return self.end - self.begin


class Source(Protocol):
    """A source of events that is read while the processes run, so that each gets its time."""

    def fileno(self) -> int:
        """Return the descriptor that becomes readable."""

    def read(self) -> None:
        """Read what has arrived."""


def at_once(programs: Sequence[Program], source: Source | None = None) -> list[Run]:
    """Run all programs at the same instant and wait for their ends.

    Their processes are forked first and wait for the start, so that the times include exec, but
    not the fork of this large process.

    :param source: read while they run.
    :raises TimeoutError: a process does not end.
    """
    ready, start = os.pipe(), os.pipe()
    outputs = [os.memfd_create("stdout") for _ in programs]
    pids = [
        _fork(program, output, ready, start)
        for program, output in zip(programs, outputs, strict=True)
    ]
    os.close(ready[1])
    os.close(start[0])
    while os.read(ready[0], len(pids)):
        pass  # the end of the file: each has closed its own end, and waits for the start
    os.close(ready[0])
    begin = time.monotonic()
    os.close(start[1])
    ends = dict(_ends(pids, begin + TIMEOUT, source))
    runs = []
    for pid, output in zip(pids, outputs, strict=True):
        end, status = ends[pid]
        content = os.pread(output, os.fstat(output).st_size, 0)
        os.close(output)
        runs.append(Run(begin, end, os.waitstatus_to_exitcode(status), content))
    return runs


def _fork(program: Program, stdout: int, ready: tuple[int, int], start: tuple[int, int]) -> int:
    argv, environ = [*program.argv], {**program.environ}
    with _memory(program.stdin) as stdin:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.dup2(stdin, 0)
            os.dup2(stdout, 1)
            os.close(start[1])
            os.close(ready[0])
            os.close(ready[1])
            os.read(start[0], 1)
            os.execve(argv[0], argv, environ)
        finally:
            os._exit(127)


@contextmanager
def _memory(content: bytes) -> Iterator[int]:
    file = os.memfd_create("stdin")
    try:
        os.write(file, content)
        os.lseek(file, 0, os.SEEK_SET)
        yield file
    finally:
        os.close(file)


def _ends(
    pids: Sequence[int], deadline: float, source: Source | None
) -> Iterator[tuple[int, tuple[float, int]]]:
    """Yield each process with the time of its end and its status, as they end."""
    with selectors.DefaultSelector() as selector:
        for pid in pids:
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
        if source is not None:
            selector.register(source, selectors.EVENT_READ)
        left = len(pids)
        while left:
            events = selector.select(deadline - time.monotonic())
            now = time.monotonic()
            if now > deadline:
                raise TimeoutError(f"{left} of {len(pids)} processes do not end")
            for key, _ in events:
                if key.data is None:
                    assert source is not None
                    source.read()
                    continue
                _, status = os.waitpid(key.data, 0)
                selector.unregister(key.fd)
                os.close(key.fd)
                left -= 1
                yield key.data, (now, status)
