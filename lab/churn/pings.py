"""Pings without pause from a Pod's network namespace, past every API."""

from __future__ import annotations

import re
import subprocess
import threading
from typing import Self

from lab.process import SYSTEM_PATH, wait_until

INTERVAL = 0.1  # seconds
_REPLY = re.compile(rb"icmp_seq=(\d+) ttl=")


class Pinger:
    """Pings an address from a network namespace and knows which sequence numbers were answered."""

    def __init__(self, netns: str, address: str) -> None:
        self.address = address
        # an environment of its own: not one that marks it as a command of the lab's
        self._process = subprocess.Popen(
            [
                *("nsenter", f"--net={netns}", "--", "ping", "-n", "-W", "1"),
                *("-i", str(INTERVAL), address),
            ],
            stdout=subprocess.PIPE,
            env={"PATH": SYSTEM_PATH},
        )
        self._answered: set[int] = set()
        self._last = 0
        self._thread = threading.Thread(target=self._read, name=f"ping {address}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join(5)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def mark(self, seconds: float) -> int | None:
        """Wait for an answer to a ping sent from now on.

        :param seconds: to wait at the most.
        :returns: the number of the ping, or None without an answer.
        """
        # what was sent before may still be on its way
        now = self._last
        if wait_until(lambda: self._last > now + 1, seconds, pause=INTERVAL / 2):
            return self._last
        return None

    def lost(self, first: int, last: int) -> int:
        """Count the pings after `first` up to `last` that were not answered."""
        return sum(1 for number in range(first + 1, last + 1) if number not in self._answered)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := _REPLY.search(line):
                number = int(found[1])
                self._answered.add(number)
                self._last = max(self._last, number)
