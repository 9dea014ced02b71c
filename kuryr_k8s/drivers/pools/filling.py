"""Pools are filled: ports are made for Pods that wait, then for Pods to come."""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import BindingFailed, PooledPort, PoolKey
from kuryr_k8s.drivers.pools.effects import Effects
from kuryr_k8s.drivers.pools.inventory import Inventory
from kuryr_k8s.drivers.pools.networks import PoolNetworks
from kuryr_k8s.drivers.pools.parts import PoolContext, PoolTask
from kuryr_k8s.drivers.pools.resources import FREED, ReserveReached, Resource
from kuryr_k8s.drivers.pools.shortages import Shortage
from kuryr_k8s.engine.budget import Budget
from kuryr_k8s.engine.limit import Priority, prioritized

CREATIONS = 4  # simultaneous creations for one pool
SIZE = 20  # ports of one creation
LEAVING_SOON = 120.0  # seconds in which a port that leaves is gone, unless something is wrong
FINAL = (errors.OverQuota, errors.Refused, errors.NotFound)  # an operator's order ends with them
SEARCHED = 20  # pools of one search: after an outage of Neutron, the first Pod waits for one
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
        self._shortages = context.shortages
        self._inventory = inventory
        self._networks = networks
        self._reserve = reserve
        self._budget = Budget(rate, burst=max(round(rate), SIZE))
        self._progress: dict[PoolKey, _Progress] = {}
        self._searching = asyncio.Lock()

    def ask(self, key: PoolKey) -> None:
        """Have the pool filled as far as it needs; a pool that fails is not hurried."""
        awaited, refill = self._state.wanted(key, self._context.now())
        refill = self._refill_of(key, refill)
        if self._has_failed(key):
            delay = self._shortages.want(key) if awaited else None
            if delay is not None:
                self._context.queue.add_after(PoolTask(key, 0), delay)
            return
        creations = min(CREATIONS, -(-awaited // SIZE))
        for number in range(creations):
            self._context.queue.add(PoolTask(key, number))
        if refill and not creations:
            self._context.queue.add_after(PoolTask(key, 0), REFILL_AFTER)

    def is_well(self, key: PoolKey) -> bool:
        """Return whether the pool has what it needs, by a creation that succeeded."""
        progress = self._progress.get(key)
        proven = progress is not None and progress.proven
        awaited, refill = self._state.wanted(key, self._context.now())
        return proven and not (awaited or self._refill_of(key, refill))

    async def work(self, key: PoolKey) -> float | None:
        """Create some ports, if the pool needs any.

        :returns: seconds until the next attempt; None: nothing is needed.
        :raises errors.CloudError: Neutron refuses, or has no more ports to give.
        """
        progress = self._of(key)
        self._move_on(key)
        if not (any(self._wanted(key)) or progress.uncertain):
            progress.failure = None
            self._pass_turn(key)
            if key not in self._state.pools:
                self.forget(key)
            return None
        if not (self._wanted(key)[0] or progress.uncertain):
            self._give_way(key)
        self._await_turn(key)
        allowed = progress.allowed
        try:
            await self._try(key)
        except BaseException as failure:
            if isinstance(failure, errors.NoAddress) and self._goes_on(key, allowed):
                return 0.0
            self._pass_turn(key, self._shortages.used_up(failure, key))
            if isinstance(failure, errors.CloudError):
                self._lack(key, failure)
            raise
        finally:
            self._shortages.tried(key)
        self._context.carry_out(Effects(changed=(key.place,)))
        return 0.0

    async def _try(self, key: PoolKey) -> None:
        if self._of(key).uncertain:
            await self._search(key)
        awaited, refill = self._wanted(key)
        if awaited:
            await self._create(key, min(awaited, self._of(key).allowed))
        elif refill:
            with prioritized(Priority.REFILL):
                await self._refill(key, min(refill, self._of(key).allowed))

    def _wanted(self, key: PoolKey) -> tuple[int, int]:
        """Count the ports to create now: for Pods that wait, and for Pods to come."""
        awaited, refill = self._state.wanted(key, self._context.now())
        return awaited, self._refill_of(key, refill) if key.place in self._context.nodes else 0

    def _refill_of(self, key: PoolKey, refill: int) -> int:
        """Count the ports for Pods to come, which go to the first pool with room for them.

        Of the pools whose ports will do, all others get what an operator ordered, and nothing
        else.
        """
        if not self._has_better(key):
            return refill
        pool = self._state.pools.get(key)
        return min(refill, pool.ordered) if pool is not None else 0

    # -- full subnets

    def _has_better(self, key: PoolKey) -> bool:
        """Return whether another pool is to have the ports for Pods to come.

        It is the preferred one, if this pool's subnets are full or the preferred pool exists.
        Otherwise nobody has asked for that one since its subnets were full; they may still be.
        """
        first = self._networks.preferred(key)
        if first == key:
            return False
        return not self._networks.has_room(key) or first in self._state.pools

    def _move_on(self, key: PoolKey) -> bool:
        """Have another pool serve the claims that wait for one whose subnets are full.

        :returns: whether the claims have another pool, which has room, instead of this one.
        """
        other = self._networks.with_room(key)
        if other is None or self._networks.has_room(key):
            return False
        if self._state.move_claims(key, other, self._context.now()):
            self.ask(other)
        return True

    def _goes_on(self, key: PoolKey, allowed: int) -> bool:
        """Return whether ports are made at once after a subnet had too few addresses.

        One port is tried after several were refused: only the refusal of a single port shows that
        a subnet is full. Then other pools make the ports, if there is room for them.

        :param allowed: ports of the creation that was refused.
        """
        if len(self._networks.alternatives(key)) == 1:
            return False
        if not (allowed > 1 and self._networks.has_room(key)) and not self._move_on(key):
            return False
        self._of(key).failure = None
        self._pass_turn(key)
        return True

    def forget(self, key: PoolKey) -> None:
        """Forget a pool that is gone.

        A pool that failed is remembered until its next attempt: a Pod that was refused asks again
        and would start a storm of requests.
        """
        progress = self._progress.get(key)
        if progress is None or progress.failure is not None:
            return
        self._pass_turn(key)
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
            failure = ReserveReached(
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
        followers = self._shortages.relieved(key)
        self._shortages.leave(key)
        self._hurry(followers)

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

    # -- what is used up

    def relieve(self, key: PoolKey) -> None:
        """Have a pool try again that waits for what a port of this pool took up: it is gone."""
        self._hurry(self._shortages.relieved(key, 1))

    def _hurry(self, keys: Iterable[PoolKey]) -> None:
        for key in keys:
            self._of(key).failure = None
            if any(self._wanted(key)):
                self.ask(key)
            else:
                self._context.queue.add(PoolTask(key, 0))  # which passes the turn on

    def _await_turn(self, key: PoolKey) -> None:
        """Let the pool try, unless another one has tried for all that wait for the same thing.

        :raises errors.Wait: it is not its turn; that is no failure of its own.
        """
        shortage = self._shortages.turn(key)
        if shortage is not None:
            self._shortages.tried(key)
            is_next = shortage.is_first(key)
            self._stand_back(key, shortage, self._shortages.left(shortage) if is_next else None)

    def _give_way(self, key: PoolKey) -> None:
        """Let a pool that is to be filled take nothing that Pods of other pools wait for.

        :raises errors.Wait: there is such a thing.
        """
        shortage = self._shortages.give_way(key)
        if shortage is not None:
            self._shortages.tried(key)
            for first in shortage.first(1):
                if first in shortage.awaited:
                    delay = self._shortages.left(shortage)
                    self._context.queue.add_after(PoolTask(first, 0), delay)
            self._stand_back(key, shortage, None)

    def _stand_back(self, key: PoolKey, shortage: Shortage, delay: float | None) -> None:
        """Have the pool wait until others bring it along, or for so many seconds."""
        self._of(key).failure = shortage.failure
        self._pass_turn(key, (shortage.resource,))
        longest = self._context.patience.sweep_retry
        raise errors.Wait(
            f"another pool tries: {shortage.failure}", delay=longest if delay is None else delay
        )

    def _lack(self, key: PoolKey, failure: errors.CloudError) -> None:
        """Note what is used up, and have pools that share it give up ports for Pods that wait."""
        awaited, _ = self._wanted(key)
        freed = 0
        for met in self._shortages.refused(key, failure, awaited=bool(awaited)):
            self._of(key).failure = failure
            if not met.shortage.awaited:
                continue
            delay = self._shortages.left(met.shortage)
            for first in met.shortage.first(1):
                self._context.queue.add_after(PoolTask(first, 0), delay)
            if met.is_first and met.shortage.resource.kind in FREED:
                freed += self._make_room(met.shortage, freed)

    def _pass_turn(self, key: PoolKey, lacked: Collection[Resource] = ()) -> None:
        """Have the next pools try in the place of one that needs nothing, or lacks only this."""
        for other, delay in self._shortages.leave(key, lacked).items():
            self._context.queue.add_after(PoolTask(other, 0), delay)

    def _make_room(self, shortage: Shortage, freed: int) -> int:
        """Have other pools give up ports for the claims that wait, besides those leaving.

        What leaves already may have been left to the budget while no claim waited: it is hurried.

        :param freed: ports that pools have just given up for other shortages of the same creation.
        :returns: how many more they give up.
        """
        now, resource = self._context.now(), shortage.resource
        awaited = sum(self._state.wanted(key, now)[0] for key in shortage.awaited)
        leaving = self._state.leaving_since(resource, now - LEAVING_SOON)
        needed = awaited - max(sum(leaving.values()), freed)
        helped = self._state.reclaim(resource, needed, now)
        given_up = sum(helped.values())
        shortage.missing = max(0, needed - given_up)
        self._context.carry_out(Effects(upkeep=tuple(leaving | helped)))
        return given_up

    async def _search(self, key: PoolKey) -> None:
        """Take in ports that creations made unnoticed, for this pool and some others."""
        async with self._searching:
            if not self._needs_search(key):
                return  # found by the search that another pool began
            others = [
                other for other in filter(self._needs_search, self._progress) if other != key
            ]
            others.sort(key=self._is_for_later)
            uncertain = [key, *others[: SEARCHED - 1]]
            with prioritized(Priority.REFILL):
                ports = await self._inventory.list_ports(uncertain)
                pooled = await self._context.vif.find_pooled(ports)
                pooled = await self._inventory.still_there(pooled)
            self._context.carry_out(self._inventory.adopt(pooled))
            for other in uncertain:
                self._of(other).uncertain = False

    def _needs_search(self, key: PoolKey) -> bool:
        """Return whether a search is due; it would list ports that are just being created."""
        progress = self._progress.get(key)
        return progress is not None and progress.uncertain and not self._state.is_creating(key)

    def _is_for_later(self, key: PoolKey) -> bool:
        """Return whether no Pod waits for the pool."""
        return not self._wanted(key)[0]


def _may_have_made_more(failure: Exception) -> bool:
    """Return whether ports may exist that the answers did not report.

    A refusal is certain: of a creation in several requests, the answers report what was made
    before the quota was used up.
    """
    if isinstance(failure, errors.OverQuota):
        return False
    return not (isinstance(failure, errors.CloudError) and failure.is_refusal)
