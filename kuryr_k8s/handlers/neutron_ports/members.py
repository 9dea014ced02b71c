"""The NeutronPorts of one NeutronPortPool: how many more it wants, and which are to go; pure.

The phases are those of the pools of ports of nodes, and so are the numbers.
"""

from typing import NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.drivers.base.pool import Limits, Phase, Pool, PortRecord
from kuryr_k8s.model.condition import Condition
from kuryr_k8s.model.neutronport import AVAILABLE, FAILED, NeutronPort
from kuryr_k8s.model.neutronportpool import NeutronPortPool

QUICKLY = 5.0  # seconds: where all that was made is used up sooner, more is made the next time
LARGEST = 64  # NeutronPorts without a port at a time


class Member(NamedTuple):
    """A NeutronPort that has a port, by its uid."""

    id: str


class Members:
    """The NeutronPorts of one pool. Times are those of any one clock, handed in."""

    def __init__(self, now: float) -> None:
        self._pool: Pool[None, Member] = Pool(None, Limits(minimum=0, batch=0), now)
        self._wanted: NeutronPortPool | None = None  # the pool as it was seen last
        self._ports: dict[str, NeutronPort] = {}  # by their uids
        self._records: dict[str, PortRecord[Member]] = {}  # of those that have a port, or go
        self._unmade: dict[str, NeutronPort] = {}  # those that have no port yet
        self._unlike: dict[str, NeutronPort] = {}  # those that are not as the template says
        self._amiss: dict[str, NeutronPort] = {}  # those that say themselves what is wrong
        # why some cannot follow the template, and the resourceVersions that this is about
        self._refusals: dict[str, tuple[str, errors.Refused]] = {}
        self._made = (0, -QUICKLY)  # how many were made last, and when
        self._is_quick = False  # they were made soon after those before them

    def __len__(self) -> int:
        return len(self._ports)

    def note(self, port: NeutronPort, now: float) -> None:
        """Note what has become of a NeutronPort."""
        uid, phase = port.uid, _phase(port)
        self._ports[uid] = port
        record = self._records.get(uid)
        if record is None:
            if phase is not None:
                self._records[uid] = self._pool.add(Member(uid), phase, now)
        elif phase is None:
            self._pool.remove(self._records.pop(uid))
        elif record.phase is not phase and not (
            record.phase is Phase.LEAVING and phase is Phase.AVAILABLE
        ):
            self._pool.move(record, phase, now)
        _keep(self._unmade, port, is_in=phase is None)
        _keep(self._amiss, port, is_in=_problem(port) is not None)
        self._compare(port)

    def forget(self, uid: str) -> None:
        """Forget a NeutronPort that is gone."""
        for known in (self._ports, self._unmade, self._unlike, self._amiss):
            known.pop(uid, None)
        self._refusals.pop(uid, None)
        if (record := self._records.pop(uid, None)) is not None:
            self._pool.remove(record)

    def follow(self, pool: NeutronPortPool, now: float) -> None:
        """Note what the specification says."""
        has_changed = self._wanted is None or self._wanted.generation != pool.generation
        self._wanted = pool
        if has_changed:
            self._refusals.clear()
            for port in self._ports.values():
                self._compare(port)
        self._pool.limits = Limits(
            minimum=pool.minimum,
            batch=self._batch(now),
            maximum=pool.maximum,
            ttl=pool.ttl,
        )

    def _batch(self, now: float) -> int:
        """Return how many to make if any: twice as many where all are used up soon, again."""
        count, when = self._made
        is_used_up = not (self._pool.available or self._unmade) and now - when < QUICKLY
        return min(LARGEST, 2 * count) if is_used_up and self._is_quick else 0

    def _compare(self, port: NeutronPort) -> None:
        wanted = self._wanted
        is_unlike = wanted is not None and not (port.deleting or wanted.is_like(port))
        _keep(self._unlike, port, is_in=is_unlike)

    def missing(self, now: float) -> int:
        """Count the NeutronPorts to make now; none while some can have no port."""
        if any(port.phase == FAILED for port in self._unmade.values()):
            return 0
        self._pool.creating = len(self._unmade)
        return max(0, min(self._pool.wanted(now)[1], LARGEST - len(self._unmade)))

    def made(self, count: int, now: float) -> None:
        """Note that so many were made."""
        self._is_quick = now - self._made[1] < QUICKLY
        self._made = (count, now)

    def spare(self, now: float) -> list[NeutronPort]:
        """List those that are to go, and are not going yet: too many, or unused for too long.

        One that has lost its port goes if it cannot have another one with its addresses: they are
        nobody's in particular.
        """
        self._pool.shrink(now)
        leaving = [self._ports[uid] for uid in self._pool.leaving]
        failed = [port for port in self._unmade.values() if port.phase == FAILED]
        failed.sort(key=lambda port: not port.mac)  # those that had a port first
        there = len(self._pool.available) + len(self._unmade)
        surplus = max(0, there - self._pool.target(now), sum(bool(port.mac) for port in failed))
        return [port for port in (*leaving, *failed[:surplus]) if not port.deleting]

    def unlike(self) -> list[NeutronPort]:
        """List those that are not as the template says, and for all that is known can be."""
        refused = self._refusals
        return [
            port
            for uid, port in self._unlike.items()
            if uid not in refused or refused[uid][0] != port.resource_version
        ]

    @property
    def are_alike(self) -> bool:
        """True if all NeutronPorts of the pool are as its template says."""
        return not self._unlike

    def refuse(self, port: NeutronPort, refusal: errors.Refused) -> None:
        """Note that a NeutronPort cannot follow the template until one of the two changes."""
        self._refusals[port.uid] = (port.resource_version, refusal)

    def refusal(self) -> errors.Refused | None:
        """Return why a NeutronPort cannot follow the template, if one cannot."""
        found = (self._refusals[uid][1] for uid in self._unlike if uid in self._refusals)
        return next(found, None)

    def counts(self) -> dict[str, int]:
        """Count them by their phases, for the status of the pool."""
        failed = sum(port.phase == FAILED for port in self._unmade.values())
        held = sum(self._ports[uid].bound_to is not None for uid in self._pool.leaving)
        return {
            "available": len(self._pool.available),
            "bound": len(self._pool.in_use) + held,
            "pending": len(self._unmade) - failed,
            "failed": failed,
        }

    def problem(self) -> tuple[NeutronPort, Condition] | None:
        """Return a NeutronPort that is not as it is to be, and what it says of that."""
        for port in self._amiss.values():
            if (condition := _problem(port)) is not None:
                return port, condition
        return None

    def until_old(self, now: float) -> float | None:
        """Return the seconds until one has been unused for too long; None: none will have been."""
        limits, oldest = self._pool.limits, self._pool.first(Phase.AVAILABLE, 1)
        if not (limits.ttl and oldest) or len(self._pool.available) <= self._pool.target(now):
            return None
        return max(0.0, oldest[0].since + limits.ttl - now)


def _keep(known: dict[str, NeutronPort], port: NeutronPort, *, is_in: bool) -> None:
    if is_in:
        known[port.uid] = port
    else:
        known.pop(port.uid, None)


def _phase(port: NeutronPort) -> Phase | None:
    """Return the phase of a NeutronPort in its pool; None: it has no port yet."""
    if port.deleting:
        return Phase.LEAVING
    if port.bound_to is not None or port.reserved_for:
        return Phase.IN_USE
    return Phase.AVAILABLE if port.port_id and port.phase == AVAILABLE else None


def _problem(port: NeutronPort) -> Condition | None:
    """Return the condition by which a NeutronPort says that it is not as it is to be."""
    if port.deleting:
        return None
    return next((each for _, each in port.conditions if not each.is_true), None)
