"""Which port of the pools is where: decides, without doing anything.

    creating → available → in use → returning → available
                   │                    │
                   └──────→ leaving ←───┘ → gone

A port is in exactly one of these places, or unknown. ``creating`` is a number: nobody knows which
ports they will be. Whoever waits for a port (a *claim*) gets the next one of his pool, first come,
first served: while anybody waits nothing is available.

A port that returns is *checked*, which takes Neutron, and cools down. Checked ones are given away
before that only where nothing else is left.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kuryr_k8s.drivers.base import PoolKey, Spare


class Claim(NamedTuple):
    """An interface of a Pod, that has a port or waits for one."""

    pod_uid: str
    ifname: str


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
    """The ports of one key, by id. Values are the times at which they came there."""

    key: PoolKey
    used: float
    available: OrderedDict[str, float] = field(default_factory=OrderedDict)
    in_use: dict[str, float] = field(default_factory=dict)
    returning: OrderedDict[str, float] = field(default_factory=OrderedDict)
    checked: OrderedDict[str, None] = field(default_factory=OrderedDict)  # of the returning
    leaving: dict[str, float] = field(default_factory=dict)
    creating: int = 0
    ordered: int = 0  # ports that somebody asked for besides
    waiting: OrderedDict[Claim, float] = field(default_factory=OrderedDict)
    rests: bool = False  # it was emptied by hand, and nobody has asked for it since
    closed: bool = False  # its place or network is gone

    def is_empty(self) -> bool:
        return not (self.ports() or self.creating or self.waiting or self.ordered)

    def ports(self) -> list[str]:
        return [*self.available, *self.in_use, *self.returning, *self.leaving]


class PoolState:
    """The pools of all keys. Times are those of any one clock, handed in."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pools: dict[PoolKey, Pool] = {}
        self._spares: dict[str, Spare] = {}
        self._pool_of: dict[str, Pool] = {}
        self._claims: dict[Claim, str] = {}  # the port of each
        self._holders: dict[str, str] = {}  # the Pod's uid of each port in use
        self._parked: set[str] = set()

    # -- Pods

    def take(self, key: PoolKey, claim: Claim, now: float) -> Spare | None:
        """A port for the claim: always the same until it is given back. None: it waits for one.

        Ports that are parked, hence ACTIVE, go first; then those that were free for longest.
        """
        if claim in self._claims:
            return self._spares[self._claims[claim]]
        pool = self._pool(key, now)
        pool.used = now
        pool.closed = pool.rests = False
        port = next((port for port in pool.available if port in self._parked), None)
        port = port or next(iter(pool.available), None) or next(iter(pool.checked), None)
        if port is None:
            self._wait(pool, claim, now)
            return None
        self._leave(pool, port)
        self._give(pool, port, claim, now)
        return self._spares[port]

    @staticmethod
    def _leave(pool: Pool, port: str) -> None:
        for where in (pool.available, pool.in_use, pool.returning, pool.checked, pool.leaving):
            where.pop(port, None)

    def _wait(self, pool: Pool, claim: Claim, now: float) -> None:
        for other in self.pools.values():
            if other is not pool:
                other.waiting.pop(claim, None)  # it asks for something else by now
        pool.waiting.setdefault(claim, now)

    def _give(self, pool: Pool, port: str, claim: Claim, now: float) -> None:
        pool.in_use[port] = now
        pool.used = now
        self._claims[claim] = port
        self._holders[port] = claim.pod_uid

    def withdraw(self, pod_uid: str, now: float) -> list[str]:
        """The Pod will never name the ports that it was promised: they come back."""
        for pool in self.pools.values():
            for claim in [claim for claim in pool.waiting if claim.pod_uid == pod_uid]:
                del pool.waiting[claim]
        promised = [port for claim, port in self._claims.items() if claim.pod_uid == pod_uid]
        for port in promised:
            self.give_back(port, now)
        return promised

    def give_back(self, port: str, now: float) -> bool:
        """The node has let go of it. Whether it is one of ours."""
        pool = self._pool_of.get(port)
        if pool is None:
            return False
        if port not in pool.in_use:
            return True
        self._release_claim(port)
        del pool.in_use[port]
        full = self.limits.maximum and (
            len(pool.available) + len(pool.returning) >= self.limits.maximum
        )
        if pool.closed or (full and not pool.waiting):
            pool.leaving[port] = now
        else:
            pool.returning[port] = now
        return True

    def _release_claim(self, port: str) -> None:
        self._holders.pop(port, None)
        for claim in [claim for claim, held in self._claims.items() if held == port]:
            del self._claims[claim]

    # -- creation

    def wanted(self, key: PoolKey, now: float) -> tuple[int, int]:
        """Ports to create: for those who wait, and to fill the pool for those to come."""
        pool = self.pools.get(key)
        if pool is None or pool.closed:
            return 0, 0
        coming = pool.creating + len(pool.returning)
        awaited = max(0, len(pool.waiting) - coming)
        target = self.target(key, now)
        left = len(pool.available) + coming + awaited - len(pool.waiting)
        refill = max(target - left, self.limits.batch - awaited) if left < target else 0
        refill = max(refill, pool.ordered)
        if self.limits.maximum:
            refill = min(refill, max(0, self.limits.maximum - left))
        return awaited, refill

    def target(self, key: PoolKey, now: float) -> int:
        """How many ports the pool is to have available at least."""
        pool = self.pools.get(key)
        if pool is None or pool.closed or pool.rests or self._is_idle(pool, now):
            return 0
        if self.limits.maximum:
            return min(self.limits.minimum, self.limits.maximum)
        return self.limits.minimum

    def _is_idle(self, pool: Pool, now: float) -> bool:
        return bool(self.limits.idle) and not pool.in_use and now - pool.used >= self.limits.idle

    def begin(self, key: PoolKey, count: int, now: float) -> None:
        """So many ports are being created; :meth:`made` is called for each end of that."""
        pool = self._pool(key, now)
        awaited, _ = self.wanted(key, now)
        pool.ordered = max(0, pool.ordered - max(0, count - awaited))
        pool.creating += count

    def order(self, key: PoolKey, count: int, now: float) -> None:
        """Somebody wants so many ports more to be available, once."""
        pool = self._pool(key, now)
        pool.closed, pool.rests, pool.used = False, False, now
        pool.ordered += count

    def made(self, key: PoolKey, count: int, spares: Iterable[Spare], now: float) -> list[Claim]:
        """A creation of ``count`` ports ended with these; whose turn it is that waited."""
        pool = self._pool(key, now)
        pool.creating -= count
        served = [self.adopt(spare, now) for spare in spares]
        return [claim for claim in served if claim is not None]

    def adopt(self, spare: Spare, now: float) -> Claim | None:
        """A port that is free, and was not known; whose turn it is that waited."""
        if spare.id in self._spares:
            return None
        pool = self._know(spare, now)
        if not spare.fit or pool.closed:
            pool.leaving[spare.id] = now
            return None
        return self._make_available(pool, spare.id, now)

    def _know(self, spare: Spare, now: float) -> Pool:
        pool = self._pool(spare.key, now)
        self._spares[spare.id] = spare
        self._pool_of[spare.id] = pool
        return pool

    def _make_available(self, pool: Pool, port: str, now: float) -> Claim | None:
        if pool.waiting:
            claim, _since = pool.waiting.popitem(last=False)
            self._give(pool, port, claim, now)
            return claim
        pool.available[port] = now
        return None

    # -- recovery

    def refuse(self, key: PoolKey) -> list[Claim]:
        """Those who wait for the pool, and do so no more."""
        pool = self.pools.get(key)
        told = list(pool.waiting) if pool is not None else []
        if pool is not None:
            pool.waiting.clear()
        return told

    def recover(self, spare: Spare, holder: str | None, now: float) -> None:
        """A port of an earlier life: in use by the Pod ``holder``, or free."""
        if spare.id in self._spares:
            return
        if holder is None:
            self.adopt(spare, now)
            return
        self._know(spare, now).in_use[spare.id] = now
        self._holders[spare.id] = holder

    # -- the way back

    def due(self, key: PoolKey) -> list[Spare]:
        """Ports that came back and are to be checked."""
        pool = self.pools.get(key)
        if pool is None:
            return []
        return [self._spares[port] for port in pool.returning if port not in pool.checked]

    def restored(self, spare: Spare, now: float) -> Claim | None:
        """It is as the pool promises; whose turn it is that waited."""
        pool = self._pool_of.get(spare.id)
        if pool is None or spare.id not in pool.returning:
            return None
        self._spares[spare.id] = spare
        if pool.waiting:
            del pool.returning[spare.id]
            return self._make_available(pool, spare.id, now)
        pool.checked[spare.id] = None
        return None

    def cool(self, key: PoolKey, now: float) -> None:
        """What has returned for long enough is available."""
        pool = self.pools.get(key)
        if pool is None:
            return
        for port in list(pool.checked):
            if now - pool.returning[port] >= self.limits.cooldown:
                self._leave(pool, port)
                pool.available[port] = now

    # -- leaving

    def shrink(self, key: PoolKey, now: float) -> None:
        """Let go of what is too much, or was unused for too long."""
        pool = self.pools.get(key)
        if pool is None:
            return
        idle = self._is_idle(pool, now)
        target = self.target(key, now)
        for port, since in list(pool.available.items()):
            count = len(pool.available)
            excess = self.limits.maximum and count > self.limits.maximum
            old = self.limits.ttl and now - since >= self.limits.ttl and count > target
            if not (idle or pool.closed or excess or old):
                break
            self.dismiss(port, now)
        if idle or pool.closed:
            for port in list(pool.returning):
                self.dismiss(port, now)
        if pool.is_empty():
            del self.pools[key]

    def dismiss(self, port: str, now: float) -> None:
        """It will not be given to anybody any more, and is to be deleted; one in use is not."""
        pool = self._pool_of.get(port)
        if pool is not None and port not in pool.in_use:
            since = pool.leaving.get(port, now)
            self._leave(pool, port)
            pool.leaving[port] = since

    def orphaned(self, port: str, now: float) -> None:
        """Nobody has it, though it was in use: whoever had it went without a word."""
        pool = self._pool_of.get(port)
        if pool is not None and port in pool.in_use:
            self._release_claim(port)
            del pool.in_use[port]
            pool.leaving[port] = now

    def close(self, key: PoolKey, now: float) -> list[Claim]:
        """Its place or network is gone: all of it goes, until somebody asks for it again. Those
        who waited, to be told."""
        told = self.refuse(key)
        if key in self.pools:
            self.pools[key].closed = True
            self.shrink(key, now)
        return told

    def free(self, key: PoolKey, count: int | None, now: float) -> int:
        """Let go of so many available ports (None: all); how many."""
        pool = self.pools.get(key)
        chosen = list(pool.available)[:count] if pool is not None else []
        for port in chosen:
            self.dismiss(port, now)
        return len(chosen)

    def sacrifice(self, key: PoolKey, count: int, now: float) -> list[PoolKey]:
        """Let go of free ports of the project's other pools: its quota or addresses are used up,
        and Pods wait. The fullest pools give first; which they are."""
        giving = [
            pool
            for pool in self.pools.values()
            if pool.key.project_id == key.project_id and pool.key != key and pool.available
        ]
        giving.sort(key=lambda pool: len(pool.available), reverse=True)
        helped = []
        for pool in giving:
            if count <= 0:
                break
            count -= self.free(pool.key, count, now)
            helped.append(pool.key)
        return helped

    def gone(self, port: str) -> str | None:
        """Neutron does not have it any more; the uid of the Pod that used it, if one did."""
        pool = self._pool_of.pop(port, None)
        if pool is None:
            return None
        self._leave(pool, port)
        holder = self._holders.get(port)
        self._release_claim(port)
        self._parked.discard(port)
        del self._spares[port]
        if pool.is_empty():
            self.pools.pop(pool.key, None)
        return holder

    # -- what is known

    def parked(self, ports: frozenset[str], place: str) -> None:
        """The ports that the node of this place keeps plugged."""
        here = {port for port in self._parked if self._spares[port].key.place == place}
        known = {p for p in ports if p in self._spares and self._spares[p].key.place == place}
        self._parked = (self._parked - here) | known

    def is_parked(self, port: str) -> bool:
        return port in self._parked

    def spare(self, port: str) -> Spare | None:
        return self._spares.get(port)

    def learn(self, spare: Spare) -> None:
        """What the port is like by now; its pool stays."""
        if spare.id in self._spares:
            self._spares[spare.id] = spare

    def holder(self, port: str) -> str | None:
        """Uid of the Pod that has it."""
        return self._holders.get(port)

    def in_use_since(self, port: str) -> float | None:
        pool = self._pool_of.get(port)
        return pool.in_use.get(port) if pool is not None else None

    def where(self, port: str) -> str:
        """The place's name; empty for a port that is not known."""
        pool = self._pool_of.get(port)
        for name in ("available", "in_use", "returning", "leaving"):
            if pool is not None and port in getattr(pool, name):
                return name
        return ""

    def anybody_waits(self) -> bool:
        return any(pool.waiting for pool in self.pools.values())

    def known(self) -> Iterator[Spare]:
        return iter(tuple(self._spares.values()))

    def _pool(self, key: PoolKey, now: float) -> Pool:
        pool = self.pools.get(key)
        if pool is None:
            pool = self.pools[key] = Pool(key, now)
        return pool
