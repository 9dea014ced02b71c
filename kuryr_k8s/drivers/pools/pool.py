"""The ports of one pool: where each of them is, and how many more are wanted.

    creating → available → in use → returning → available
                   │                    │
                   └──────→ leaving ←───┘ → gone

A port is in exactly one of these places. ``creating`` is a number: nobody knows which ports they
will be. While anybody waits nothing is available.
"""

from collections import OrderedDict
from collections.abc import Container
from dataclasses import dataclass, field

from kuryr_k8s.drivers.base import PoolKey
from kuryr_k8s.drivers.pools.claims import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The options of ``[vif_pool]``; times in seconds, 0 for none."""

    minimum: int = 5
    batch: int = 10
    maximum: int = 0
    ttl: float = 0.0
    idle: float = 0.0
    cooldown: float = 0.0


@dataclass(slots=True)
class Pool:
    """Ports of one key, by id. Values are the times at which they came there."""

    key: PoolKey
    limits: Limits
    used: float  # when somebody last asked for a port, got one or gave one back
    available: OrderedDict[str, float] = field(default_factory=OrderedDict)
    in_use: dict[str, float] = field(default_factory=dict)
    returning: OrderedDict[str, float] = field(default_factory=OrderedDict)
    checked: set[str] = field(default_factory=set)  # of the returning
    doubtful: set[str] = field(default_factory=set)  # of the returning: not to be counted on
    leaving: dict[str, float] = field(default_factory=dict)
    creating: int = 0
    ordered: int = 0  # ports that somebody asked for besides
    waiting: OrderedDict[Claim, None] = field(default_factory=OrderedDict)
    rests: bool = False  # it was emptied by hand, and nobody has asked for it since
    closed: bool = False  # its place or network is gone

    def is_empty(self) -> bool:
        """Whether there is nothing to be remembered of it."""
        return not (self.ports() or self.creating or self.waiting or self.ordered)

    def ports(self) -> list[str]:
        return [*self.available, *self.in_use, *self.returning, *self.leaving]

    def place_of(self, port: str) -> str:
        """The place's name; empty for a port that is not here."""
        for name in ("available", "in_use", "returning", "leaving"):
            if port in getattr(self, name):
                return name
        return ""

    def take_out(self, port: str) -> None:
        """It is at no place any more."""
        for place in (self.available, self.in_use, self.returning, self.leaving):
            place.pop(port, None)
        self.checked.discard(port)
        self.doubtful.discard(port)

    def best(self, parked: Container[str]) -> str | None:
        """The port to be given next. Those that are parked, hence ACTIVE, go first; then those
        that were free for longest; those that are cooling only where nothing else is left."""
        port = next((port for port in self.available if port in parked), None)
        port = port or next(iter(self.available), None)
        return port or next((port for port in self.returning if port in self.checked), None)

    # -- how many there are to be

    def wanted(self, now: float) -> tuple[int, int]:
        """Ports to create: for those who wait, and to fill the pool for those to come."""
        coming = self.creating + len(self.returning) - len(self.doubtful)
        awaited = max(0, len(self.waiting) - coming)
        target = self.target(now)
        left = len(self.available) + coming + awaited - len(self.waiting)
        refill = max(target - left, self.limits.batch - awaited) if left < target else 0
        refill = max(refill, self.ordered)
        if self.limits.maximum:
            refill = min(refill, max(0, self.limits.maximum - left))
        return awaited, refill

    def begin(self, count: int, now: float) -> int:
        """So many ports are being created: whoever waits is cared for first, then orders are; how
        many were ordered."""
        awaited, _ = self.wanted(now)
        ordered = min(self.ordered, max(0, count - awaited))
        self.ordered -= ordered
        self.creating += count
        return ordered

    def target(self, now: float) -> int:
        """How many ports the pool is to have available at least."""
        if self.closed or self.rests or self.is_idle(now):
            return 0
        if self.limits.maximum:
            return min(self.limits.minimum, self.limits.maximum)
        return self.limits.minimum

    def is_idle(self, now: float) -> bool:
        """Whether nobody needed it for so long that it is to have no ports."""
        needed = self.in_use or self.waiting
        return bool(self.limits.idle) and not needed and now - self.used >= self.limits.idle

    def is_full(self) -> bool:
        """Whether a port that comes back is one too many."""
        free = len(self.available) + len(self.returning) - len(self.waiting)
        return bool(self.limits.maximum) and free >= self.limits.maximum

    # -- time

    def cool(self, now: float) -> None:
        """What has returned for long enough is available."""
        for port, since in list(self.returning.items()):
            if port in self.checked and now - since >= self.limits.cooldown:
                self.take_out(port)
                self.available[port] = now

    def shrink(self, now: float) -> None:
        """Let go of what is too much, or was unused for too long."""
        unneeded = self.closed or self.is_idle(now)
        target = self.target(now)
        for port, since in list(self.available.items()):
            count = len(self.available)
            excess = self.limits.maximum and count > self.limits.maximum
            old = self.limits.ttl and now - since >= self.limits.ttl and count > target
            if not (unneeded or excess or old):
                break
            self.dismiss(port, now)
        if unneeded or self.is_full():
            self.ordered = 0  # what found no room so far is not to come some day
        if unneeded:
            for port in list(self.returning):
                self.dismiss(port, now)

    def dismiss(self, port: str, now: float) -> None:
        """It will not be given to anybody any more, and is to be deleted."""
        since = self.leaving.get(port, now)
        self.take_out(port)
        self.leaving[port] = since
