"""The NeutronPorts of one NeutronPortPool: how many more it wants, and which are to go; pure.

The phases are those of the pools of ports of nodes, and so are the numbers.
"""

from typing import NamedTuple

from kuryr_k8s.drivers.base.pool import Limits, Phase, Pool, PortRecord
from kuryr_k8s.model.neutronport import AVAILABLE, FAILED, NeutronPort
from kuryr_k8s.model.neutronportpool import NeutronPortPool

QUICKLY = 5.0  # seconds: where all that was made is used up sooner, more is made the next time
LARGEST = 64  # NeutronPorts made at a time


class Member(NamedTuple):
    """A NeutronPort that has a port, by its uid."""

    id: str


class Members:
    """The NeutronPorts of one pool. Times are those of any one clock, handed in."""

    def __init__(self, pool_uid: str, now: float) -> None:
        self._pool: Pool[str, Member] = Pool(pool_uid, Limits(minimum=0, batch=0), now)
        self._ports: dict[str, NeutronPort] = {}  # by their uids
        self._records: dict[str, PortRecord[Member]] = {}  # of those that have a port, or go
        self._batch = 0  # as many are made the next time, at least
        self._made: float | None = None  # when some were made last

    def __bool__(self) -> bool:
        return bool(self._ports)

    def note(self, port: NeutronPort, now: float) -> None:
        """Note what has become of a NeutronPort."""
        self._ports[port.uid] = port
        phase, record = _phase(port), self._records.get(port.uid)
        if record is None:
            if phase is not None:
                self._records[port.uid] = self._pool.add(Member(port.uid), phase, now)
        elif phase is None:
            self._pool.remove(self._records.pop(port.uid))
        elif record.phase is not phase and not (
            record.phase is Phase.LEAVING and phase is Phase.AVAILABLE
        ):
            self._pool.move(record, phase, now)

    def forget(self, uid: str) -> None:
        """Forget a NeutronPort that is gone."""
        self._ports.pop(uid, None)
        if (record := self._records.pop(uid, None)) is not None:
            self._pool.remove(record)

    def limit(self, pool: NeutronPortPool) -> None:
        """Note what the specification says."""
        self._pool.limits = Limits(
            minimum=pool.minimum,
            batch=self._batch,
            maximum=pool.maximum,
            ttl=pool.ttl,
        )

    def missing(self, now: float) -> int:
        """Count the NeutronPorts to make now.

        Where all that was made last is used up at once, twice as many are made the next time.
        """
        self._pool.creating = len(self._unmade())
        count = self._pool.wanted(now)[1]
        if not count:
            return 0
        is_used_up = not (self._pool.available or self._pool.creating)
        is_quick = self._made is not None and now - self._made < QUICKLY
        self._batch = min(LARGEST, 2 * max(self._batch, count)) if is_used_up and is_quick else 0
        self._made = now
        return count

    def spare(self, now: float) -> list[NeutronPort]:
        """List those that are to go, and are not going yet: too many, or unused for too long."""
        self._pool.shrink(now)
        leaving = [self._ports[uid] for uid in self._pool.leaving]
        failed = [port for port in self._unmade() if port.phase == FAILED]
        there = len(self._pool.available) + len(self._unmade())
        surplus = failed[: max(0, there - self._pool.target(now))]
        return [port for port in (*leaving, *surplus) if not port.deleting]

    def unlike(self, pool: NeutronPortPool) -> list[NeutronPort]:
        """List those that are not as the template says."""
        ports = self._ports.values()
        return [port for port in ports if not (port.deleting or pool.is_like(port))]

    def counts(self) -> dict[str, int]:
        """Count them by their phases, for the status of the pool."""
        unmade = self._unmade()
        failed = sum(port.phase == FAILED for port in unmade)
        return {
            "available": len(self._pool.available),
            "bound": len(self._pool.in_use),
            "pending": len(unmade) - failed,
            "failed": failed,
        }

    def failed(self) -> NeutronPort | None:
        """Return one that can have no port, if there is one."""
        return next((port for port in self._unmade() if port.phase == FAILED), None)

    def until_old(self, now: float) -> float | None:
        """Return the seconds until one has been unused for too long; None: none will have been."""
        limits, oldest = self._pool.limits, self._pool.first(Phase.AVAILABLE, 1)
        if not (limits.ttl and oldest) or len(self._pool.available) <= self._pool.target(now):
            return None
        return max(0.0, oldest[0].since + limits.ttl - now)

    def _unmade(self) -> list[NeutronPort]:
        """List those that have no port yet."""
        return [port for uid, port in self._ports.items() if uid not in self._records]


def _phase(port: NeutronPort) -> Phase | None:
    """Return the phase of a NeutronPort in its pool; None: it has no port yet."""
    if port.deleting:
        return Phase.LEAVING
    if port.bound_to is not None or port.reserved_for:
        return Phase.IN_USE
    return Phase.AVAILABLE if port.port_id and port.phase == AVAILABLE else None
