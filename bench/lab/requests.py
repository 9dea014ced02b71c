"""Requests that a Pod sends to an address all the time, and their answers."""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from types import TracebackType
from typing import Self

from lab import facts

INTERVAL = 0.05  # seconds between two requests; each has a process and a connection
TIMEOUT = 2  # seconds of a request
FAILED = "FAILED"
# A request that hangs does not delay the next one.
_LOOP = """while :; do
  (timeout {timeout} wget -q -O- {url} 2>/dev/null || echo {failed}) &
  sleep {interval}
done"""


class Requests:
    """Requests of a Pod for as long as the context lasts.

    `answers` are pairs of time.monotonic(), when the Pod's output arrived, and the name of the
    server that answered, or FAILED.
    """

    def __init__(self, lab: facts.Lab, namespace: str, pod: str, url: str) -> None:
        script = _LOOP.format(timeout=TIMEOUT, url=url, failed=FAILED, interval=INTERVAL)
        kubectl = [f"{lab.bin}/kubectl", f"--kubeconfig={lab.kubernetes.admin_kubeconfig}"]
        self._exec = [*kubectl, "-n", namespace, "exec", pod, "--"]
        self._command = [*self._exec, "sh", "-c", script]
        self.answers: list[tuple[float, str]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # the loop in the Pod does not end with kubectl
        end = [*self._exec, "killall", "-q", "-9", "sh", "wget"]
        subprocess.run(end, check=False, capture_output=True)
        self._process.kill()
        self._process.wait()
        self._thread.join(10)

    def first(self, server: str = "", *, since: float = 0.0) -> float | None:
        """Return the time of the first answer since then, of any server or of this one."""
        times = (
            time_of_answer
            for time_of_answer, name in tuple(self.answers)
            if time_of_answer >= since and name != FAILED and server in ("", name)
        )
        return next(times, None)

    def last(self, server: str) -> float | None:
        """Return the time of the last answer of a server."""
        answers = tuple(self.answers)
        times = (time_of_answer for time_of_answer, name in answers if name == server)
        return max(times, default=None)

    def failed(self, since: float) -> int:
        """Count the requests without an answer since then."""
        answers = tuple(self.answers)
        return sum(end >= since and name == FAILED for end, name in answers)

    def gap(self, since: float) -> float:
        """Return the most seconds without an answer since then."""
        answered = [end for end, name in tuple(self.answers) if name != FAILED and end >= since]
        return max((b - a for a, b in itertools.pairwise([since, *answered])), default=0.0)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.answers.append((time.monotonic(), line.strip()))
