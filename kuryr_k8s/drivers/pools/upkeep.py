"""Rounds of upkeep: returned ports are checked, names follow their Pods, superfluous ports go.

No Pod waits for any of this, except for the check of a port that it can have. A port that leaves
is renamed before it is deleted. So a controller that was frozen between the two calls, and wakes
up when another one leads, can only delete a port that the other will not give away.
"""

import dataclasses
import logging
from collections import defaultdict
from typing import NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import AVAILABLE, LEAVING, NAME_LIMIT, PooledPort, PoolKey
from kuryr_k8s.drivers.pools.effects import Effects
from kuryr_k8s.drivers.pools.inventory import Inventory
from kuryr_k8s.drivers.pools.parts import PoolContext
from kuryr_k8s.drivers.pools.state import Pool
from kuryr_k8s.engine.budget import Budget
from kuryr_k8s.engine.limit import Priority, prioritized

LOG = logging.getLogger(__name__)
Json = dict[str, object]
AT_ONCE = 20  # ports of one round
PASSING = frozenset({401, 408, 409, 412, 429})  # refusals that are not about this port


class Checked(NamedTuple):
    """The result of checking the ports that returned.

    :param delay: seconds until the remaining ports can be checked; 0 where none remain.
    :param failure: why some checks are to be repeated.
    """

    delay: float = 0.0
    failure: errors.CloudError | None = None


