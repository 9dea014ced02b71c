"""Pools are filled: ports are made for Pods that wait, then for those to come."""

import logging

from kuryr_k8s import errors
from kuryr_k8s.cloud.budget import Budget
from kuryr_k8s.cloud.limit import Priority, prioritized
from kuryr_k8s.drivers import vif_plan
from kuryr_k8s.drivers.base import PoolKey, Spare
from kuryr_k8s.drivers.pools import Pools, PoolWork

LOG = logging.getLogger(__name__)
LANES = 4  # creations for one pool at the same time
SIZE = 20  # ports of one creation
REFILL_AFTER = 0.5  # seconds in which more Pods may come, whose ports are then made together


class Filling:
    """:param reserve: ports of a project's quota that are left to others.
    :param rate: ports in a second that may be made for Pods to come, of all pools together.
    """

    def __init__(self, pools: Pools, *, reserve: int, rate: float) -> None:
        self._pools = pools
        self._state = pools.state
        self._reserve = reserve
        self._budget = Budget(rate, burst=max(round(rate), SIZE))
        self._failing: set[PoolKey] = set()
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

    async def work(self, key: PoolKey) -> float | None:
        """One creation, if one is wanted; seconds until the next is to be tried.

        :raises errors.CloudError: Neutron refuses, or has no more ports to give.
        """
        self._failing.discard(key)
        if key in self._uncertain:
            await self._search(key)
        awaited, refill = self._state.wanted(key, self._pools.now())
        if awaited:
            await self._create(key, min(awaited, SIZE))
        elif refill:
            with prioritized(Priority.REFILL):
                if delay := await self._refill(key, min(refill, SIZE)):
                    return delay
        else:
            return None
        self._pools.changed(key.place)
        return 0.0

    async def _refill(self, key: PoolKey, wanted: int) -> float:
        """Make some of the ports, as many as the budget has; 0, or seconds until it has any."""
        count = self._budget.take(wanted)
        if not count:
            return self._budget.delay(1)
        room = await self._room(key.project_id)
        if room < 1:
            self._failing.add(key)
            raise errors.OverQuota(
                f"pools of project {key.project_id} are not filled: only the last "
                f"{self._reserve} ports of its quota are left"
            )
        await self._create(key, int(min(count, room)))
        return 0.0

    async def _room(self, project_id: str) -> float:
        """Ports that pools may still take; all where Neutron does not tell us."""
        if not self._reserve:
            return SIZE
        quota = await self._pools.neutron.port_quota(project_id)
        return SIZE if quota is None else quota.left - self._reserve

    async def _create(self, key: PoolKey, count: int) -> None:
        spares: list[Spare] = []
        failure: Exception | None = errors.CloudError("the creation was given up")
        self._state.begin(key, count, self._pools.now())
        try:
            spares, failure = await self._pools.vif.create_spares(key, count)
        finally:
            fresh = [spare for spare in spares if not self._pools.is_buried(spare.id)]
            served = self._state.made(key, count, fresh, self._pools.now())
            if failure is not None:
                self._failing.add(key)
                self._note(key, failure)
            self._pools.tell(served)
        if failure is None and not all(spare.fit for spare in spares):
            self._failing.add(key)
            failure = vif_plan.BindingFailed(
                f"Neutron could not bind ports on {key.place!r}: is an agent of that host name "
                "alive (openstack network agent list)?"
            )
        if failure is not None:
            self._answer(key, failure)
            raise failure

    def _note(self, key: PoolKey, failure: Exception) -> None:
        refused = isinstance(failure, errors.CloudError) and 400 <= failure.status < 500
        if not refused or isinstance(failure, errors.OverQuota):
            self._uncertain.add(key)  # of a creation in several requests, some may have passed

    def _answer(self, key: PoolKey, failure: Exception) -> None:
        """Those who wait hear of what they, or their operator, can mend."""
        now = self._pools.now()
        if isinstance(failure, errors.OverQuota):
            awaited, _ = self._state.wanted(key, now)
            for helped in self._state.sacrifice(key, awaited, now):
                self._pools.wake(PoolWork.tidy(helped))
        elif isinstance(failure, errors.NotFound):
            self._pools.refuse(self._state.close(key, now), failure)
            self._pools.wake(PoolWork.tidy(key))
        elif isinstance(failure, errors.Refused):
            self._pools.refuse(self._state.refuse(key), failure)

    def relieve(self, project_id: str) -> None:
        """A port of the project is gone: there may be room for others."""
        for key in [key for key in self._failing if key.project_id == project_id]:
            self._failing.discard(key)
            self.ask(key)

    async def _search(self, key: PoolKey) -> None:
        """Take in what creations have made without a word."""
        ports = await self._pools.list_ports({"network_id": key.network_id})
        self._pools.adopt(await self._pools.vif.find_spares(ports))
        self._uncertain.discard(key)
