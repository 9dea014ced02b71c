"""The floor of `bench pods`: the time that the API server alone takes for as many KuryrPorts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from bench.testbed.processes import run_measurement
from bench.testbed.testbed import Testbed


@dataclass(frozen=True)
class Floor:
    """Seconds in which KuryrPorts are created with their status, and are deleted."""

    creation: float
    deletion: float


class Floors:
    """The floors for several numbers of Pods, as medians of all measurements."""

    def __init__(self, testbed: Testbed, numbers: Iterable[int]) -> None:
        self._testbed = testbed
        self._measured: dict[int, list[Floor]] = {number: [] for number in numbers}

    async def measure(self, times: int = 2) -> None:
        """Measure each floor so many times, in a process of its own.

        No controller may run.
        """
        for number, floors in self._measured.items():
            for _ in range(times):
                arguments = [str(number), *self._testbed.configuration]
                seconds = await run_measurement("bench.pods.floor_process", arguments)
                floors.append(Floor(*seconds))

    def medians(self) -> dict[int, Floor]:
        """Return the floor for each number of Pods."""
        return {
            number: Floor(
                median(floor.creation for floor in floors),
                median(floor.deletion for floor in floors),
            )
            for number, floors in self._measured.items()
        }
