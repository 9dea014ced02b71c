"""The ports of all pools, and which Pods have them: pure decisions, without input or output.

A claim that waits for a port gets the next one of its pool, first come, first served. A port that
returns is checked against Neutron and cools down. Checked ports are given to Pods before they are
cool only where nothing else is left.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kuryr_k8s.drivers.base import PooledPort, PoolKey
from kuryr_k8s.drivers.base import pool as base
from kuryr_k8s.drivers.base.pool import Check, Claim, Limits, Mode, Phase
from kuryr_k8s.drivers.pools.resources import Kind, Resource, resources_of

Pool = base.Pool[PoolKey, PooledPort]
PortRecord = base.PortRecord[PooledPort]


class PoolState:
    """The pools of all keys. Times are those of any one clock, handed in."""

    def __init__(self, limits: Limits) -> None:
        self.pools: dict[PoolKey, Pool] = {}
        self.limits = limits
        self._records: dict[str, PortRecord] = {}
        self._given: defaultdict[str, dict[str, PortRecord]] = defaultdict(dict)  # Pod → ifname
        self._waiting: dict[str, dict[str, Pool]] = {}  # by Pod and interface
        # The pools whose ports will do for a claim that waits, if there are several
        self._alternatives: dict[Claim, tuple[PoolKey, ...]] = {}
        self._sharing: defaultdict[Resource, dict[PoolKey, Pool]] = defaultdict(dict)

    # -- Pods

    def take(
        self, key: PoolKey, claim: Claim, now: float, alternatives: Sequence[PoolKey] = ()
    ) -> PooledPort | None:
        """Give the claim a port: always the same one until it is returned.

        :param key: of the pool in which the claim waits if there is no port, unless one comes
            back to another pool whose ports will do.
        :param alternatives: the pools whose ports will do, in order of preference, that pool
            among them; empty: no others will do.
        :returns: None where there is no port; the claim then waits for one.
        """
        if known := self._given.get(claim.pod_uid, {}).get(claim.ifname):
            return known.port
        preferred = self._open(key, now)
        pool = self._expecting(alternatives, claim) or preferred
        if self._waiting.get(claim.pod_uid, {}).get(claim.ifname) is not pool:
            self._wait_no_more(claim)  # its request has changed
        record = self._next_port(alternatives or (key,))
        if record is None:
            self._wait(claim, pool)
            if len(alternatives) > 1:
                self._alternatives[claim] = tuple(alternatives)
            return None
        self._wait_no_more(claim)
        self._give(record, claim, now)
        return record.port

    def _next_port(self, keys: Iterable[PoolKey]) -> PortRecord | None:
        """Choose an available port of the first pool that has one; else, one that is cooling down.

        :param keys: in order of preference.
        """
        pools = (self.pools.get(key) for key in keys)
        found = [record for pool in pools if pool and (record := pool.next_port())]
        return min(found, key=lambda record: record.phase is Phase.RETURNING, default=None)

    def _expecting(self, keys: Iterable[PoolKey], claim: Claim) -> Pool | None:
        """Return the first of these pools with a port that comes back and that no other awaits.

        To the filling, a port that comes back to one pool counts for the claims that wait for
        that pool alone: a claim that waited for another one would have a port made.
        """
        pools = filter(None, map(self.pools.get, keys))
        return next((pool for pool in pools if pool.expects_port_for(claim)), None)

    def _wait(self, claim: Claim, pool: Pool) -> None:
        self._waiting.setdefault(claim.pod_uid, {})[claim.ifname] = pool
        pool.waiting.setdefault(claim)

    def move_claims(self, key: PoolKey, other: PoolKey, now: float) -> int:
        """Have the claims that wait for a pool wait for another one whose ports will do for them.

        :returns: how many claims wait for the other pool instead.
        """
        pool = self.pools.get(key)
        claims = [] if pool is None else list(pool.waiting)
        moving = [claim for claim in claims if other in self._alternatives.get(claim, ())]
        for claim in moving:
            alternatives = self._alternatives[claim]
            self._wait_no_more(claim)
            self._wait(claim, self._open(other, now))
            self._alternatives[claim] = alternatives
        return len(moving)

    def _give(self, record: PortRecord, claim: Claim, now: float) -> None:
        record.pool.move(record, Phase.IN_USE, now)
        record.pool.used = now
        record.holder = claim
        self._given[claim.pod_uid][claim.ifname] = record

    def _wait_no_more(self, claim: Claim) -> None:
        waiting = self._waiting.get(claim.pod_uid, {})
        if (pool := waiting.pop(claim.ifname, None)) is not None:
            pool.waiting.pop(claim, None)
            self._alternatives.pop(claim, None)
            if not waiting:
                del self._waiting[claim.pod_uid]

    def set_aside(self, claim: Claim) -> None:
        """Let the claim have another port, and its Pod keep this one.

        The Pod may be using the port. It comes back when the Pod lets go of it, or when surveys
        find that its KuryrPort names another one.
        """
        if record := self._given.get(claim.pod_uid, {}).get(claim.ifname):
            self._take_from_holder(record)
            record.holder = Claim(claim.pod_uid, "")

    def return_ports_of(self, pod_uid: str, now: float) -> list[str]:
        """Return the ports promised to a Pod whose KuryrPort will never name them.

        :returns: the ids of the ports.
        """
        for ifname in tuple(self._waiting.get(pod_uid, ())):
            self._wait_no_more(Claim(pod_uid, ifname))
        promised = [record.port.id for record in self._given.get(pod_uid, {}).values()]
        for port_id in promised:
            self.return_port(port_id, now)
        return promised

    def return_port(self, port_id: str, now: float) -> bool:
        """Return a port that the node has let go of to its pool.

        :returns: whether the port belongs to a pool.
        """
        record = self._records.get(port_id)
        if record is not None and record.phase is Phase.IN_USE:
            leaves = record.pool.is_closed() or record.pool.is_full()
            self._end_use(record, Phase.LEAVING if leaves else Phase.RETURNING, now)
        return record is not None

    def dismiss_orphan(self, port_id: str, now: float) -> None:
        """Dismiss a port in use whose Pod disappeared unnoticed."""
        record = self._records.get(port_id)
        if record is not None and record.phase is Phase.IN_USE:
            self._end_use(record, Phase.LEAVING, now)

    def _end_use(self, record: PortRecord, phase: Phase, now: float) -> None:
        self._take_from_holder(record)
        record.pool.move(record, phase, now)
        record.pool.used = now

    def _take_from_holder(self, record: PortRecord) -> str | None:
        """End the holder's claim to the port, and return the uid of its Pod."""
        if (claim := record.holder) is None:
            return None
        given = self._given.get(claim.pod_uid, {})
        if given.get(claim.ifname) is record:
            del given[claim.ifname]
        if not given:
            self._given.pop(claim.pod_uid, None)
        return claim.pod_uid

    def refuse(self, key: PoolKey) -> list[Claim]:
        """Let nobody wait for the pool any more, and return the claims that did."""
        pool = self.pools.get(key)
        refused = list(pool.waiting) if pool is not None else []
        for claim in refused:
            self._wait_no_more(claim)
        return refused

    # -- ports that come

    def wanted(self, key: PoolKey, now: float) -> tuple[int, int]:
        """Count the ports to create: see :meth:`Pool.wanted`."""
        pool = self.pools.get(key)
        return pool.wanted(now) if pool is not None else (0, 0)

    def begin(self, key: PoolKey, count: int, now: float) -> int:
        """Note that ports are being created, until :meth:`made` is called: see Pool.begin."""
        return self._pool(key, now).begin(count, now)

    def is_creating(self, key: PoolKey) -> bool:
        """Return whether ports are being created for the pool."""
        pool = self.pools.get(key)
        return pool is not None and pool.creating > 0

    def order(self, key: PoolKey, count: int, now: float) -> None:
        """Have ``count`` more ports made available, once."""
        self._open(key, now).ordered += count

    def replace_lost(self, pool: Pool, now: float) -> bool:
        """Have one port made if the pool has lost all that it should have.

        :param pool: it may have been forgotten since, with its last port.
        :returns: whether it has.
        """
        is_lost = pool.has_lost_all(now)
        if is_lost:
            self.order(pool.key, 1, now)
        return is_lost

    def made(
        self, key: PoolKey, count: int, ports: Iterable[PooledPort], now: float, missing: int = 0
    ) -> list[Claim]:
        """End the creation of ``count`` ports, which made these.

        :param missing: ports that were ordered and are still to be made.
        :returns: the waiting claims that got one of the ports.
        """
        pool = self._pool(key, now)
        pool.creating -= count
        if not pool.is_closed():
            pool.ordered += missing
        served = [self.adopt(port, now) for port in ports]
        return [claim for claim in served if claim is not None]

    def adopt(self, port: PooledPort, now: float) -> Claim | None:
        """Take in a port that was unknown and that no Pod has.

        :returns: the waiting claim that got the port, if one did.
        """
        if port.id in self._records:
            return None
        pool = self._pool(port.key, now)
        leaves = pool.is_closed() or not port.fit
        record = pool.add(port, Phase.LEAVING if leaves else Phase.AVAILABLE, now)
        self._records[port.id] = record
        return None if leaves else self._serve(record, now)

    def recover(self, port: PooledPort, holder: str | None, now: float) -> None:
        """Take in a port from an earlier life of the controller.

        :param holder: the uid of the Pod that has the port; empty: that cannot be told; None: no
            Pod has it.
        """
        if holder is None:
            self.adopt(port, now)
        elif port.id not in self._records:
            record = self._pool(port.key, now).add(port, Phase.IN_USE, now)
            record.holder = Claim(holder, "")
            self._records[port.id] = record

    def withhold(self, port: PooledPort, now: float, *, unnoticed: bool = False) -> None:
        """Take in a port that an earlier leader may have given to a Pod, or may not.

        :param unnoticed: see :class:`PortRecord`.
        """
        if port.id not in self._records:
            record = self._pool(port.key, now).add(port, Phase.IN_USE, now)
            record.unnoticed = unnoticed
            self._records[port.id] = record

    def is_withheld(self, port_id: str) -> bool:
        """Return whether it is not known yet if a Pod has the port."""
        record = self._records.get(port_id)
        return record is not None and record.phase is Phase.IN_USE and record.holder is None

    def is_contested(self, port_id: str) -> bool:
        """Return whether several Pods claimed the port when it was recovered."""
        record = self._records.get(port_id)
        return record is not None and record.holder == Claim("", "")

    def settle(self, port_id: str, holder: str) -> None:
        """Note which Pod has a port that was withheld or contested.

        :param holder: the Pod's uid.
        """
        record = self._records[port_id]
        record.holder, record.unnoticed = Claim(holder, ""), False

    def _serve(self, record: PortRecord, now: float) -> Claim | None:
        """Give an available port to the claim that has waited for longest, if any waits."""
        claim = self._next_claim(record.pool)
        if claim is not None:
            self._wait_no_more(claim)
            self._give(record, claim, now)
        return claim

    def _next_claim(self, pool: Pool) -> Claim | None:
        """Choose the claim for the pool's next port: one that waits for this pool goes first."""
        for claim in pool.waiting:
            return claim
        if self._alternatives:
            for other in self.at(pool.key.place):
                for claim in other.waiting:
                    if pool.key in self._alternatives.get(claim, ()):
                        return claim
        return None

    def is_awaited_in(self, key: PoolKey) -> bool:
        """Return whether a claim waits that a port of this pool will do for."""
        pool = self.pools.get(key)
        return pool is not None and self._next_claim(pool) is not None

    # -- ports that return

    def doubt(self, port_id: str, now: float) -> None:
        """Have an available port checked before a Pod gets it, as if it had just returned."""
        record = self._records.get(port_id)
        if record is not None and record.phase is Phase.AVAILABLE:
            record.pool.move(record, Phase.RETURNING, now)

    def passed(self, port: PooledPort, now: float) -> Claim | None:
        """Note that a port that returned is as its pool promises.

        :returns: the waiting claim that got the port, if one did.
        """
        record = self._records.get(port.id)
        if record is None or record.phase is not Phase.RETURNING:
            return None
        record.port = port
        if self._next_claim(record.pool) is None:
            record.check = Check.PASSED
            return None
        record.pool.move(record, Phase.AVAILABLE, now)
        return self._serve(record, now)

    def check_failed(self, port_id: str) -> None:
        """Note that a port could not be checked: no waiting Pod should count on it."""
        record = self._records.get(port_id)
        if record is not None and record.phase is Phase.RETURNING:
            record.check = Check.FAILED

    # -- ports that leave

    def shrink(self, key: PoolKey, now: float) -> None:
        """Dismiss the pool's superfluous ports, and forget the pool where nothing is left."""
        if pool := self.pools.get(key):
            pool.shrink(now)
            self._drop_if_empty(pool)

    def _drop_if_empty(self, pool: Pool) -> None:
        if pool.is_empty():
            self.pools.pop(pool.key, None)
            for resource in resources_of(pool.key):
                sharing = self._sharing[resource]
                sharing.pop(pool.key, None)
                if not sharing:
                    del self._sharing[resource]

    def dismiss(self, port_id: str, now: float) -> None:
        """Give a port to no Pod any more, unless a Pod is using it."""
        record = self._records.get(port_id)
        if record is not None and record.phase is not Phase.IN_USE:
            record.pool.dismiss(record, now)

    def close(self, key: PoolKey, now: float) -> list[Claim]:
        """Dismiss all ports of a pool whose node or network is gone, until somebody asks again.

        :returns: the claims that waited for the pool.
        """
        refused = self.refuse(key)
        if pool := self.pools.get(key):
            pool.mode = Mode.CLOSED
            self.shrink(key, now)
        return refused

    def empty(self, key: PoolKey, count: int | None, now: float) -> int:
        """Free available ports for an operator, and make none until somebody asks for one.

        :returns: how many ports leave.
        """
        freed = self.free(key, count, now)
        if (pool := self.pools.get(key)) is not None and not pool.is_closed():
            pool.mode = Mode.EMPTIED
        return freed

    def free(self, key: PoolKey, count: int | None, now: float) -> int:
        """Dismiss ``count`` available ports, or all of them.

        :returns: how many ports leave.
        """
        pool = self.pools.get(key)
        chosen = list(pool.available.values())[:count] if pool is not None else []
        for record in chosen:
            record.pool.dismiss(record, now)
        return len(chosen)

    def reclaim(self, resource: Resource, count: int, now: float) -> dict[PoolKey, int]:
        """Free ports of pools that share what is used up, while Pods of other pools wait for it.

        Available ports go first, those of the fullest pools before others, and then ports that
        returned and cool down.

        :returns: how many ports leave of each pool that gives some up.
        """
        helped: dict[PoolKey, int] = defaultdict(int)
        sharing = [pool for pool in self._sharing.get(resource, {}).values() if not pool.waiting]
        sharing.sort(key=lambda pool: len(pool.available), reverse=True)
        for phase in (Phase.AVAILABLE, Phase.RETURNING):
            for pool in sharing:
                if count <= 0:
                    return helped
                for record in pool.first(phase, count):
                    pool.dismiss(record, now)
                    helped[pool.key] += 1
                    count -= 1
        return helped

    def leaving_since(self, resource: Resource, since: float) -> dict[PoolKey, int]:
        """Count the ports that leave, not for longer than that, and give the resource back.

        :returns: how many there are in each pool that has any.
        """
        counts = {
            key: sum(record.since > since for record in pool.leaving.values())
            for key, pool in self._sharing.get(resource, {}).items()
        }
        return {key: count for key, count in counts.items() if count}

    def remove(self, port_id: str) -> str | None:
        """Forget a port that Neutron does not have any more.

        :returns: the uid of the Pod that was using the port, if one was.
        """
        record = self._records.pop(port_id, None)
        if record is None:
            return None
        record.pool.remove(record)
        self._drop_if_empty(record.pool)
        return self._take_from_holder(record)

    # -- what is known

    def set_parked(self, place: str, port_ids: frozenset[str]) -> set[str]:
        """Note which ports the node at this place keeps plugged.

        :returns: the ids of the ports that it has unplugged.
        """
        unplugged = set()
        for record in (record for pool in self.at(place) for record in pool.records()):
            parked = record.port.id in port_ids
            if record.parked and not parked:
                unplugged.add(record.port.id)
            record.parked = parked
        return unplugged

    def at(self, place: str) -> list[Pool]:
        """List the pools at a place."""
        return list(self._sharing.get(Resource(Kind.PLACE, place), {}).values())

    def record(self, port_id: str) -> PortRecord | None:
        """Look up a port."""
        return self._records.get(port_id)

    def phase(self, port_id: str) -> Phase | None:
        """Look up the phase of a port."""
        record = self._records.get(port_id)
        return record.phase if record is not None else None

    def rename(self, port_id: str, name: str) -> None:
        """Note the name that a port has in Neutron by now."""
        if record := self._records.get(port_id):
            record.port = replace(record.port, name=name)

    def is_awaited(self) -> bool:
        """Return whether any claim waits for a port."""
        return bool(self._waiting)

    def ports(self) -> Iterator[PooledPort]:
        """List all ports of all pools."""
        return (record.port for record in tuple(self._records.values()))

    def _open(self, key: PoolKey, now: float) -> Pool:
        """Look up or begin a pool that somebody asks for."""
        pool = self._pool(key, now)
        pool.used, pool.mode = now, Mode.OPEN
        return pool

    def _pool(self, key: PoolKey, now: float) -> Pool:
        if (pool := self.pools.get(key)) is None:
            pool = self.pools[key] = Pool(key, self.limits, now)
            for resource in resources_of(key):
                self._sharing[resource][key] = pool
        return pool