class Upkeep:
    """Looks after the ports of pools.

    :param names: whether ports in use bear their Pods' names.
    :param rate: calls per second, for all pools together.
    :param interval: seconds between two rounds for a pool.
    """

    def __init__(
        self,
        context: PoolContext,
        inventory: Inventory,
        *,
        names: bool,
        rate: float,
        interval: float,
    ) -> None:
        self._context = context
        self._state = context.state
        self._inventory = inventory
        self._names = names
        self._interval = interval
        self._budget = Budget(rate, burst=max(1, round(rate)))
        # The names that ports in use do not bear yet, by pool and port
        self._pod_names: defaultdict[PoolKey, dict[str, str]] = defaultdict(dict)

    def used(self, port: PooledPort, pod: str) -> None:
        """Note that a Pod has the port, which should bear the Pod's namespace/name in time."""
        if self._names and port.name == AVAILABLE:
            record = self._state.record(port.id)
            key = record.port.key if record is not None else port.key
            self._pod_names[key][port.id] = pod

    async def work(self, key: PoolKey) -> float | None:
        """Make one round.

        :returns: seconds until the next round; None: the pool is gone.
        :raises errors.CloudError: the round is to be repeated.
        """
        with prioritized(Priority.POD if self._is_urgent(key) else Priority.CLEANUP):
            checked = await self._check_returned(key)
        now = self._context.now()
        if pool := self._state.pools.get(key):
            pool.cool(now)
        self._state.shrink(key, now)
        self._context.carry_out(Effects(changed=(key.place,)))
        pool = self._state.pools.get(key)
        if pool is None:
            self._pod_names.pop(key, None)
            return None
        if checked.failure is not None:
            # the Pods that counted on those ports get others
            self._context.carry_out(Effects(fill=(key,)))
            raise checked.failure
        awaited = self._context.shortages.is_awaited(key)
        with prioritized(Priority.POD if awaited else Priority.CLEANUP):
            delay = await self._delete_leaving(pool)
        with prioritized(Priority.CLEANUP):
            delay = delay or await self._name(pool)
        self._context.carry_out(Effects(fill=(key,)))
        return min(filter(None, (delay, checked.delay, self._interval)))

    def _is_urgent(self, key: PoolKey) -> bool:
        """Return whether a Pod can have what is checked: then no budget holds it up."""
        return self._state.is_awaited_in(key)

    def _may_call(self, key: PoolKey) -> bool:
        return self._is_urgent(key) or bool(self._budget.take(1))

    def _until_budget(self) -> float:
        """Return the seconds until another call may be made."""
        return max(1.0, self._budget.delay(1))

    async def _check_returned(self, key: PoolKey) -> Checked:
        """Check that returned ports are as the pool promises; others may have changed them.

        A check that has to be repeated does not hold up the other ports.
        """
        pool = self._state.pools.get(key)
        due = {port.id: port for port in pool.due()} if pool is not None else {}
        if not due:
            return Checked()
        if not self._may_call(key):
            return Checked(self._until_budget())
        ports = await self._context.neutron.list_ports_by_id(due)
        there = {port["id"] for port in ports}
        found = {port.id: port for port in await self._context.vif.find_pooled(ports)}
        failure: errors.CloudError | None = None
        for port_id, known in due.items():
            if port_id not in there:
                self._remove(port_id)
            elif port_id not in found or not is_same(found[port_id], known):
                LOG.warning("port %s was changed by others; it is deleted", port_id)
                self._dismiss(known)
            else:
                try:
                    if not await self._restore(found[port_id], known):
                        return Checked(self._until_budget(), failure)
                except errors.CloudError as error:
                    self._state.check_failed(port_id)
                    failure = error
        return Checked(failure=failure)

    async def _restore(self, found: PooledPort, known: PooledPort) -> bool:
        """Bring a port to the state that the pool promises.

        :returns: False where there is no budget for that.
        """
        device = self._inventory.device
        wanted = dataclasses.replace(found, key=known.key, name=AVAILABLE, device_id=device)
        if wanted != found:
            if not self._may_call(known.key):
                return False
            fields: Json = {
                "name": wanted.name,
                "device_id": device,
                "security_groups": list(known.key.security_groups),
            }
            try:
                await self._context.neutron.update_port(found.id, fields)
            except errors.CloudError as error:
                if not error.is_refusal or error.status in PASSING:
                    raise
                LOG.warning("port %s cannot be reused, and is deleted: %s", found.id, error)
                self._dismiss(known)
                return True
        if claim := self._state.passed(wanted, self._context.now()):
            self._context.carry_out(Effects(served=(claim,)))
        return True

    def _dismiss(self, port: PooledPort) -> None:
        """Dismiss a port that others have spoilt; a pool with no other one makes one."""
        now = self._context.now()
        self._state.dismiss(port.id, now)
        pool = self._state.pools.get(port.key)
        if pool is not None:
            self._state.replace_lost(pool, now)

    def _remove(self, port_id: str) -> None:
        self._context.carry_out(self._inventory.remove(port_id))

    async def _update(self, port_id: str, fields: Json) -> bool:
        """Change a port, and tell whether it still exists."""
        try:
            await self._context.neutron.update_port(port_id, fields)
        except errors.NotFound:
            self._remove(port_id)
            return False
        return True

    async def _name(self, pool: Pool) -> float:
        """Give ports in use their Pods' names, while no Pod waits.

        :returns: seconds until there is more to do; 0 where nothing remains.
        """
        now = self._context.now()
        names = self._pod_names[pool.key]
        for port_id in names.keys() - pool.in_use.keys():
            del names[port_id]
        age = self._context.patience.pooled_port_name
        ripe = [port_id for port_id in names if now - pool.in_use[port_id].since >= age]
        for port_id in ripe[:AT_ONCE]:
            if self._state.is_awaited() or not self._budget.take(1):
                return self._until_budget()
            name, record = names.get(port_id), pool.in_use.get(port_id)
            if name is None or record is None or record.holder is None:
                continue  # the port has returned meanwhile
            holder = record.holder.pod_uid
            fields: Json = {"name": name[:NAME_LIMIT], "device_id": holder}
            await self._update(port_id, fields)
            names.pop(port_id, None)
        return 1.0 if len(ripe) > AT_ONCE else 0.0

    async def _delete_leaving(self, pool: Pool) -> float:
        """Delete ports that leave, once their node has unplugged them.

        No budget holds up the deletion where Pods wait for the quota or the address.

        :returns: seconds until there is more to do; 0 where nothing remains.
        """
        now = self._context.now()
        unpark = self._context.patience.unpark
        ready = [
            record
            for record in pool.leaving.values()
            if not record.parked or now - record.since >= unpark
        ]
        failure: errors.CloudError | None = None
        for record in ready[:AT_ONCE]:
            if not (self._context.shortages.is_awaited(pool.key) or self._budget.take(1)):
                break
            if self._state.record(record.port.id) is not record:
                continue
            try:
                if await self._rename(record.port):
                    await self._context.vif.delete_pooled(record.port)
                    self._remove(record.port.id)
            except errors.CloudError as error:  # the other ports do not wait for this one
                failure = error
        if failure is not None:
            raise failure
        if not pool.leaving:
            return 0.0
        return 1.0 if self._context.shortages.is_awaited(pool.key) else self._until_budget()

    async def _rename(self, port: PooledPort) -> bool:
        """Give the port the name of ports that leave, and tell whether it still exists."""
        if port.name == LEAVING:
            return True
        if not await self._update(port.id, {"name": LEAVING}):
            return False
        self._state.rename(port.id, LEAVING)
        return True


def is_same(found: PooledPort, known: PooledPort) -> bool:
    """Return whether no change of a port matters.

    Its name, device, security groups and automatic addresses may have changed.
    """
    wanted = dataclasses.replace(
        known,
        name=found.name,
        device_id=found.device_id,
        fixed_ips=_addresses_asked_for(known),
        fit=True,
    )
    groups = found.key._replace(security_groups=known.key.security_groups)
    return dataclasses.replace(found, key=groups, fixed_ips=_addresses_asked_for(found)) == wanted


def _addresses_asked_for(port: PooledPort) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in port.fixed_ips if pair[0] in port.key.subnet_ids)
