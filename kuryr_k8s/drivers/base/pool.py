"""One pool: a record for each of its ports, and how many more ports it wants.

    creating → available → in use → returning → available
                   │                    │
                   └──────→ leaving ←───┘ → gone

A port is in exactly one phase. Ports being created are only counted, since nobody knows yet which
ports they will be. While a Pod waits for the pool, no port is available.
"""

import enum
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from oslo_config import cfg

from kuryr_k8s.drivers.base.pools import PoolNumbers


class Identified(Protocol):
    """A port, as far as a pool knows it."""

    @property
    def id(self) -> str:
        """The id of the port, which no other port has."""


K = TypeVar("K")
P = TypeVar("P", bound=Identified)


class Phase(enum.StrEnum):
    """The phase of a port's life in a pool."""

    AVAILABLE = "available"
    IN_USE = "in_use"
    RETURNING = "returning"
    LEAVING = "leaving"


class Check(enum.Enum):
    """The state of the check that a port that returned is as its pool promises."""

    DUE = enum.auto()
    FAILED = enum.auto()  # Neutron could not be asked or changed: to be tried again
    PASSED = enum.auto()


class Mode(enum.Enum):
    """The mode of a pool, which says whether it fills itself."""

    OPEN = enum.auto()
    EMPTIED = enum.auto()  # by an operator: it rests until somebody asks for a port
    CLOSED = enum.auto()  # its node or network is gone: all of its ports leave


