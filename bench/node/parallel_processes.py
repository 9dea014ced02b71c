"""Processes that start at the same instant, and how long each of them took."""

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
    """What to start: with exactly this environment, and this on standard input."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    stdin: bytes = b""


@dataclass(frozen=True)
class Run:
    """One process; the times are the monotonic clock's, in seconds."""

    begin: float
    end: float
    code: int
    output: bytes

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class Watched(Protocol):
    """Something that is read while the processes run, so that what it says gets its time."""

    def fileno(self) -> int: ...
    def read(self) -> None: ...


def at_once(programs: Sequence[Program], watched: Watched | None = None) -> list[Run]:
    """Run them all. They are forked first and wait at a gate, so that making processes of this
    one, which takes longer than a small program, is not measured; exec is.

    :raises TimeoutError: one of them does not end.
    """
    ready, gate = os.pipe(), os.pipe()
    outputs = [os.memfd_create("stdout") for _ in programs]
    pids = [_fork(each, out, ready, gate) for each, out in zip(programs, outputs, strict=True)]
    os.close(ready[1])
    os.close(gate[0])
    while os.read(ready[0], len(pids)):
        pass  # each has closed its end: it is at the gate
    os.close(ready[0])
    begin = time.monotonic()
    os.close(gate[1])
    ends = dict(_ends(pids, begin + TIMEOUT, watched))
    runs = []
    for pid, out in zip(pids, outputs, strict=True):
        end, status = ends[pid]
        output = os.pread(out, os.fstat(out).st_size, 0)
        os.close(out)
        runs.append(Run(begin, end, os.waitstatus_to_exitcode(status), output))
    return runs


def _fork(program: Program, stdout: int, ready: tuple[int, int], gate: tuple[int, int]) -> int:
    argv, environ = [*program.argv], {**program.environ}
    with _memory(program.stdin) as stdin:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.dup2(stdin, 0)
            os.dup2(stdout, 1)
            os.close(gate[1])
            os.close(ready[0])
            os.close(ready[1])
            os.read(gate[0], 1)
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
    pids: Sequence[int], deadline: float, watched: Watched | None
) -> Iterator[tuple[int, tuple[float, int]]]:
    """Each process with the time of its end and its status, as they end."""
    with selectors.DefaultSelector() as selector:
        for pid in pids:
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
        if watched is not None:
            selector.register(watched, selectors.EVENT_READ)
        left = len(pids)
        while left:
            events = selector.select(deadline - time.monotonic())
            now = time.monotonic()
            if now > deadline:
                raise TimeoutError(f"{left} of {len(pids)} processes do not end")
            for key, _ in events:
                if key.data is None:
                    assert watched is not None
                    watched.read()
                    continue
                _, status = os.waitpid(key.data, 0)
                selector.unregister(key.fd)
                os.close(key.fd)
                left -= 1
                yield key.data, (now, status)
