"""What the API server alone takes for as many KuryrPorts: measured by `floor_process.py`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from bench.testbed.testbed import ENVIRONMENT, Stage


@dataclass(frozen=True)
class Floor:
    """Seconds in which so many KuryrPorts are created with their status, and are deleted."""

    coming: float
    going: float


class Floors:
    """Floors for several numbers of Pods; every :meth:`measure` adds to what medians are of."""

    def __init__(self, stage: Stage, numbers: Iterable[int]) -> None:
        self._stage = stage
        self._found: dict[int, list[Floor]] = {number: [] for number in numbers}

    async def measure(self, times: int = 2) -> None:
        """In a process of its own, with nobody else at work."""
        for number, found in self._found.items():
            for _ in range(times):
                found.append(await self._measure(number))

    def medians(self) -> dict[int, Floor]:
        """For each number of Pods."""
        return {
            number: Floor(median(one.coming for one in found), median(one.going for one in found))
            for number, found in self._found.items()
        }

    async def _measure(self, number: int) -> Floor:
        process = await asyncio.create_subprocess_exec(
            *("/usr/bin/env", *(f"{name}={value}" for name, value in ENVIRONMENT.items())),
            *(
                sys.executable,
                "-m",
                "bench.pods.floor_process",
                str(number),
                *self._stage.configuration,
            ),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, complaints = await process.communicate()
        if process.returncode != 0:
            words = (printed + complaints)[-3000:].decode(errors="replace")
            raise RuntimeError(f"the floor could not be measured:\n{words}")
        return Floor(*map(float, printed.split()))
