"""The parts of the daemon: what each of them runs, and how it is observed.

``app.py`` builds the parts, registers their metrics and checks, and runs their loops in one task
group. It knows nothing else about them.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from prometheus_client.registry import Collector


class Loop(Protocol):
    """A coroutine that runs as long as the daemon, such as a controller."""

    @property
    def name(self) -> str:
        """Return the name of its task."""

    @property
    def run(self) -> Callable[[], Coroutine[Any, Any, None]]:
        """Return the function that runs until it is cancelled."""


class Job(NamedTuple):
    """A loop that is a mere function."""

    name: str
    run: Callable[[], Coroutine[Any, Any, None]]


class Part:
    """A part of the daemon. What it does not declare, it does not have."""

    def loops(self) -> Sequence[Loop]:
        """Return what runs as long as the daemon."""
        return ()

    def checks(self) -> Mapping[str, Callable[[], bool]]:
        """Return what must hold for ``/readyz`` to answer 200, by name."""
        return {}

    def collectors(self) -> Sequence[Collector]:
        """Return the metrics of this part."""
        return ()

    async def started(self) -> None:
        """Wait until this part allows the node to be announced to the container runtime."""

    def awaited(self) -> str:
        """Describe for users what :meth:`started` waits for."""
        return ""
