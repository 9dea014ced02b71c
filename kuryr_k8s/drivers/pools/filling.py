"""Pools are filled: ports are made for Pods that wait, then for Pods to come."""

from dataclasses import dataclass, replace

from kuryr_k8s import errors
from kuryr_k8s.cloud.budget import Budget
from kuryr_k8s.cloud.limit import Priority, prioritized
from kuryr_k8s.drivers.base import BindingFailed, PooledPort, PoolKey
from kuryr_k8s.drivers.pools.effects import Effects
from kuryr_k8s.drivers.pools.inventory import Inventory
from kuryr_k8s.drivers.pools.networks import PoolNetworks
from kuryr_k8s.drivers.pools.parts import PoolContext, PoolTask

CREATIONS = 4  # simultaneous creations for one pool
SIZE = 20  # ports of one creation
LEAVING_SOON = 120.0  # seconds in which a port that leaves is gone, unless something is wrong
FINAL = (errors.OverQuota, errors.Refused, errors.NotFound)  # an operator's order ends with them
REFILL_AFTER = 0.5  # seconds in which more Pods may come, whose ports are then made together


@dataclass(slots=True)
class _Progress:
    """The progress of the creations for one pool.

    :param failure: why the last creation failed, until a later one succeeds.
    :param allowed: ports of one creation, after a failure.
    :param proven: the last creation succeeded.
    :param uncertain: a creation may have made more ports than its answer told.
    """

    failure: Exception | None = None
    allowed: int = SIZE
    proven: bool = False
    uncertain: bool = False


