"""Programs beside the benchmark: started, measured from /proc, and ended with it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kit.kube.children import Launcher, stop

REPOSITORY = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"PYTHONPATH": str(REPOSITORY)}
TICKS = os.sysconf("SC_CLK_TCK")
_TAIL = 3000  # bytes of a program's output that an error quotes


@dataclass(frozen=True)
class Memory:
    """Resident memory in MiB: now, and the highest since the peak was last reset."""

    resident: float
    peak: float


class Process:
    """A program whose output goes to `log`."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self._child = child
        self._log = log
        self._proc = Path(f"/proc/{child.pid}")

    def cpu_seconds(self) -> float:
        """Return the user and system time of all threads since the start."""
        return cpu_seconds((self._proc / "stat").read_text())

    def memory(self) -> Memory:
        """Return the resident memory and its peak."""
        return memory((self._proc / "status").read_text())

    def reset_peak(self) -> None:
        """Count the memory's peak from now on."""
        (self._proc / "clear_refs").write_text("5")

    def output_tail(self) -> str:
        """Return the end of the output, for errors."""
        return self._log.read_text(errors="replace")[-_TAIL:]

    def stop(self) -> None:
        """Send SIGTERM and wait for the end of the program."""
        stop(self._child)


class CoreUse:
    """The work of the machine's cores since this object was made."""

    def __init__(self) -> None:
        self._start = machine_seconds()

    def share(self) -> float:
        """Return the share (0 to 1) of the cores' time in which they worked for any process."""
        worked, passed = (
            now - then for now, then in zip(machine_seconds(), self._start, strict=True)
        )
        return worked / passed


def start(
    launcher: Launcher, command: Sequence[str], log: Path, env: Mapping[str, str]
) -> Process:
    """Start a program with these variables added to the environment."""
    # env(1) becomes the program: the process measured is the program itself
    return Process(launcher.start([*_env(env), *command], log), log)


async def run_measurement(module: str, arguments: Sequence[str]) -> list[float]:
    """Run a module of this project in a process of its own.

    :returns: the numbers that it printed.
    :raises RuntimeError: the module failed.
    """
    process = await asyncio.create_subprocess_exec(
        *_env(ENVIRONMENT),
        *(sys.executable, "-m", module, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    if process.returncode != 0:
        tail = (output + errors)[-_TAIL:].decode(errors="replace")
        raise RuntimeError(f"{module} failed:\n{tail}")
    return [float(number) for number in output.split()]


def machine_seconds(stat: str = "") -> tuple[float, float]:
    """Return the seconds in which cores worked, and all their seconds since boot.

    :param stat: the text of /proc/stat; read if empty.
    """
    line = (stat or Path("/proc/stat").read_text()).splitlines()[0]
    fields = [int(field) / TICKS for field in line.split()[1:9]]  # guests' are among users'
    return sum(fields) - fields[3] - fields[4], sum(fields)


def cpu_seconds(stat: str, ticks: int = TICKS) -> float:
    """Return the user and system seconds in the text of /proc/PID/stat.

    :param ticks: of the kernel in a second.
    """
    fields = stat.rpartition(")")[2].split()  # the name before may hold spaces
    return (int(fields[11]) + int(fields[12])) / ticks


def memory(status: str) -> Memory:
    """Return VmRSS and VmHWM in the text of /proc/PID/status."""
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    resident, peak = (int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return Memory(resident, peak)


def _env(variables: Mapping[str, str]) -> list[str]:
    return ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items())]
