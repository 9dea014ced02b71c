"""Programs beside the benchmark: started, measured from /proc, and ended with it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kit.kube.children import Launcher, stop

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Memory:
    """Resident memory in MiB: now, and the highest since the peak was last forgotten."""

    resident: float
    peak: float


class Process:
    """One program; what it prints goes to `log`."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self._child = child
        self._log = log
        self._proc = Path(f"/proc/{child.pid}")

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def cpu_seconds(self) -> float:
        """User and system time of all its threads since its start."""
        return cpu_seconds((self._proc / "stat").read_text())

    def memory(self) -> Memory:
        """See :class:`Memory`."""
        return memory((self._proc / "status").read_text())

    def forget_peak(self) -> None:
        """The peak counts from now on."""
        (self._proc / "clear_refs").write_text("5")

    def last_words(self) -> str:
        """The end of what it printed, for errors."""
        return self._log.read_text(errors="replace")[-3000:]

    def stop(self) -> None:
        """SIGTERM, and wait for its end."""
        stop(self._child)


def start(
    launcher: Launcher, command: Sequence[str], log: Path, env: Mapping[str, str]
) -> Process:
    """Start a program with these variables added to the environment."""
    pairs = [f"{name}={value}" for name, value in env.items()]
    # env(1) becomes the program: the process measured is the program itself
    return Process(launcher.start(["/usr/bin/env", *pairs, *command], log), log)


def machine_seconds(stat: str = "") -> tuple[float, float]:
    """Seconds in which cores were at work, and all of them, from the first line of /proc/stat."""
    line = (stat or Path("/proc/stat").read_text()).splitlines()[0]
    fields = [int(field) / _TICKS for field in line.split()[1:9]]  # guests' are among users'
    return sum(fields) - fields[3] - fields[4], sum(fields)


def cpu_seconds(stat: str) -> float:
    """User and system seconds in the text of /proc/PID/stat."""
    fields = stat.rpartition(")")[2].split()  # the name before may hold spaces
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory(status: str) -> Memory:
    """VmRSS and VmHWM in the text of /proc/PID/status."""
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    resident, peak = (int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return Memory(resident, peak)
