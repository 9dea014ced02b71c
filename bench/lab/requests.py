"""Requests of a Pod to an address, again and again: who answered, and when."""

from __future__ import annotations

import subprocess
import threading
import time
from types import TracebackType
from typing import Self

from lab import facts

EVERY = 0.05  # seconds between two requests; each is a process and a connection of its own
GIVEN_UP = 2  # seconds
FAILED = "FAILED"
# A request that hangs holds up no other one.
_LOOP = """while :; do
  (timeout {given_up} wget -q -O- {url} 2>/dev/null || echo {failed}) &
  sleep {every}
done"""


class Requests:
    """The Pod asks from now on, until the end; `heard` is (time.monotonic(), who or FAILED).

    Times are those of the arrival of what the Pod printed.
    """

    def __init__(self, lab: facts.Lab, namespace: str, pod: str, url: str) -> None:
        script = _LOOP.format(given_up=GIVEN_UP, url=url, failed=FAILED, every=EVERY)
        kubectl = [f"{lab.bin}/kubectl", f"--kubeconfig={lab.kubernetes.admin_kubeconfig}"]
        self._exec = [*kubectl, "-n", namespace, "exec", pod, "--"]
        self._command = [*self._exec, "sh", "-c", script]
        self.heard: list[tuple[float, str]] = []
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
        end = [*self._exec, "killall", "-q", "-9", "sh", "wget"]  # in the Pod it would go on
        subprocess.run(end, check=False, capture_output=True)
        self._process.kill()
        self._process.wait()
        self._thread.join(10)

    def first(self, who: str = "", *, since: float = 0.0) -> float | None:
        """When somebody (or this one) answered for the first time since then."""
        good = (at for at, name in tuple(self.heard) if at >= since and _is(name, who))
        return next(good, None)

    def last(self, who: str) -> float | None:
        """When this one answered for the last time."""
        return max((at for at, name in tuple(self.heard) if name == who), default=None)

    def failed(self, since: float) -> int:
        """How many got no answer since then."""
        return sum(at >= since and name == FAILED for at, name in tuple(self.heard))

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.heard.append((time.monotonic(), line.strip()))


def _is(name: str, who: str) -> bool:
    return name == who if who else name != FAILED
