"""Pools are kept tidy: ports that come back are checked, names follow, what is too much goes.

Nobody waits for any of this but for the check of a port that a Pod can have. A port that goes is
marked by its name before it is deleted: a controller that was frozen between the two and wakes
when another one works can only delete what that one will not give away.
"""

import dataclasses
import logging
from collections import defaultdict
from typing import NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.cloud.budget import Budget
from kuryr_k8s.cloud.limit import Priority, prioritized
from kuryr_k8s.drivers.base import PooledPort, PoolKey
from kuryr_k8s.drivers.pools.pool import Pool
from kuryr_k8s.drivers.pools.shared import Pools
from kuryr_k8s.drivers.vif import neutron_plan as vif_plan

LOG = logging.getLogger(__name__)
Json = dict[str, object]
AT_ONCE = 20  # ports in one go
NAMED_AFTER = 10.0  # seconds: a Pod that lives shorter is not worth a call
UNPARK = 60.0  # seconds that the node gets to unplug a port that goes

PASSING = frozenset({401, 408, 409, 412, 429})  # refusals that are not of this port


class Checked(NamedTuple):
    """How far a check came: seconds until the rest can be, and what is to be tried again."""

    delay: float = 0.0
    failure: errors.CloudError | None = None


class Upkeep:
    """:param names: whether ports in use bear their Pods' names.
    :param rate: calls in a second, of all pools together.
    """

    def __init__(self, pools: Pools, *, names: bool, rate: float, interval: float) -> None:
        self._pools = pools
        self._state = pools.state
        self._names = names
        self._interval = interval
        self._budget = Budget(rate, burst=max(1, round(rate)))
        # Of ports in use that do not bear them yet, by pool and port
        self._pod_names: defaultdict[PoolKey, dict[str, str]] = defaultdict(dict)

    def used(self, spare: PooledPort, pod: str) -> None:
        """The Pod (namespace/name) has the port: it is to bear its name, in time."""
        if self._names and spare.name == vif_plan.AVAILABLE:
            known = self._state.spare(spare.id) or spare
            self._pod_names[known.key][spare.id] = pod

    async def work(self, key: PoolKey) -> float | None:
        """One round; seconds until the next, None where the pool is no more.

        :raises errors.CloudError: to be tried again.
        """
        with prioritized(Priority.POD if self._is_urgent(key) else Priority.CLEANUP):
            checked = await self._check_returned(key)
        self._state.cool(key, self._pools.now())
        self._state.shrink(key, self._pools.now())
        self._pools.changed(key.place)
        pool = self._state.pools.get(key)
        if pool is None:
            self._pod_names.pop(key, None)
            return None
        if checked.failure is not None:
            self._pools.ask(key)  # whoever counted on those ports gets others
            raise checked.failure
        with prioritized(Priority.CLEANUP):
            delay = await self._remove(pool) or await self._name(pool)
        self._pools.ask(key)
        if pool.available:
            self._pools.offer(key)
        return min(filter(None, (delay, checked.delay, self._interval)))

    def _is_urgent(self, key: PoolKey) -> bool:
        """Whether a Pod can have what is checked: it does not wait for a budget."""
        pool = self._state.pools.get(key)
        return pool is not None and bool(pool.waiting)

    def _may_call(self, key: PoolKey) -> bool:
        return self._is_urgent(key) or bool(self._budget.take(1))

    def _until_budget(self) -> float:
        """Seconds until another call can be made."""
        return max(1.0, self._budget.delay(1))

    async def _check_returned(self, key: PoolKey) -> Checked:
        """See that ports that came back are as the pool promises; others' changes are no use.

        What is to be tried again does not hold up the others.
        """
        due = {spare.id: spare for spare in self._state.due(key)}
        if not due:
            return Checked()
        if not self._may_call(key):
            return Checked(self._until_budget())
        ports = await self._pools.neutron.list_ports_by_id(due)
        there = {port["id"] for port in ports}
        found = {spare.id: spare for spare in await self._pools.vif.find_pooled(ports)}
        failure: errors.CloudError | None = None
        for port, known in due.items():
            if port not in there:
                self._pools.bury(port)
            elif port not in found or not is_same(found[port], known):
                LOG.warning("port %s was changed by others; it goes", port)
                self._state.dismiss(port, self._pools.now())
            else:
                try:
                    if not await self._restore(found[port], known):
                        return Checked(self._until_budget(), failure)
                except errors.CloudError as error:
                    self._state.unchecked(port)
                    failure = error
        return Checked(failure=failure)

    async def _restore(self, found: PooledPort, known: PooledPort) -> bool:
        """Have it be as the pool promises; False where there is no budget for that."""
        device = self._pools.device
        wanted = dataclasses.replace(
            found, key=known.key, name=vif_plan.AVAILABLE, device_id=device
        )
        if wanted != found:
            if not self._may_call(known.key):
                return False
            fields: Json = {
                "name": wanted.name,
                "device_id": device,
                "security_groups": list(known.key.security_groups),
            }
            try:
                await self._pools.neutron.update_port(found.id, fields)
            except errors.CloudError as error:
                if not 400 <= error.status < 500 or error.status in PASSING:
                    raise
                LOG.warning("port %s cannot be given on, it goes: %s", found.id, error)
                self._state.dismiss(found.id, self._pools.now())
                return True
        claim = self._state.restored(wanted, self._pools.now())
        self._pools.tell([claim] if claim else [])
        return True

    async def _update(self, port: str, fields: Json) -> bool:
        """Whether it is still there."""
        try:
            await self._pools.neutron.update_port(port, fields)
        except errors.NotFound:
            self._pools.bury(port)
            return False
        return True

    async def _name(self, pool: Pool) -> float:
        """Give ports in use their Pods' names, while no Pod waits; seconds until there is more."""
        now = self._pools.now()
        names = self._pod_names[pool.key]
        for port in names.keys() - pool.in_use.keys():
            del names[port]
        ripe = [port for port in names if now - pool.in_use[port] >= NAMED_AFTER]
        for port in ripe[:AT_ONCE]:
            if self._state.anybody_waits() or not self._budget.take(1):
                return self._until_budget()
            name, holder = names.get(port), self._state.holder(port)
            if name is None or holder is None:
                continue  # it came back meanwhile
            fields: Json = {"name": name[: vif_plan.NAME_LIMIT], "device_id": holder}
            await self._update(port, fields)
            names.pop(port, None)
        return 1.0 if len(ripe) > AT_ONCE else 0.0

    async def _remove(self, pool: Pool) -> float:
        """Delete ports that leave, unplugged by their node; seconds until there is more to do."""
        now = self._pools.now()
        ready = [
            port
            for port, since in pool.leaving.items()
            if not self._state.is_parked(port) or now - since >= UNPARK
        ]
        failure: errors.CloudError | None = None
        for port in ready[:AT_ONCE]:
            if not self._budget.take(1):
                break
            spare = self._state.spare(port)
            try:
                if spare is not None and await self._mark(spare):
                    await self._pools.vif.delete_pooled(spare)
                    self._pools.bury(port)
            except errors.CloudError as error:  # the others are not to wait for it
                failure = error
        if failure is not None:
            raise failure
        return self._until_budget() if pool.leaving else 0.0

    async def _mark(self, spare: PooledPort) -> bool:
        """Have it bear the name of ports that go; whether it is still there."""
        if spare.name == vif_plan.LEAVING:
            return True
        if not await self._update(spare.id, {"name": vif_plan.LEAVING}):
            return False
        self._state.learn(dataclasses.replace(spare, name=vif_plan.LEAVING))
        return True


def is_same(found: PooledPort, known: PooledPort) -> bool:
    """Whether nothing but its name, its device and its security groups has changed."""
    wanted = dataclasses.replace(
        known, name=found.name, device_id=found.device_id, key=known.key, fit=True
    )
    groups = found.key._replace(security_groups=known.key.security_groups)
    return dataclasses.replace(found, key=groups) == wanted
