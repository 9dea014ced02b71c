"""Surveys of all ports: the first recovers the pools, later ones find what others changed."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from kuryr_k8s.drivers.base import CONTESTED, PooledPort, Records
from kuryr_k8s.drivers.base.pool import Claim, Phase
from kuryr_k8s.drivers.pools.effects import Effects
from kuryr_k8s.drivers.pools.inventory import Inventory
from kuryr_k8s.drivers.pools.parts import PoolContext, PoolTask
from kuryr_k8s.drivers.pools.upkeep import Upkeep, is_same

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
SETTLED = 1.0  # seconds after recovery, when the nodes have said what they were told to unplug
ORPHAN = 120.0  # seconds for which a port may be in use before a KuryrPort names it


class Survey:
    """Compares the pools with full lists of ports."""

    def __init__(self, context: PoolContext, inventory: Inventory, upkeep: Upkeep) -> None:
        self.recovered = False  # whether the pools are known
        self._context = context
        self._state = context.state
        self._inventory = inventory
        self._upkeep = upkeep
        self._early: dict[Claim, Callable[[], None]] = {}
        # Ports in use whose Pods use another port, as the last survey found → since when in use
        self._unused: dict[str, float] = {}
        # Ports of an earlier life whose Pods were being deleted and unplugged, as the last survey
        # found → since when in use. What was given in this life, this life takes back.
        self._unplugged: dict[str, float] = {}

    def await_recovery(self, claim: Claim, wake: Callable[[], None]) -> None:
        """Have ``wake`` called as soon as the pools are known."""
        self._early[claim] = wake

    async def survey(
        self, known: frozenset[str], ports: list[Json], records: Records
    ) -> list[Json]:
        """Recover or compare the pools: see :meth:`KeepsPorts.survey`."""
        listed = ports + await self._inventory.tag_ports({})
        there = {port["id"] for port in listed}
        # a list proves nothing about what it does not show
        unlisted = {port_id for port_id in known - there if self._state.record(port_id)}
        listed += await self._context.neutron.list_ports_by_id(unlisted)
        there = {port["id"] for port in listed}
        pooled = await self._context.vif.find_pooled(listed)
        await self._inventory.note_doubtful(records.doubtful)
        if self.recovered:
            self._remove(unlisted - there)
            self._doubt((known & there) - {port.id for port in pooled})
            pooled = await self._inventory.still_there(pooled)
            self._inventory.note_named(records.claims)
            self._compare(pooled, records)
        else:
            self._recover(pooled, records)
            self._inventory.note_named(records.claims)
        self._note_unplugged(pooled, records)
        mine = {port.id for port in pooled}
        return [port for port in ports if port["id"] not in mine]

    def _recover(self, pooled: list[PooledPort], records: Records) -> None:
        now = self._context.now()
        for port in pooled:
            holder = records.holder_of(port.id, port.device_id)
            if holder is not None:
                self._state.recover(port, holder.pod_uid, now)
            elif self._inventory.is_doubtful(port.key.place):
                self._state.withhold(port, now)
            else:
                self._context.carry_out(self._inventory.take_in(port))
            if holder is CONTESTED:
                LOG.warning("port %s is claimed by several Pods; none of them has it", port.id)
            elif holder is not None:
                self._upkeep.used(port, holder.pod)
        self.recovered = True
        LOG.info("%d ports of %d pools recovered", len(pooled), len(self._state.pools))
        for key in self._state.pools:
            self._context.queue.add_after(PoolTask.upkeep(key), SETTLED)
        places = {key.place for key in self._state.pools} | self._context.nodes.keys()
        self._context.carry_out(Effects(changed=tuple(places)))
        early, self._early = self._early, {}
        for wake in early.values():
            wake()

    def _remove(self, port_ids: Iterable[str]) -> None:
        for port_id in port_ids:
            self._context.carry_out(self._inventory.remove(port_id))

    def _doubt(self, port_ids: Iterable[str]) -> None:
        """Have available ports checked before a Pod gets one of them."""
        for port_id in port_ids:
            record = self._state.record(port_id)
            if record is not None and record.phase is Phase.AVAILABLE:
                self._state.doubt(port_id, self._context.now())
                self._context.carry_out(Effects(upkeep=(record.port.key,)))

    def _compare(self, pooled: list[PooledPort], records: Records) -> None:
        for port in pooled:
            self._settle(port, records)
        unnamed = [port for port in pooled if port.id not in records.claims]
        self._context.carry_out(self._inventory.adopt(unnamed))
        served = self._served(pooled, records)
        unused_before, self._unused = self._unused, {}
        for port in unnamed:
            self._check_available(port)
            self._check_in_use(port.id, records, served, unused_before)

    def _served(self, pooled: Iterable[PooledPort], records: Records) -> set[str]:
        """Return the uids of the Pods that have ports beyond doubt.

        A KuryrPort names all ports of its Pod. But nodes write into it: so one of them must name
        the Pod as well, or have been given to it in this life of the controller.
        """
        served: set[str] = set()
        for port in pooled:
            record = self._state.record(port.id)
            holder = record.holder if record is not None else None
            given = holder.pod_uid if holder is not None and holder.ifname else port.device_id
            claims = {claim.pod_uid for claim in records.claims.get(port.id, ())}
            served |= claims & {port.device_id, given}
        return served

    def _settle(self, port: PooledPort, records: Records) -> None:
        """Find out whose a port is of which that could not be told, if it is certain by now."""
        is_withheld = self._state.is_withheld(port.id)
        if not is_withheld and not self._state.is_contested(port.id):
            return
        holder = records.holder_of(port.id, port.device_id)
        if holder is not None and holder is not CONTESTED:
            self._state.settle(port.id, holder.pod_uid)
            self._upkeep.used(port, holder.pod)
        elif holder is None and is_withheld and not self._inventory.is_doubtful(port.key.place):
            self._state.return_port(port.id, self._context.now())
            self._context.carry_out(Effects(upkeep=(port.key,)))

    def _check_available(self, found: PooledPort) -> None:
        """Have a port checked that differs from what is known.

        Others may have changed the port, or it was listed before we changed it.
        """
        record = self._state.record(found.id)
        if record is None or (is_same(found, record.port) and found.key == record.port.key):
            return
        self._doubt((found.id,))

    def _note_unplugged(self, pooled: Iterable[PooledPort], records: Records) -> None:
        self._unplugged = {}
        for port in pooled:
            record = self._state.record(port.id)
            if record is None or record.holder is None or record.holder.ifname:
                continue
            if record.holder.pod_uid in records.unplugged:
                self._unplugged[port.id] = record.since

    def _check_in_use(
        self,
        port_id: str,
        records: Records,
        served: Collection[str],
        unused_before: Mapping[str, float],
    ) -> None:
        """Take back a port that no KuryrPort names, if it has been in use for long.

        Of a Pod that its node had unplugged before, an earlier leader's late request has removed
        the KuryrPort: the port goes back to its pool at once.

        :param served: see :meth:`_served`.
        :param unused_before: what ``_unused`` was after the survey before.
        """
        record = self._state.record(port_id)
        now = self._context.now()
        if record is None or record.holder is None or record.phase is not Phase.IN_USE:
            return
        is_gone = record.holder.pod_uid not in records.pods
        if is_gone and self._unplugged.get(port_id) == record.since:
            self._state.return_port(port_id, now)
        elif now - record.since < ORPHAN:
            return
        elif is_gone:
            LOG.warning("port %s is in use and no KuryrPort names it; it is deleted", port_id)
            self._state.dismiss_orphan(port_id, now)
        elif record.holder.pod_uid not in served:
            return
        elif unused_before.get(port_id) == record.since:
            LOG.warning("port %s: Pod %s has another one", port_id, record.holder.pod_uid)
            self._state.return_port(port_id, now)
        else:
            self._unused[port_id] = record.since
            return
        self._context.carry_out(Effects(upkeep=(record.port.key,)))
