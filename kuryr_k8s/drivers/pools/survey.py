"""Pools are held against Neutron's ports: the first time they recover, later they find what others
deleted, changed or left.
"""

import logging
from collections.abc import Callable
from typing import Any

from kuryr_k8s.drivers.base import PooledPort, Records
from kuryr_k8s.drivers.pools.claims import Claim
from kuryr_k8s.drivers.pools.shared import Pools, PoolWork
from kuryr_k8s.drivers.pools.upkeep import Upkeep, is_same

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
SETTLED = 1.0  # seconds after the recovery: what nodes were told to unplug is known by then
ORPHAN = 120.0  # seconds for which a port may be in use before a KuryrPort names it


class Survey:
    """``recovered`` tells whether the pools are known; ``early`` are those to be called then."""

    def __init__(self, pools: Pools, upkeep: Upkeep) -> None:
        self._pools = pools
        self._state = pools.state
        self._upkeep = upkeep
        self.recovered = False
        self.early: dict[Claim, Callable[[], None]] = {}

    async def survey(
        self, known: frozenset[str], ports: list[Json], records: Records
    ) -> list[Json]:
        """As :meth:`VIFPoolDriver.survey`."""
        spares = await self._pools.vif.find_pooled(ports + await self._pools.tag_ports({}))
        if self.recovered:
            self._compare(known, spares, records)
        else:
            self._recover(spares, records)
        mine = {spare.id for spare in spares}
        return [port for port in ports if port["id"] not in mine]

    def _recover(self, spares: list[PooledPort], records: Records) -> None:
        now = self._pools.now()
        for spare in spares:
            holder = records.holders.get(spare.id)
            if holder is None:
                self._pools.take_in(spare)
                continue
            self._state.recover(spare, holder.pod_uid, now)
            self._upkeep.used(spare, holder.pod)
        self.recovered = True
        LOG.info("%d ports of %d pools recovered", len(spares), len(self._state.pools))
        for key in list(self._state.pools):
            self._pools.wake_later(PoolWork.tidy(key), SETTLED)
        for place in {key.place for key in self._state.pools} | self._pools.nodes.keys():
            self._pools.changed(place)
        for wake in self.early.values():
            wake()
        self.early.clear()

    def _compare(self, known: frozenset[str], spares: list[PooledPort], records: Records) -> None:
        for port in known - {spare.id for spare in spares}:
            self._pools.bury(port)
        unnamed = [spare for spare in spares if spare.id not in records.holders]
        self._pools.adopt(unnamed)
        now = self._pools.now()
        for spare in unnamed:
            self._check_available(spare)
            since = self._state.in_use_since(spare.id)
            if since is None or now - since < ORPHAN:
                continue
            if self._state.holder(spare.id) not in records.pods:
                LOG.warning("port %s is in use and no KuryrPort names it; it goes", spare.id)
                self._state.orphaned(spare.id, now)
                self._tidy(spare.id)

    def _check_available(self, found: PooledPort) -> None:
        """Others may have changed a port that waits for a Pod, or it was listed before we did."""
        known = self._state.spare(found.id)
        if known is None or self._state.where(found.id) != "available":
            return
        if not is_same(found, known) or found.key != known.key:
            self._state.doubt(found.id, self._pools.now())
            self._tidy(found.id)

    def _tidy(self, port: str) -> None:
        """The port's pool is looked at; its groups in Neutron may be others than the pool's."""
        if (known := self._state.spare(port)) is not None:
            self._pools.wake(PoolWork.tidy(known.key))
