"""What Octavia alone takes for as many Services: measured by `floor_process.py`."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from bench.services.floor_process import NAME
from bench.testbed.testbed import ENVIRONMENT, Stage


@dataclass(frozen=True)
class Floor:
    """Seconds until the last of the creations has come to its end, and until each was seen to."""

    made: float
    seen: float


async def measure(stage: Stage, number: int, endpoints: int, pending: float) -> Floor:
    """In a process of its own; the cloud is dialled, and nobody else at work. Nothing is left."""
    process = await asyncio.create_subprocess_exec(
        *("/usr/bin/env", *(f"{name}={value}" for name, value in ENVIRONMENT.items())),
        *(
            sys.executable,
            "-m",
            "bench.services.floor_process",
            str(number),
            str(endpoints),
            str(pending),
        ),
        *stage.configuration,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, complaints = await process.communicate()
    if process.returncode != 0:
        words = (printed + complaints)[-3000:].decode(errors="replace")
        raise RuntimeError(f"the floor could not be measured:\n{words}")
    await stage.cloud.remove_balancers(NAME)
    return Floor(*map(float, printed.split()))