class Claim(NamedTuple):
    """An interface of a Pod that has a port or waits for one."""

    pod_uid: str
    ifname: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The options of ``[vif_pool]`` that limit a pool; times in seconds, 0 for none."""

    minimum: int = 5
    batch: int = 10
    maximum: int = 0
    ttl: float = 0.0
    idle: float = 0.0
    cooldown: float = 0.0

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> Self:
        """Read the options."""
        options = conf.vif_pool
        return cls(
            minimum=options.ports_pool_min,
            batch=options.ports_pool_batch,
            maximum=options.ports_pool_max,
            ttl=options.ports_pool_ttl,
            idle=options.ports_pool_idle,
            cooldown=options.ports_pool_cooldown,
        )


@dataclass(slots=True, eq=False)
class PortRecord(Generic[P]):
    """The record of one port of a pool.

    :param since: when the port entered its phase.
    :param holder: of a port in use: the claim that has it. The interface name is empty where only
        the KuryrPort knows it: for a port from an earlier life of the controller, and for one that
        was set aside. None for a port that is withheld: it may be some Pod's.
    :param unnoticed: of a port that is withheld: it was made after the pools were recovered,
        perhaps by a creation whose answer was lost. So it counts as one that comes.
    :param check: of a port that returns.
    :param parked: the node keeps the port plugged.
    """

    port: P
    pool: "Pool[Any, P]"
    phase: Phase
    since: float
    holder: Claim | None = None
    unnoticed: bool = False
    check: Check = Check.DUE
    parked: bool = False


@dataclass(slots=True, eq=False)
class Pool(Generic[K, P]):
    """The ports of one key: whatever makes them interchangeable.

    :param used: when somebody last asked for a port, got one or returned one.
    :param ordered: ports that an operator asked for and that are still to be made.
    :param waiting: the claims that wait, in the order in which they came.
    """

    key: K
    limits: Limits
    used: float
    creating: int = 0
    ordered: int = 0
    waiting: dict[Claim, None] = field(default_factory=dict)
    mode: Mode = Mode.OPEN
    _records: dict[Phase, dict[str, PortRecord[P]]] = field(
        default_factory=lambda: {phase: {} for phase in Phase}
    )

    # Records by port id, in the order in which the ports entered the phase.

    @property
    def available(self) -> dict[str, PortRecord[P]]:
        return self._records[Phase.AVAILABLE]

    @property
    def in_use(self) -> dict[str, PortRecord[P]]:
        return self._records[Phase.IN_USE]

    @property
    def returning(self) -> dict[str, PortRecord[P]]:
        return self._records[Phase.RETURNING]

    @property
    def leaving(self) -> dict[str, PortRecord[P]]:
        return self._records[Phase.LEAVING]

    def records(self) -> Iterator[PortRecord[P]]:
        """List the records of all ports."""
        for records in self._records.values():
            yield from records.values()

    def first(self, phase: Phase, count: int) -> list[PortRecord[P]]:
        """List the records of the ports that have been in a phase for longest."""
        return list(itertools.islice(self._records[phase].values(), count))

    def is_closed(self) -> bool:
        """Return whether all ports of the pool leave."""
        return self.mode is Mode.CLOSED

    def is_empty(self) -> bool:
        """Return whether there is nothing left to be remembered about the pool."""
        has_ports = any(self._records.values())
        return not (has_ports or self.creating or self.waiting or self.ordered)

    def has_lost_all(self, now: float) -> bool:
        """Return whether the pool should have ports, and nothing leads to one.

        It would be forgotten when its last port has left.
        """
        has_some = self.available or self.returning or self.in_use
        return bool(self.target(now)) and not (
            has_some or self.creating or self.waiting or self.ordered
        )

    def numbers(self, now: float) -> PoolNumbers:
        """Count the ports by phase."""
        return PoolNumbers(
            available=len(self.available),
            parked=sum(record.parked for record in self.available.values()),
            in_use=len(self.in_use),
            creating=self.creating,
            returning=len(self.returning),
            leaving=len(self.leaving),
            target=self.target(now),
            waiting=len(self.waiting),
        )

    def add(self, port: P, phase: Phase, now: float) -> PortRecord[P]:
        """Take in a port that was not known."""
        record = PortRecord(port, self, phase, now)
        self._records[phase][port.id] = record
        return record

    def move(self, record: PortRecord[P], phase: Phase, now: float) -> None:
        """Let a port enter another phase."""
        del self._records[record.phase][record.port.id]
        record.phase, record.since = phase, now
        record.holder, record.unnoticed, record.check = None, False, Check.DUE
        self._records[phase][record.port.id] = record

    def remove(self, record: PortRecord[P]) -> None:
        """Forget a port."""
        del self._records[record.phase][record.port.id]

    def next_port(self) -> PortRecord[P] | None:
        """Choose the port for the next Pod.

        Parked ports go first, since they are ACTIVE already; then the ports that were available
        for longest. A port that is still cooling down is given only where nothing else is left.
        """
        parked = next((record for record in self.available.values() if record.parked), None)
        return (
            parked
            or next(iter(self.available.values()), None)
            or next((r for r in self.returning.values() if r.check is Check.PASSED), None)
        )

    def due(self) -> list[P]:
        """List the ports that returned and are to be checked."""
        records = self.returning.values()
        return [record.port for record in records if record.check is not Check.PASSED]

    def expects_port_for(self, claim: Claim) -> bool:
        """Return whether more ports come back, once checked, than other claims wait for."""
        others = len(self.waiting) - (claim in self.waiting)
        return others < self._expected()

    def _expected(self) -> int:
        """Count the ports that returned, and that Pods may count on."""
        return sum(record.check is not Check.FAILED for record in self.returning.values())

    # -- how many ports are wanted

    def wanted(self, now: float) -> tuple[int, int]:
        """Count the ports to create: for Pods that wait, and to fill the pool for later Pods."""
        coming = self.creating + self._expected()
        coming += sum(record.unnoticed for record in self.in_use.values())
        awaited = max(0, len(self.waiting) - coming)
        target = self.target(now)
        left = len(self.available) + coming + awaited - len(self.waiting)
        refill = max(target - left, self.limits.batch - awaited) if left < target else 0
        refill = max(refill, self.ordered)
        if self.limits.maximum:
            refill = min(refill, max(0, self.limits.maximum - left))
        return awaited, refill

    def begin(self, count: int, now: float) -> int:
        """Note that ``count`` ports are being created, for Pods that wait first.

        :returns: how many of them an operator ordered.
        """
        awaited, _ = self.wanted(now)
        ordered = min(self.ordered, max(0, count - awaited))
        self.ordered -= ordered
        self.creating += count
        return ordered

    def found_ordered(self) -> None:
        """Count a port whose creation no answer reported as one of those ordered."""
        self.ordered = max(0, self.ordered - 1)

    def target(self, now: float) -> int:
        """Count the ports that the pool should have available at least."""
        if self.mode is not Mode.OPEN or self.is_idle(now):
            return 0
        if self.limits.maximum:
            return min(self.limits.minimum, self.limits.maximum)
        return self.limits.minimum

    def is_idle(self, now: float) -> bool:
        """Return whether nobody has used the pool for so long that it should have no ports."""
        needed = self.in_use or self.waiting
        return bool(self.limits.idle) and not needed and now - self.used >= self.limits.idle

    def is_full(self) -> bool:
        """Return whether one more port that returns would exceed the maximum."""
        free = len(self.available) + len(self.returning) - len(self.waiting)
        return bool(self.limits.maximum) and free >= self.limits.maximum

    # -- the passage of time

    def cool(self, now: float) -> None:
        """Make available the ports that returned long enough ago."""
        for record in list(self.returning.values()):
            if record.check is Check.PASSED and now - record.since >= self.limits.cooldown:
                self.move(record, Phase.AVAILABLE, now)

    def shrink(self, now: float) -> None:
        """Dismiss ports beyond the maximum, and ports that were unused for too long."""
        unneeded = self.is_closed() or self.is_idle(now)
        if unneeded or self.is_full():  # as it is before ports that are old make room
            self.ordered = 0  # an order that found no room is not met at some later time
        target = self.target(now)
        for record in list(self.available.values()):
            count = len(self.available)
            excess = self.limits.maximum and count > self.limits.maximum
            age = now - record.since
            old = self.limits.ttl and age >= self.limits.ttl and count > target
            if not (unneeded or excess or old):
                break
            self.dismiss(record, now)
        if unneeded:
            for record in list(self.returning.values()):
                self.dismiss(record, now)

    def dismiss(self, record: PortRecord[P], now: float) -> None:
        """Give the port to no Pod any more; it is to be deleted."""
        if record.phase is not Phase.LEAVING:
            self.move(record, Phase.LEAVING, now)
