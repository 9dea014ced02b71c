"""The memory of the product's programs, and how long they have been running."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from lab.lifecycle.supervisor import Supervisor
from lab.process import Identity, session

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Size:
    """Resident memory in MiB, and the seconds since the program's start."""

    mebibytes: float
    age: float

    def __str__(self) -> str:
        return f"{self.mebibytes:.1f} ({self.age / 60:.1f} min)"


def size_of(supervisor: Supervisor, name: str) -> Size | None:
    """Measure a component and all that it has started; None while it is not running."""
    record = supervisor.find(name)
    if record is None or record.process is None or not record.alive:
        return None
    pages = sum(map(_resident, session(record.process)))
    started = record.process.start / _TICKS
    return Size(pages * _PAGE / 2**20, time.clock_gettime(time.CLOCK_BOOTTIME) - started)


def _resident(process: Identity) -> int:
    try:
        return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0  # it has ended meanwhile
