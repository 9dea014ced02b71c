"""A life: what users, scheduler and kubelet do to an object from its creation to its end."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Steps = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass(frozen=True, eq=False)
class Life:
    """A life without faults, and what the tables of faults need to know of it.

    The coroutine function gets the stage, what runs the controllers, and `at`. It does what
    users and Kubernetes do, waits for what the controller owes, and calls `await at(moment)`
    where the state is to be compared.
    """

    steps: Steps
    environment: str = "pods"  # which kind of stage; see tests/tables/conftest.py
    name: str = ""
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of the controller
    writes: tuple[str, ...] = ()  # of the sides that are declared, each in its order
    # Another life begins alike: it has the faults at the writes before this moment.
    shared: str = ""
    # At least so many writes of a kind; how many there are depends on time.
    batched: Mapping[str, int] = field(default_factory=dict)
    # Which writes are struck (None: all).
    struck: Callable[[Any], bool] | None = None
    # The sides whose answers are struck; the other ones see crashes alone.
    answers: frozenset[str] = frozenset({"kube", "neutron"})
    plain: bool = False  # its writes are also left without an answer in a sample

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.steps.__name__)  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return self.name

    def made(self, record: Any) -> list[Any]:
        """Return the writes of an undisturbed record that every run makes."""
        return [
            place
            for place in record.writes
            if place.nth <= self.batched.get(place.what, place.nth)
        ]

    def targets(self, record: Any) -> list[Any]:
        """Return the writes of an undisturbed record that this life's table strikes."""
        return [place for place in self.made(record) if self.struck is None or self.struck(place)]


def life(**what: Any) -> Callable[[Steps], Life]:
    """Declare a life: keyword arguments are the attributes of Life."""
    return lambda steps: Life(steps, **what)
