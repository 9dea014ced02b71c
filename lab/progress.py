"""Progress on the terminal: a line for each finished step, and regular word of what still runs."""

from __future__ import annotations

import itertools
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

_GREEN, _RED, _DIM, _PLAIN = "\033[32m", "\033[31m", "\033[2m", "\033[0m"
_CLEAR = "\r\033[K"
INTERVAL = 9.0  # seconds of silence, so that the next line comes before the tenth
_TERMINAL_INTERVAL = 1.0


@dataclass
class Activity:
    """A piece of work that takes long, and is named as long as it runs."""

    name: str
    begin: float
    state: str = ""

    def describe(self, now: float) -> str:
        """Build a phrase such as ``build Kubernetes 95 s (etcd)``."""
        state = f" ({self.state})" if self.state else ""
        return f"{self.name} {now - self.begin:.0f} s{state}"


class Progress:
    """Prints a line for each finished step, and what is under way when nothing else was printed.

    On a terminal, what is under way is one line at the bottom that is updated every second;
    elsewhere it is a line of its own, at least every ten seconds.

    :param interval: seconds of silence after which activities are named; by default as above.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        interval: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stdout
        self._clock = clock
        self._begin = self._last = clock()
        self._lock = threading.Lock()
        self._terminal = self._stream.isatty()
        self._quiet = quiet
        self._interval = interval or (_TERMINAL_INTERVAL if self._terminal else INTERVAL)
        self._activities: dict[int, Activity] = {}
        self._numbers = itertools.count()
        self._ticker: threading.Thread | None = None
        self._shown = False  # whether the terminal's last line names activities

    @property
    def elapsed(self) -> float:
        return self._clock() - self._begin

    @contextmanager
    def during(self, name: str) -> Iterator[Activity]:
        """Name an activity for as long as the block runs.

        :returns: the activity; its ``state`` may be set to say more.
        """
        activity, number = Activity(name, self._clock()), next(self._numbers)
        with self._lock:
            self._activities[number] = activity
            self._watch()
        try:
            yield activity
        finally:
            with self._lock:
                del self._activities[number]

    def done(self, name: str, seconds: float) -> None:
        self._line(_GREEN, "ok", name, f"{seconds:.1f} s")

    def failed(self, name: str, seconds: float, error: BaseException) -> None:
        self._line(_RED, "FAILED", name, f"{seconds:.1f} s\n{error}")

    def note(self, text: str) -> None:
        self._line(_DIM, "", text, "")

    def raw(self, line: str) -> None:
        """Print a line as it is, above what is under way."""
        with self._lock:
            self._write(line)

    def tick(self) -> bool:
        """Name what is under way, if nothing was printed for a while.

        :returns: whether there is anything under way.
        """
        with self._lock:
            now = self._clock()
            if self._activities and now - self._last >= self._interval:
                self._report(now)
            return bool(self._activities)

    def _watch(self) -> None:
        """Start a thread that reports unless there is one; it ends with the last activity.

        The lock is held.
        """
        if self._quiet or (self._ticker is not None and self._ticker.is_alive()):
            return
        self._ticker = threading.Thread(target=self._report_regularly, daemon=True)
        self._ticker.start()

    def _report_regularly(self) -> None:
        while True:
            time.sleep(min(0.25, self._interval / 4))
            with self._lock:
                if not self._activities:
                    self._ticker = None
                    self._erase()
                    return
            self.tick()

    def _report(self, now: float) -> None:
        phrases = [activity.describe(now) for activity in self._activities.values()]
        text = f"[{now - self._begin:7.1f} s] ...    {', '.join(phrases)}"
        self._last = now
        if not self._terminal:
            self._stream.write(text + "\n")
        else:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"{_CLEAR}{_DIM}{text[:width]}{_PLAIN}")
            self._shown = True
        self._stream.flush()

    def _erase(self) -> None:
        if self._shown:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._shown = False

    def _line(self, colour: str, word: str, text: str, right: str) -> None:
        if self._quiet and word != "FAILED":
            return
        on, off = (colour, _PLAIN) if self._terminal else ("", "")
        line = f"[{self.elapsed:7.1f} s] {on}{word:<6}{off} {text:<44} {right}"
        with self._lock:
            self._write(line.rstrip() + "\n")

    def _write(self, text: str) -> None:
        """Print a text while the lock is held."""
        self._erase()
        self._stream.write(text)
        self._stream.flush()
        self._last = self._clock()
