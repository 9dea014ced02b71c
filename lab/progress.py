"""Lines on the terminal: what happened, and after how many seconds."""

from __future__ import annotations

import sys
import threading
import time

_GREEN, _RED, _DIM, _PLAIN = "\033[32m", "\033[31m", "\033[2m", "\033[0m"


class Progress:
    """Prints one line per finished step; colours only on a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._begin = time.monotonic()
        self._lock = threading.Lock()
        self._colour = sys.stdout.isatty()
        self._quiet = quiet

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._begin

    def done(self, name: str, seconds: float) -> None:
        self._line(_GREEN, "ok", name, f"{seconds:.1f} s")

    def failed(self, name: str, seconds: float, error: BaseException) -> None:
        self._line(_RED, "FAILED", name, f"{seconds:.1f} s\n{error}")

    def note(self, text: str) -> None:
        self._line(_DIM, "", text, "")

    def _line(self, colour: str, word: str, text: str, right: str) -> None:
        if self._quiet and word != "FAILED":
            return
        on, off = (colour, _PLAIN) if self._colour else ("", "")
        line = f"[{self.elapsed:7.1f} s] {on}{word:<6}{off} {text:<44} {right}"
        with self._lock:
            sys.stdout.write(line.rstrip() + "\n")
            sys.stdout.flush()
