"""Which port of the pools is where, and whose: decides, without doing anything.

A port is in exactly one place of one pool, or unknown. Whoever waits for a port (a *claim*) gets
the next one of his pool, first come, first served.

A port that returns is *checked*, which takes Neutron, and cools down. Checked ones are given away
before that only where nothing else is left.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from kuryr_k8s.drivers.base import PooledPort, PoolKey
from kuryr_k8s.drivers.pools.claims import Claim, Claims
from kuryr_k8s.drivers.pools.parked import Parked
from kuryr_k8s.drivers.pools.pool import Limits, Pool


class PoolState:
    """The pools of all keys. Times are those of any one clock, handed in."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pools: dict[PoolKey, Pool] = {}
        self._spares: dict[str, PooledPort] = {}
        self._pool_of: dict[str, Pool] = {}
        self._claims = Claims()
        self._waiting: dict[Claim, Pool] = {}
        self._parked = Parked()
        self._at: defaultdict[str, dict[PoolKey, Pool]] = defaultdict(dict)  # pools, by place

    # -- Pods

    def take(self, key: PoolKey, claim: Claim, now: float) -> PooledPort | None:
        """A port for the claim: always the same until it is given back. None: it waits for one."""
        if (known := self._claims.port(claim)) is not None:
            return self._spares[known]
        pool = self._pool(key, now)
        pool.used = now
        pool.closed = pool.rests = False
        if self._waiting.get(claim) is not pool:
            self._wait_no_more(claim)  # it asks for something else by now
        port = pool.best(self._parked)
        if port is None:
            self._waiting[claim] = pool
            pool.waiting.setdefault(claim)
            return None
        self._wait_no_more(claim)
        pool.take_out(port)
        self._give(pool, port, claim, now)
        return self._spares[port]

    def _give(self, pool: Pool, port: str, claim: Claim, now: float) -> None:
        pool.in_use[port] = now
        pool.used = now
        self._claims.give(port, claim)

    def _wait_no_more(self, claim: Claim) -> None:
        if (pool := self._waiting.pop(claim, None)) is not None:
            pool.waiting.pop(claim, None)

    def set_aside(self, claim: Claim) -> None:
        """The claim is to get another port. The Pod may have this one for all we know: it comes
        back when the Pod lets go of it, or is found to be nobody's."""
        self._claims.set_aside(claim)

    def withdraw(self, pod_uid: str, now: float) -> list[str]:
        """The Pod will never name the ports that it was promised: they come back."""
        for claim in [claim for claim in self._waiting if claim.pod_uid == pod_uid]:
            self._wait_no_more(claim)
        promised = self._claims.ports_of(pod_uid)
        for port in promised:
            self.give_back(port, now)
        return promised

    def give_back(self, port: str, now: float) -> bool:
        """The node has let go of it. Whether it is one of ours."""
        pool = self._pool_of.get(port)
        if pool is not None and port in pool.in_use:
            place = pool.leaving if pool.closed or pool.is_full() else pool.returning
            self._end_use(pool, port, now)
            place[port] = now
        return pool is not None

    def orphaned(self, port: str, now: float) -> None:
        """Nobody has it, though it was in use: whoever had it went without a word."""
        pool = self._pool_of.get(port)
        if pool is not None and port in pool.in_use:
            self._end_use(pool, port, now)
            pool.leaving[port] = now

    def _end_use(self, pool: Pool, port: str, now: float) -> None:
        del pool.in_use[port]
        pool.used = now
        self._claims.drop(port)

    def refuse(self, key: PoolKey) -> list[Claim]:
        """Those who wait for the pool, and do so no more."""
        pool = self.pools.get(key)
        told = list(pool.waiting) if pool is not None else []
        for claim in told:
            self._wait_no_more(claim)
        return told

    # -- ports that come

    def wanted(self, key: PoolKey, now: float) -> tuple[int, int]:
        """Ports to create: for those who wait, and to fill the pool for those to come."""
        pool = self.pools.get(key)
        return pool.wanted(now) if pool is not None else (0, 0)

    def begin(self, key: PoolKey, count: int, now: float) -> int:
        """So many ports are being created; :meth:`made` is called for each end of that.

        :returns: how many of them were ordered.
        """
        return self._pool(key, now).begin(count, now)

    def is_creating(self, key: PoolKey) -> bool:
        pool = self.pools.get(key)
        return pool is not None and pool.creating > 0

    def order(self, key: PoolKey, count: int, now: float) -> None:
        """Somebody wants so many ports more to be available, once."""
        pool = self._pool(key, now)
        pool.closed, pool.rests, pool.used = False, False, now
        pool.ordered += count

    def made(
        self, key: PoolKey, count: int, spares: Iterable[PooledPort], now: float, missing: int = 0
    ) -> list[Claim]:
        """A creation of ``count`` ports ended with these; whose turn it is that waited.

        :param missing: ports that were ordered and are to be made yet.
        """
        pool = self._pool(key, now)
        pool.creating -= count
        if not pool.closed:
            pool.ordered += missing
        served = [self.adopt(spare, now) for spare in spares]
        return [claim for claim in served if claim is not None]

    def found(self, key: PoolKey) -> None:
        """A port was made of which no answer told: one less is to be made of those ordered."""
        if (pool := self.pools.get(key)) is not None:
            pool.ordered = max(0, pool.ordered - 1)

    def adopt(self, spare: PooledPort, now: float) -> Claim | None:
        """A port that is free, and was not known; whose turn it is that waited."""
        if spare.id in self._spares:
            return None
        pool = self._know(spare, now)
        if not spare.fit or pool.closed:
            pool.leaving[spare.id] = now
            return None
        return self._make_available(pool, spare.id, now)

    def recover(self, spare: PooledPort, holder: str | None, now: float) -> None:
        """A port of an earlier life: in use by the Pod ``holder``, or free."""
        if holder is None:
            self.adopt(spare, now)
        elif spare.id not in self._spares:
            self._know(spare, now).in_use[spare.id] = now
            self._claims.hold(spare.id, holder)

    def _know(self, spare: PooledPort, now: float) -> Pool:
        pool = self._pool(spare.key, now)
        self._spares[spare.id] = spare
        self._pool_of[spare.id] = pool
        return pool

    def _make_available(self, pool: Pool, port: str, now: float) -> Claim | None:
        if not pool.waiting:
            pool.available[port] = now
            return None
        claim = next(iter(pool.waiting))
        self._wait_no_more(claim)
        self._give(pool, port, claim, now)
        return claim

    # -- the way back

    def due(self, key: PoolKey) -> list[PooledPort]:
        """Ports that came back and are to be checked."""
        pool = self.pools.get(key)
        if pool is None:
            return []
        return [self._spares[port] for port in pool.returning if port not in pool.checked]

    def doubt(self, port: str, now: float) -> None:
        """It is to be checked before anybody gets it, as if it had come back."""
        pool = self._pool_of.get(port)
        if pool is not None and port in pool.available:
            del pool.available[port]
            pool.returning[port] = now

    def restored(self, spare: PooledPort, now: float) -> Claim | None:
        """It is as the pool promises; whose turn it is that waited."""
        pool = self._pool_of.get(spare.id)
        if pool is None or spare.id not in pool.returning:
            return None
        self._spares[spare.id] = spare
        if not pool.waiting:
            pool.checked.add(spare.id)
            pool.doubtful.discard(spare.id)
            return None
        pool.take_out(spare.id)
        return self._make_available(pool, spare.id, now)

    def unchecked(self, port: str) -> None:
        """Its check has failed, and is to be made again: whoever waits is not to count on it."""
        pool = self._pool_of.get(port)
        if pool is not None and port in pool.returning:
            pool.doubtful.add(port)

    def cool(self, key: PoolKey, now: float) -> None:
        """What has returned for long enough is available."""
        if key in self.pools:
            self.pools[key].cool(now)

    # -- ports that go

    def shrink(self, key: PoolKey, now: float) -> None:
        """Let go of what is too much, or was unused for too long."""
        if key in self.pools:
            self.pools[key].shrink(now)
            self._drop_if_empty(self.pools[key])

    def _drop_if_empty(self, pool: Pool) -> None:
        if pool.is_empty():
            self.pools.pop(pool.key, None)
            at_place = self._at[pool.key.place]
            at_place.pop(pool.key, None)
            if not at_place:
                del self._at[pool.key.place]

    def dismiss(self, port: str, now: float) -> None:
        """It will not be given to anybody any more, and is to be deleted; one in use is not."""
        pool = self._pool_of.get(port)
        if pool is not None and port not in pool.in_use:
            pool.dismiss(port, now)

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
        pool.take_out(port)
        self._parked.discard(port)
        del self._spares[port]
        self._drop_if_empty(pool)
        return self._claims.drop(port)

    # -- what is known

    def parked(self, ports: frozenset[str], place: str) -> set[str]:
        """The ports that the node of this place keeps plugged; those that it does no more."""
        known = {p for p in ports if p in self._spares and self._spares[p].key.place == place}
        return self._parked.replace(place, known)

    def is_parked(self, port: str) -> bool:
        return port in self._parked

    def at(self, place: str) -> list[Pool]:
        """The pools of the place."""
        return list(self._at.get(place, {}).values())

    def learn(self, spare: PooledPort) -> None:
        """What the port is like by now; its pool stays."""
        if spare.id in self._spares:
            self._spares[spare.id] = spare

    def spare(self, port: str) -> PooledPort | None:
        return self._spares.get(port)

    def holder(self, port: str) -> str | None:
        """Uid of the Pod that has it."""
        return self._claims.holder(port)

    def in_use_since(self, port: str) -> float | None:
        pool = self._pool_of.get(port)
        return pool.in_use.get(port) if pool is not None else None

    def where(self, port: str) -> str:
        """The place's name; empty for a port that is not known."""
        pool = self._pool_of.get(port)
        return pool.place_of(port) if pool is not None else ""

    def anybody_waits(self) -> bool:
        return bool(self._waiting)

    def known(self) -> Iterator[PooledPort]:
        return iter(tuple(self._spares.values()))

    def _pool(self, key: PoolKey, now: float) -> Pool:
        if (pool := self.pools.get(key)) is None:
            pool = self.pools[key] = self._at[key.place][key] = Pool(key, self.limits, now)
        return pool
