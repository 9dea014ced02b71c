"""What pools owe to whom: known of free ports only by what has happened to them."""

import math

from kuryr_k8s.drivers.base import PoolKey
from kuryr_k8s.drivers.base.pool import Check, Claim, Mode
from kuryr_k8s.drivers.pools.state import PoolState

KEYS = [
    PoolKey(project, place, network, ("subnet",), ("group",))
    for project, place, network in [
        ("project1", "node1", "network1"),
        ("project1", "node2", "network1"),
        ("project2", "node2", "network1"),
    ]
]
PODS = [f"pod{number}" for number in range(5)]
CLAIMS = [Claim(pod, ifname) for pod in PODS for ifname in ("eth0", "net1")]
PLACES = ("available", "in_use", "returning", "leaving")
NEXT = {  # where a port may be after the place where it is; "" is unknown
    "": {"available", "in_use", "leaving"},
    "available": {"in_use", "leaving", ""},
    "in_use": {"returning", "leaving", ""},
    "returning": {"available", "in_use", "leaving", ""},
    "leaving": {""},
}


class PoolModel:
    """A PoolState, and what is expected of it."""

    def begin(self, limits):
        self.limits = limits
        self.now, self.ticks, self.made = 1000.0, 0, 0
        self.neutron = {}  # ports by id
        self.buried = set()  # ids of ports that were seen to be gone
        self.start()

    def start(self):
        self.state = PoolState(self.limits)
        self.queues = {key: [] for key in KEYS}
        self.has = {}  # port ids, by claim
        self.recorded = {}  # claims that a KuryrPort names since before the start, by port id
        self.creations = []  # (key, count, ports made, ports that the answer will tell of)
        self.checking = {}  # ids of ports that came back, of keys whose check is under way
        self.checked, self.doubtful = set(), set()
        self.surveys = []  # (ids known before, ports listed)
        self.parked = set()
        self.closed, self.resting, self.used = set(), set(), {}
        self.places, self.since, self.order = {}, {}, {}

    # -- what the model expects

    def pool(self, key, place):
        """Ids of the pool's ports at the place, in the order in which they came."""
        ports = [port for port, where in self.places.items() if where == place]
        mine = [port for port in ports if self.key_of[port] == key]
        return sorted(mine, key=self.order.get)

    @property
    def key_of(self):
        return {port.id: port.key for port in self.state.ports()}

    def is_idle(self, key):
        busy = self.queues[key] or self.pool(key, "in_use")
        return self.limits.idle and not busy and self.now - self.used[key] >= self.limits.idle

    def target(self, key):
        if key not in self.state.pools or key in self.closed | self.resting or self.is_idle(key):
            return 0
        return min(self.limits.minimum, self.limits.maximum or math.inf)

    def promise(self, key, claim, port):
        assert claim not in self.has
        assert port.id not in {*self.has.values(), *self.recorded}
        assert port.key == key
        self.has[claim] = port.id
        self.used[key] = self.now

    def serve(self, claims):
        for claim in claims:
            key = next(key for key, queue in self.queues.items() if claim in queue)
            assert self.queues[key].pop(0) == claim  # first come, first served
            self.promise(key, claim, self.state.take(key, claim, self.now))

    def forget(self, port):
        """Nobody has the port any more; the uid of the Pod that had."""
        claims = [claim for claim, held in self.has.items() if held == port]
        self.has = {claim: held for claim, held in self.has.items() if held != port}
        claims += [self.recorded.pop(port)] if port in self.recorded else []
        return claims[0].pod_uid if claims else None

    def bury(self, port):
        self.neutron.pop(port, None)
        self.buried.add(port)
        known = port in self.places
        assert self.state.remove(port) == (self.forget(port) if known else None)

    # -- what holds at any time

    def observe(self):
        """See what became of every port since the last time, and that all is as expected."""
        self.ticks += 1
        self.check_pools()
        places = self.where_ports_are()
        for port in {*places, *self.places}:
            old, new = self.places.get(port, ""), places.get(port, "")
            if old != new:
                assert new in NEXT[old], f"{port} went from {old} to {new}"
                assert new or port in self.buried
                self.since[port] = self.now
                # those that come together keep the order in which they were before
                self.order[port] = (self.ticks, *self.order.get(port, (0, port)))
                self.checked.discard(port)
                self.doubtful.discard(port)
        self.places = places
        assert {p for p, at in places.items() if at == "in_use"} == {
            *self.has.values(),
            *self.recorded,
        }
        for key in KEYS:
            self.check_wanted(key)

    def where_ports_are(self):
        places = {}
        for key, pool in self.state.pools.items():
            for place in PLACES:
                for port in getattr(pool, place):
                    assert port not in places, f"{port} is {place}, and {places[port]}"
                    record = getattr(pool, place)[port]
                    assert self.state.record(port) is record
                    assert (record.phase, record.pool) == (place, pool)
                    assert record.port.key == pool.key == key
                    assert record.port.fit or place == "leaving"
                    assert (record.holder is not None) == (place == "in_use")
                    places[port] = place
        assert set(places) == {port.id for port in self.state.ports()}
        return places

    def check_pools(self):
        for key in KEYS:
            if key not in self.state.pools:
                assert not self.queues[key]
                assert not any(pool_key == key for pool_key, *_ in self.creations)
                self.closed.discard(key)
                self.resting.discard(key)
                self.used.pop(key, None)
                continue
            pool = self.state.pools[key]
            self.used.setdefault(key, self.now)
            assert list(pool.waiting) == self.queues[key]
            assert not (pool.waiting and pool.available), "somebody waits for what is there"
            under_way = sum(count for pool_key, count, *_ in self.creations if pool_key == key)
            assert pool.creating == under_way
            checks = {port: record.check for port, record in pool.returning.items()}
            passed = {port for port, check in checks.items() if check is Check.PASSED}
            assert passed == self.checked & set(pool.returning)
            assert {port.id for port in pool.due()} == set(pool.returning) - self.checked
            assert pool.is_closed() == (key in self.closed)
            assert (pool.mode is Mode.OPEN) == (key not in self.closed | self.resting)
            assert not (pool.is_closed() and (pool.available or pool.returning or pool.waiting))
        self.parked &= {port.id for port in self.state.ports()}
        seen = {*self.neutron, *self.buried, *self.places}
        assert {port for port in seen if self.is_parked(port)} == self.parked
        for place in {key.place for key in KEYS}:
            mine = [pool for key, pool in self.state.pools.items() if key.place == place]
            assert sorted(self.state.at(place), key=id) == sorted(mine, key=id)
        assert self.state.is_awaited() == any(self.queues.values())

    def is_parked(self, port):
        record = self.state.record(port)
        return record is not None and record.parked

    def due(self, key):
        """Return the ids of the pool's ports that are to be checked."""
        pool = self.state.pools.get(key)
        return [port.id for port in pool.due()] if pool else []

    def check_wanted(self, key):
        """Whoever waits is cared for once, and the pool is filled, but not over its maximum."""
        awaited, refill = self.state.wanted(key, self.now)
        pool = self.state.pools.get(key)
        assert (pool.target(self.now) if pool else 0) == self.target(key)
        if key not in self.state.pools or key in self.closed:
            assert (awaited, refill) == (0, 0)
            return
        coming = sum(count for pool_key, count, *_ in self.creations if pool_key == key)
        coming += len([port for port in self.pool(key, "returning") if port not in self.doubtful])
        assert awaited == max(0, len(self.queues[key]) - coming)
        left = len(self.pool(key, "available")) + coming + awaited - len(self.queues[key])
        room = max(0, (self.limits.maximum or math.inf) - left)
        ordered = min(self.state.pools[key].ordered, room)
        if left >= self.target(key):
            assert refill == ordered
        else:
            assert left + refill >= self.target(key)
            assert max(ordered, min(room, self.limits.batch - awaited)) <= refill <= room
            assert refill <= max(self.limits.batch, self.target(key), ordered)
