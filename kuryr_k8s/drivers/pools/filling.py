"""Pools are filled: ports are made for Pods that wait, then for those to come."""

import logging

from kuryr_k8s import errors
from kuryr_k8s.cloud.budget import Budget
from kuryr_k8s.cloud.limit import Priority, prioritized
from kuryr_k8s.drivers.base import PooledPort, PoolKey
from kuryr_k8s.drivers.pools.shared import Pools, PoolWork
from kuryr_k8s.drivers.vif import neutron_plan as vif_plan

LOG = logging.getLogger(__name__)
LANES = 4  # creations for one pool at the same time
SIZE = 20  # ports of one creation
GOING = 120.0  # seconds in which a port that goes is gone, unless something is wrong
USELESS = (errors.OverQuota, errors.Refused, errors.NotFound)  # an order ends with them
REFILL_AFTER = 0.5  # seconds in which more Pods may come, whose ports are then made together


class Filling:
    """After a failure a pool begins anew with a single port, and twice as many each time: what
    will be refused, or never be bound, is not asked for in great numbers.

    :param reserve: ports of a project's quota that are left to others.
    :param rate: ports in a second that may be made for Pods to come, of all pools together.
    """

    def __init__(self, pools: Pools, *, reserve: int, rate: float) -> None:
        self._pools = pools
        self._state = pools.state
        self._reserve = reserve
        self._budget = Budget(rate, burst=max(round(rate), SIZE))
        self._failing: dict[PoolKey, Exception] = {}
        self._allowed: dict[PoolKey, int] = {}  # ports of one creation, since one failed
        self._proven: set[PoolKey] = set()  # the last creation went well
        self._uncertain: set[PoolKey] = set()  # a creation may have made more than we know

    def ask(self, key: PoolKey) -> None:
        """Have the pool filled as far as it is wanted; one that fails is not hurried."""
        if key in self._failing:
            return
        awaited, refill = self._state.wanted(key, self._pools.now())
        lanes = min(LANES, -(-awaited // SIZE))
        for lane in range(lanes):
            self._pools.wake(PoolWork(key, lane))
        if refill and not lanes:
            self._pools.wake_later(PoolWork(key, 0), REFILL_AFTER)

    def is_well(self, key: PoolKey) -> bool:
        """Whether the pool has what it wants, and got it by its last creation."""
        return key in self._proven and not any(self._state.wanted(key, self._pools.now()))

    async def work(self, key: PoolKey) -> float | None:
        """One creation, if one is wanted; seconds until the next is to be tried.

        :raises errors.CloudError: Neutron refuses, or has no more ports to give.
        """
        if key in self._uncertain:
            await self._search(key)
        awaited, refill = self._state.wanted(key, self._pools.now())
        size = self._allowed.get(key, SIZE)
        if awaited:
            await self._create(key, min(awaited, size))
        elif refill and key.place in self._pools.nodes:
            with prioritized(Priority.REFILL):
                await self._refill(key, min(refill, size))
        else:
            self._failing.pop(key, None)
            if key not in self._state.pools:
                self.forget(key)
            return None
        self._pools.changed(key.place)
        return 0.0

    def forget(self, key: PoolKey) -> None:
        """The pool is no more. One that failed is remembered until its next try: whoever was
        refused asks again, and would begin a storm."""
        if key not in self._failing:
            self._allowed.pop(key, None)
            self._proven.discard(key)

    async def _refill(self, key: PoolKey, wanted: int) -> None:
        """Make some of the ports, as many as the budget has."""
        least = min(wanted, self._state.limits.batch)  # one by one they cost a request each
        if delay := self._budget.delay(least):
            raise errors.Wait("no budget for refills is left", delay=delay)
        count = self._budget.take(wanted)
        room = await self._room(key.project_id)
        if room < 1:
            failure = errors.OverQuota(
                f"pools of project {key.project_id} are not filled: only the last "
                f"{self._reserve} ports of its quota are left"
            )
            self._fail(key, failure)
            raise failure
        await self._create(key, int(min(count, room)))

    async def _room(self, project_id: str) -> float:
        """Ports that pools may still take; all where Neutron does not tell us."""
        if not self._reserve:
            return SIZE
        quota = await self._pools.neutron.port_quota(project_id)
        return SIZE if quota is None else quota.left - self._reserve

    async def _create(self, key: PoolKey, count: int) -> None:
        spares: list[PooledPort] = []
        failure: Exception | None = errors.CloudError("the creation was given up")
        ordered = self._state.begin(key, count, self._pools.now())
        try:
            spares, failure = await self._pools.vif.create_pooled(key, count)
        finally:
            fresh = [spare for spare in spares if not self._pools.is_buried(spare.id)]
            missing = 0 if isinstance(failure, USELESS) else min(ordered, count - len(spares))
            served = self._state.made(key, count, fresh, self._pools.now(), missing)
            if failure is not None:
                self._note(key, failure)
            self._pools.tell(served)
            self._pools.wake(PoolWork.tidy(key))  # from now on it is looked after
        if failure is None and not all(spare.fit for spare in spares):
            failure = vif_plan.BindingFailed(
                f"Neutron could not bind ports on {key.place!r}: is an agent of that host name "
                "alive (openstack network agent list)?"
            )
        if failure is not None:
            self._fail(key, failure)
            self._answer(key, failure)
            raise failure
        self._failing.pop(key, None)
        self._proven.add(key)
        if key in self._allowed:
            self._allowed[key] *= 2
            if self._allowed[key] >= SIZE:
                del self._allowed[key]

    def _fail(self, key: PoolKey, failure: Exception) -> None:
        self._failing[key] = failure
        self._allowed[key] = 1
        self._proven.discard(key)

    def _note(self, key: PoolKey, failure: Exception) -> None:
        refused = isinstance(failure, errors.CloudError) and 400 <= failure.status < 500
        if not refused or isinstance(failure, errors.OverQuota):
            self._uncertain.add(key)  # of a creation in several requests, some may have passed

    def _answer(self, key: PoolKey, failure: Exception) -> None:
        """Those who wait hear of what they, or their operator, can mend."""
        if isinstance(failure, errors.OverQuota):
            self._make_room(key)
        elif isinstance(failure, errors.NotFound):
            self._pools.refuse(self._state.close(key, self._pools.now()), failure)
        elif isinstance(failure, errors.Refused):
            self._pools.refuse(self._state.refuse(key), failure)

    def relieve(self, project_id: str) -> None:
        """A port of the project is gone: there may be room for others."""
        for key in self._starving(project_id):
            del self._failing[key]
            self.ask(key)

    def _starving(self, project_id: str) -> list[PoolKey]:
        """The pools for which the project has no port, or no address."""
        return [
            key
            for key, failure in self._failing.items()
            if key.project_id == project_id and isinstance(failure, errors.OverQuota)
        ]

    def offer(self, key: PoolKey) -> None:
        """The pool has ports to spare: others of its project may starve for them."""
        for other in self._starving(key.project_id):
            self._make_room(other)

    def _make_room(self, key: PoolKey) -> None:
        """Have other pools give ports to those who wait, besides those that go already."""
        now = self._pools.now()
        awaited, _ = self._state.wanted(key, now)
        going = sum(
            now - since < GOING
            for other, pool in self._state.pools.items()
            if other.project_id == key.project_id
            for since in pool.leaving.values()
        )
        for helped in self._state.sacrifice(key, awaited - going, now):
            self._pools.wake(PoolWork.tidy(helped))

    async def _search(self, key: PoolKey) -> None:
        """Take in what creations have made without a word."""
        if self._state.is_creating(key):
            return  # its ports would be listed as well
        ports = await self._pools.list_ports({"network_id": key.network_id})
        self._pools.adopt(await self._pools.vif.find_pooled(ports))
        self._uncertain.discard(key)
