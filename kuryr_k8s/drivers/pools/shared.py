"""What the parts of a pool driver share: the state, Neutron, and whom to tell."""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.drivers.base import PooledPort, PooledVIFDriver, PoolKey
from kuryr_k8s.drivers.pools.claims import Claim
from kuryr_k8s.drivers.pools.pool import Limits, Pool
from kuryr_k8s.drivers.pools.state import PoolState
from kuryr_k8s.drivers.vif import neutron_plan as vif_plan

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
TIDY = -1
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
# What a KuryrPortPool shows of them
SHOWN = {
    "available": "available",
    "parkedCount": "parked",
    "inUse": "in_use",
    "creating": "creating",
    "returning": "returning",
    "target": "target",
}
GRAVE = 300.0  # seconds; longer than any answer is on its way


class PoolWork(NamedTuple):
    """A key of the pools' queue: one of the creations for a pool, or what keeps it tidy."""

    key: PoolKey
    lane: int

    @classmethod
    def tidy(cls, key: PoolKey) -> "PoolWork":
        return cls(key, TIDY)


class Waits:
    """Requests that found a port, and that had to wait for one: how long, in seconds."""

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0
        self.seconds = 0.0
        self.buckets = dict.fromkeys((*map(str, SECONDS), "+Inf"), 0)

    def waited(self, seconds: float) -> None:
        """A request got its port after so long."""
        self.seconds += seconds
        for bound in self.buckets:
            self.buckets[bound] += seconds <= float(bound)


class Pools:
    """``wake`` queues work, ``wake_later`` after some seconds, ``changed`` is called with the
    place whose pools changed, ``lost`` when a port is gone that a Pod has: set by whoever runs
    the pools. ``ask`` has a pool filled, ``offer`` is called for one that has ports to spare,
    ``freed`` with a project that has a port less: set by the driver.
    """

    def __init__(
        self, vif: PooledVIFDriver, neutron: Neutron, tags: Sequence[str], limits: Limits
    ) -> None:
        self.vif = vif
        self.neutron = neutron
        self.state = PoolState(limits)
        self.waits = Waits()
        self.wake: Callable[[PoolWork], None] = lambda _work: None
        self.wake_later: Callable[[PoolWork, float], None] = lambda _work, _delay: None
        self.changed: Callable[[str], None] = lambda _place: None
        self.lost: Callable[[], None] = lambda: None
        self.ask: Callable[[PoolKey], None] = lambda _key: None
        self.offer: Callable[[PoolKey], None] = lambda _key: None
        self.freed: Callable[[str], None] = lambda _project_id: None
        self.nodes: dict[str, str] = {}  # names of the Nodes, by place
        self.device = vif.pooled_marks.get("device_id", "")  # of a port that nobody has
        self._tags = tuple(tags)
        self._wakes: dict[Claim, Callable[[], None]] = {}
        self._since: dict[Claim, float] = {}
        self._refusals: dict[Claim, Exception] = {}
        self._buried: dict[str, float] = {}

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

    # -- those who wait

    def wait(self, claim: Claim, wake: Callable[[], None]) -> None:
        """Call ``wake`` when the claim has a port, or is refused."""
        if claim not in self._wakes:
            self.waits.misses += 1
            self._since[claim] = self.now()
        self._wakes[claim] = wake

    def refusal(self, claim: Claim) -> Exception | None:
        """Why it cannot have a port, told once."""
        return self._refusals.pop(claim, None)

    def settled(self, claim: Claim) -> None:
        """It has a port."""
        self._refusals.pop(claim, None)
        if self._wakes.pop(claim, None) is None:
            self.waits.hits += 1
        else:
            self.waits.waited(self.now() - self._since.pop(claim))

    def withdrawn(self, pod_uid: str) -> None:
        """Its Pod is no more."""
        for claim in [claim for claim in self._wakes if claim.pod_uid == pod_uid]:
            del self._wakes[claim], self._since[claim]
            self._refusals.pop(claim, None)

    def tell(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            if wake := self._wakes.get(claim):
                wake()

    def refuse(self, claims: Sequence[Claim], error: Exception) -> None:
        self._refusals |= dict.fromkeys(claims, error)
        self.tell(claims)

    # -- ports

    async def list_ports(self, query: dict[str, str]) -> list[Json]:
        """The pools' ports among those that match, as Neutron shows them."""
        tags = ",".join((*self._tags, vif_plan.POOL_TAG))
        found = await self.neutron.list_ports(query | {"tags": tags})
        return found + await self.tag_ports(query)

    async def tag_ports(self, query: dict[str, str]) -> list[Json]:
        """Give our ports that have none their tags: a creation was cut off before it could,
        where Neutron does not take tags with the port. Those ports."""
        if self.neutron.keeps_tags:
            return []
        tags = [*self._tags, vif_plan.POOL_TAG]
        untagged = {**self.vif.pooled_marks, "not-tags-any": ",".join(tags)}
        found = await self.neutron.list_ports(query | untagged)
        for port in found:
            await self.neutron.set_port_tags(port["id"], tags)
            port["tags"] = tags
        return found

    def adopt(self, spares: Iterable[PooledPort]) -> None:
        """Ports that a lost answer left are free. While a creation for their pool is under way it
        may be its ports that were listed, bound only in part: then the answer tells, or the next
        list."""
        for spare in spares:
            if self.state.is_creating(spare.key) or self.is_buried(spare.id):
                continue
            if self.state.spare(spare.id) is None:
                LOG.info("port %s was made without a word; its pool takes it", spare.id)
                self.take_in(spare)
                self.state.found(spare.key)
                self.wake(PoolWork.tidy(spare.key))

    def take_in(self, spare: PooledPort) -> None:
        """A port that nobody has is free; one that looks as if a Pod had it is checked before."""
        now = self.now()
        if spare.fit and (spare.name, spare.device_id) != (vif_plan.AVAILABLE, self.device):
            self.state.recover(spare, "", now)
            self.state.give_back(spare.id, now)
        elif claim := self.state.adopt(spare, now):
            self.tell([claim])
        self.changed(spare.key.place)

    def bury(self, port: str) -> None:
        """It is gone: an answer from before that may come yet is not to raise it."""
        now = self.now()
        self._buried = {
            port: since for port, since in self._buried.items() if now - since < GRAVE
        } | {port: now}
        spare = self.state.spare(port)
        holder = self.state.gone(port)
        if holder is not None:
            LOG.warning("port %s of Pod %s is not in Neutron any more", port, holder)
            self.lost()
        if spare is not None:
            self.changed(spare.key.place)
            self.freed(spare.key.project_id)

    def is_buried(self, port: str) -> bool:
        return self.now() - self._buried.get(port, -GRAVE) < GRAVE

    def with_groups(self, spare: PooledPort, groups: tuple[str, ...]) -> PooledPort:
        return dataclasses.replace(spare, key=spare.key._replace(security_groups=groups))

    def counts(self, place: str) -> Json:
        """How many ports the node has, as its KuryrPortPool shows them."""
        here = [self.numbers(pool) for pool in self.state.at(place)]
        return {shown: sum(one[name] for one in here) for shown, name in SHOWN.items()}

    def numbers(self, pool: Pool) -> dict[str, int]:
        """How many ports of the pool are where, and how many there are to be."""
        return {
            "available": len(pool.available),
            "parked": sum(map(self.state.is_parked, pool.available)),
            "in_use": len(pool.in_use),
            "creating": pool.creating,
            "returning": len(pool.returning),
            "leaving": len(pool.leaving),
            "target": pool.target(self.now()),
            "waiting": len(pool.waiting),
        }