class Filling:
    """Creates ports for the pools.

    After a failure, a pool starts again with a single port, and twice as many each time: ports
    that Neutron will refuse or cannot bind are not requested in large numbers.

    :param reserve: ports of a project's quota that are left to others.
    :param rate: ports per second that may be made for Pods to come, for all pools together.
    """

    def __init__(
        self,
        context: PoolContext,
        inventory: Inventory,
        networks: PoolNetworks,
        *,
        reserve: int,
        rate: float,
    ) -> None:
        self._context = context
        self._state = context.state
        self._inventory = inventory
        self._networks = networks
        self._reserve = reserve
        self._budget = Budget(rate, burst=max(round(rate), SIZE))
        self._progress: dict[PoolKey, _Progress] = {}

    def ask(self, key: PoolKey) -> None:
        """Have the pool filled as far as it needs; a pool that fails is not hurried."""
        if self._has_failed(key):
            return
        awaited, refill = self._state.wanted(key, self._context.now())
        creations = min(CREATIONS, -(-awaited // SIZE))
        for number in range(creations):
            self._context.queue.add(PoolTask(key, number))
        if refill and not creations:
            self._context.queue.add_after(PoolTask(key, 0), REFILL_AFTER)

    def is_well(self, key: PoolKey) -> bool:
        """Return whether the pool has what it needs, by a creation that succeeded."""
        progress = self._progress.get(key)
        proven = progress is not None and progress.proven
        return proven and not any(self._state.wanted(key, self._context.now()))

    async def work(self, key: PoolKey) -> float | None:
        """Create some ports, if the pool needs any.

        :returns: seconds until the next attempt; None: nothing is needed.
        :raises errors.CloudError: Neutron refuses, or has no more ports to give.
        """
        if self._of(key).uncertain:
            await self._search(key)
        awaited, refill = self._state.wanted(key, self._context.now())
        progress = self._of(key)
        if awaited:
            await self._create(key, min(awaited, progress.allowed))
        elif refill and key.place in self._context.nodes:
            with prioritized(Priority.REFILL):
                await self._refill(key, min(refill, progress.allowed))
        else:
            progress.failure = None
            if key not in self._state.pools:
                self.forget(key)
            return None
        self._context.carry_out(Effects(changed=(key.place,)))
        return 0.0

    def forget(self, key: PoolKey) -> None:
        """Forget a pool that is gone.

        A pool that failed is remembered until its next attempt: a Pod that was refused asks again
        and would start a storm of requests.
        """
        progress = self._progress.get(key)
        if progress is None or progress.failure is not None:
            return
        if progress.uncertain:
            progress.allowed, progress.proven = SIZE, False
        else:
            del self._progress[key]

    async def _refill(self, key: PoolKey, wanted: int) -> None:
        """Create some of the ports for Pods to come, as many as the budget allows."""
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
        """Count the ports that pools may still take; all, where Neutron does not tell."""
        if not self._reserve:
            return SIZE
        quota = await self._context.neutron.port_quota(project_id)
        return SIZE if quota is None else quota.left - self._reserve

    async def _create(self, key: PoolKey, count: int) -> None:
        ports: list[PooledPort] = []
        failure: Exception | None = errors.CloudError("the creation was cancelled")
        ordered = self._state.begin(key, count, self._context.now())
        try:
            ports, failure = await self._context.vif.create_pooled(key, count)
        finally:
            self._finish(key, count, ports, failure, ordered)
        if failure is None and any(port.key != key for port in ports):
            failure = errors.CloudError(
                "Neutron made ports with other subnets or security groups than were asked for"
            )
        if failure is None and not all(port.fit for port in ports):
            failure = BindingFailed(
                f"Neutron could not bind ports on {key.place!r}: is an agent of that host name "
                "alive (openstack network agent list)?"
            )
        if failure is not None:
            self._fail(key, failure)
            await self._answer(key, failure)
            raise failure
        progress = self._of(key)
        progress.failure, progress.proven = None, True
        progress.allowed = min(SIZE, progress.allowed * 2)

    def _finish(
        self,
        key: PoolKey,
        count: int,
        ports: list[PooledPort],
        failure: Exception | None,
        ordered: int,
    ) -> None:
        """Take in the ports that were made, however the creation ended."""
        # what was not asked for leaves at once: no pool would ever have enough of it
        fresh = [
            port if port.key == key else replace(port, key=key, fit=False)
            for port in ports
            if not self._inventory.was_removed(port.id)
        ]
        missing = 0 if isinstance(failure, FINAL) else min(ordered, count - len(ports))
        served = self._state.made(key, count, fresh, self._context.now(), missing)
        if failure is not None and _may_have_made_more(failure):
            self._of(key).uncertain = True
        self._context.carry_out(Effects(served=tuple(served), upkeep=(key,)))

    def _fail(self, key: PoolKey, failure: Exception) -> None:
        progress = self._of(key)
        progress.failure, progress.allowed, progress.proven = failure, 1, False

    async def _answer(self, key: PoolKey, failure: Exception) -> None:
        """Tell the claims that wait about a failure that they or an operator can mend."""
        if isinstance(failure, errors.OverQuota):
            self._make_room(key)
            return
        if isinstance(failure, errors.NotFound) and await self._is_gone(key):
            refused = self._state.close(key, self._context.now())
        elif isinstance(failure, errors.NotFound | errors.Refused):
            refused = self._state.refuse(key)
        else:
            return
        self._context.carry_out(Effects(refused=dict.fromkeys(refused, failure)))

    async def _is_gone(self, key: PoolKey) -> bool:
        """Return whether the trunk, the network or a subnet of the pool is gone.

        A pool that closes loses all ports that it has available. The answer to a creation may be
        about a security group, or come from a replica of the database that lags behind. So they
        are asked for.

        :raises errors.CloudError: Neutron does not answer.
        """
        place_exists = await self._context.vif.has_place(key.place)
        return not (place_exists and await self._networks.exist(key))

    def _of(self, key: PoolKey) -> _Progress:
        return self._progress.setdefault(key, _Progress())

    def _has_failed(self, key: PoolKey) -> bool:
        progress = self._progress.get(key)
        return progress is not None and progress.failure is not None

    # -- quotas and addresses that are used up

    def relieve(self, project_id: str) -> None:
        """Try again to fill the project's pools: a port of the project is gone."""
        for key in self._starving(project_id):
            self._progress[key].failure = None
            self.ask(key)

    def _starving(self, project_id: str) -> list[PoolKey]:
        """List the pools for which the project has no port or no address left."""
        return [
            key
            for key, progress in self._progress.items()
            if key.project_id == project_id and isinstance(progress.failure, errors.OverQuota)
        ]

    def offer(self, key: PoolKey) -> None:
        """Let other pools of the project have ports that this pool has available."""
        for other in self._starving(key.project_id):
            self._make_room(other)

    def _make_room(self, key: PoolKey) -> None:
        """Have other pools give up ports for the claims that wait, besides those leaving."""
        now = self._context.now()
        awaited, _ = self._state.wanted(key, now)
        leaving = sum(
            now - record.since < LEAVING_SOON
            for other, pool in self._state.pools.items()
            if other.project_id == key.project_id
            for record in pool.leaving.values()
        )
        helped = self._state.reclaim(key, awaited - leaving, now)
        self._context.carry_out(Effects(upkeep=tuple(helped)))

    async def _search(self, key: PoolKey) -> None:
        """Take in ports that creations made unnoticed."""
        if self._state.is_creating(key):
            return  # its ports would be listed as well
        ports = await self._inventory.list_ports({"network_id": key.network_id})
        pooled = await self._context.vif.find_pooled(ports)
        self._context.carry_out(self._inventory.adopt(pooled))
        self._of(key).uncertain = False


def _may_have_made_more(failure: Exception) -> bool:
    """Return whether ports may exist that the answers did not report.

    A refusal is certain: of a creation in several requests, the answers report what was made
    before the quota was used up.
    """
    if isinstance(failure, errors.OverQuota):
        return False
    return not (isinstance(failure, errors.CloudError) and failure.is_refusal)
