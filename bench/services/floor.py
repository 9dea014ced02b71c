"""The floor of `bench services`: the time that Octavia alone takes for as many Services."""

from __future__ import annotations

from dataclasses import dataclass

from bench.services.floor_process import NAME
from bench.testbed.processes import run_measurement
from bench.testbed.testbed import Testbed


@dataclass(frozen=True)
class Floor:
    """Seconds until the last load balancer is no longer PENDING, and until all were seen so."""

    made: float
    seen: float


async def measure(testbed: Testbed, number: int, endpoints: int, pending: float) -> Floor:
    """Measure the floor in a process of its own, with the delays that the cloud has.

    The controller must be idle. All load balancers are removed afterwards.
    """
    arguments = [str(number), str(endpoints), str(pending), *testbed.configuration]
    seconds = await run_measurement("bench.services.floor_process", arguments)
    await testbed.cloud.remove_load_balancers(NAME)
    return Floor(*seconds)
