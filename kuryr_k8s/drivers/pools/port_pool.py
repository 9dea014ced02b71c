"""The vif_pool drivers ``neutron`` and ``nested``: Pods get ports that were made before them.

A port of a pool bears the tag ``kuryr-pool`` from its creation. Only the KuryrPorts say which Pod
has it: the port's name and device in Neutron follow later, for people to read. So recovery takes
one list of ports, compared with the KuryrPorts.

request → an available port at once; else the pool is filled, and the Pod is woken
release → the port returns, is checked and cools down (upkeep)
survey  → the first one recovers the pools, later ones find what others did
"""

import dataclasses
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    DriverContext,
    KeepsPorts,
    ParkablePort,
    PodVIFDriver,
    PooledPort,
    PooledVIFDriver,
    PoolKey,
    PoolView,
    PortRequest,
    Records,
)
from kuryr_k8s.drivers.base.pool import Claim, Limits
from kuryr_k8s.drivers.pools.effects import Effects
from kuryr_k8s.drivers.pools.filling import Filling
from kuryr_k8s.drivers.pools.inventory import Inventory
from kuryr_k8s.drivers.pools.metrics import PoolCollector
from kuryr_k8s.drivers.pools.networks import PoolNetworks
from kuryr_k8s.drivers.pools.parking import Parking
from kuryr_k8s.drivers.pools.parts import UPKEEP, PoolContext, PoolTask
from kuryr_k8s.drivers.pools.reporting import PoolReporter
from kuryr_k8s.drivers.pools.shortages import Shortages
from kuryr_k8s.drivers.pools.state import PoolState
from kuryr_k8s.drivers.pools.survey import Survey
from kuryr_k8s.drivers.pools.upkeep import Upkeep
from kuryr_k8s.drivers.pools.waiters import Waiters
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.k8s.resources import NODES, Key
from kuryr_k8s.model.pod import Node
from kuryr_k8s.model.vif import VIFBase, VIFOpenVSwitch, VIFVlanNested

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
WORKERS = 128  # creations, and rounds of upkeep, at the same time


class PortPool(KeepsPorts):
    """Pools of the ports that a pod_vif driver makes.

    ``kind`` is the class of the VIFs that the driver makes.
    """

    kind: ClassVar[type[VIFBase]]

    def __init__(self, context: DriverContext, vif: PodVIFDriver | None = None) -> None:
        super().__init__(context, vif)
        vif = self._vif
        if not isinstance(vif, PooledVIFDriver) or vif.kind is not self.kind:
            raise errors.ConfigError(
                f"[kubernetes] vif_pool_driver: {self.name!r} cannot keep ports of the "
                f"pod_vif_driver {type(vif).__name__}"
            )
        options = context.conf.vif_pool
        self._now = context.clock.now
        self._patience = context.patience
        # Pods wait for pools: so attempts follow each other soon
        first, longest = self._patience.first_pool_retry, self._patience.sweep_retry
        self._queue = WorkQueue[PoolTask](context.clock, base=first, cap=longest)
        self._pooled_vif: PooledVIFDriver = vif
        self._nodes: dict[str, str] = {}  # names of the Nodes, by place
        self._places: dict[str, str] = {}  # of the Nodes, by name
        self._on_change: list[Callable[[str], None]] = []
        self._on_lost: list[Callable[[], None]] = []
        self._state = PoolState(Limits.read(context.conf))
        self._waiters = Waiters(self._now)
        self._networks = networks = PoolNetworks(context.neutron)
        nodes = context.informers.of(NODES)
        pause = self._patience.short_pool_retry
        self._shortages = Shortages(self._now, pause, networks.widened)
        parts = PoolContext(
            state=self._state,
            shortages=self._shortages,
            vif=vif,
            neutron=context.neutron,
            queue=self._queue,
            nodes=self._nodes,
            node=lambda name: nodes.get(Key("", name)),
            carry_out=self._carry_out,
            now=self._now,
            patience=context.patience,
        )
        self._reporter = PoolReporter(self.name, context, self._nodes)
        self._inventory = Inventory(parts, context.conf.neutron_defaults.resource_tags)
        self._filling = Filling(
            parts,
            self._inventory,
            self._networks,
            reserve=options.ports_quota_reserve,
            rate=options.ports_pool_fill_rate,
        )
        self._upkeep = Upkeep(
            parts,
            self._inventory,
            names=options.port_names,
            rate=options.ports_pool_cleanup_rate,
            interval=options.ports_pool_update_frequency,
        )
        self._survey = Survey(parts, self._inventory, self._upkeep)
        parks = options.park_ports and vif.kind is VIFOpenVSwitch
        self._parking = Parking(parts, self._networks, enabled=parks)

    def loops(self) -> Sequence[Controller[PoolTask]]:
        """Return the loop that creates ports and looks after them."""
        return (
            Controller(
                f"pool-{self.name}",
                self._work,
                queue=self._queue,
                workers=WORKERS,
                report=self._reporter.report,
                observe=self._context.observe,
                patience=self._patience,
            ),
        )

    def collectors(self) -> Sequence[Collector]:
        return (PoolCollector(self, self._waiters.times),)

    # -- Pods

    async def request(self, request: PortRequest) -> VIFBase:
        if not request.is_plain:
            return await self._vif.ensure(request)
        claim = Claim(request.pod_uid, request.ifname)
        if not self.recovered:
            self._survey.await_recovery(claim, request.wake)
            raise errors.Wait("the pools are not recovered yet", delay=self._patience.pool_request)
        key = await self.key_of(request)
        if refusal := self._waiters.pop_refusal(claim):
            raise refusal
        port = self._take(key, claim)
        if port is None:
            self._waiters.add(claim, request.wake)
            self._filling.ask(key)
            self._carry_out(Effects(upkeep=self._due(key)))
            raise errors.Wait(
                "the pool is empty and being filled", delay=self._patience.pool_request
            )
        if port.key.security_groups != key.security_groups:
            port = await self._regroup(port, key.security_groups)
        self._waiters.served(claim)
        self._upkeep.used(port, request.pod_name)
        self._carry_out(Effects(fill=(key,), changed=(key.place,)))
        vif = self._pooled_vif.vif_of_pooled(port, request.pod_network)
        record = self._state.record(port.id)
        return dataclasses.replace(vif, active=record is not None and record.parked)

    def _take(self, key: PoolKey, claim: Claim) -> PooledPort | None:
        now, alternatives = self._now(), self._networks.alternatives(key)
        port = self._state.take(key, claim, now, alternatives)
        if port is not None and not _is_usable(port, alternatives):
            # The Pod should be elsewhere by now, or a KuryrPort names the port in a lost answer.
            self._state.set_aside(claim)
            port = self._state.take(key, claim, now, alternatives)
        return port

    def _due(self, key: PoolKey) -> tuple[PoolKey, ...]:
        """List the pools with ports that returned, and that will do once they are checked."""
        pools = map(self._state.pools.get, self._networks.alternatives(key))
        return tuple(pool.key for pool in pools if pool is not None and pool.due())

    async def _regroup(self, port: PooledPort, groups: tuple[str, ...]) -> PooledPort:
        """Change the groups of a port that was promised to the Pod with other groups."""
        try:
            await self._context.neutron.update_port(port.id, {"security_groups": list(groups)})
        except errors.NotFound:
            if not await self._context.neutron.list_ports_by_id([port.id], ("id",)):
                self._carry_out(self._inventory.remove(port.id))
            raise
        return dataclasses.replace(port, key=port.key._replace(security_groups=groups))

    async def holds(self, vif: VIFBase, pod_uid: str) -> bool | None:
        """Return whether the pool has given the port to the Pod, or the port itself names it.

        :returns: None: a later survey tells whose the port is.
        """
        self._require_recovery()  # an unknown port may still belong to a Pod
        record = self._state.record(vif.id)
        if record is None:
            return await self._vif.holds(vif, pod_uid)
        if self._state.is_withheld(vif.id) or self._state.is_contested(vif.id):
            return None
        return record.holder is not None and record.holder.pod_uid == pod_uid

    async def update_security_groups(self, vif: VIFBase, groups: tuple[str, ...]) -> None:
        await self._vif.update_security_groups(vif, groups)

    async def release(self, vif: VIFBase, pod_uid: str) -> None:
        self._require_recovery()  # an unknown port may still belong to a Pod
        record = self._state.record(vif.id)
        if record is not None and record.holder and record.holder.pod_uid != pod_uid:
            return  # an earlier attempt returned the port, and another Pod has it by now
        if self._state.return_port(vif.id, self._now()):
            self._returned(vif.id)
        else:
            await self._vif.release(vif)

    async def release_unrecorded(self, pod_uid: str) -> int:
        self._require_recovery()
        ports = self._state.return_ports_of(pod_uid, self._now())
        self._waiters.remove_pod(pod_uid)
        for port_id in ports:
            self._returned(port_id)
        return len(ports) + await self._vif.release_unrecorded(pod_uid)

    def _returned(self, port_id: str) -> None:
        record = self._state.record(port_id)
        if record is None:
            return
        pool = record.pool
        is_awaited = self._state.is_awaited_in(pool.key)
        if not is_awaited and self._shortages.take_missing(pool.key):
            self._state.dismiss(port_id, self._now())
        urgent = is_awaited or pool.leaving
        upkeep = (pool.key,) if urgent else ()
        self._carry_out(Effects(changed=(pool.key.place,), upkeep=upkeep))

    def _require_recovery(self) -> None:
        if not self.recovered:
            raise errors.Wait("the pools are not recovered yet", delay=1.0)

    # -- changes

    def on_change(self, callback: Callable[[str], None]) -> None:
        self._on_change.append(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        self._on_lost.append(callback)

    def _carry_out(self, effects: Effects) -> None:
        """Do the follow-up work of a change."""
        self._waiters.wake(effects.served)
        self._waiters.refuse(effects.refused)
        for place in effects.changed:
            self._tell_change(place)
        if effects.survey:
            for callback in self._on_lost:
                callback()
        for key in effects.freed:
            self._filling.relieve(key)
        for key in effects.upkeep:
            self._queue.add(PoolTask.upkeep(key))
        for key in effects.fill:
            self._filling.ask(key)

    def _tell_change(self, place: str) -> None:
        name = self._nodes.get(place, "")
        if name or not all(pool.is_closed() for pool in self._state.at(place)):
            for callback in self._on_change:
                callback(name)

    # -- surveys

    @property
    def recovered(self) -> bool:
        return self._survey.recovered

    def known(self) -> frozenset[str]:
        return frozenset(port.id for port in self._state.ports())

    async def survey(
        self, known: frozenset[str], ports: list[Json], records: Records
    ) -> list[Json]:
        return await self._survey.survey(known, ports, records)

    # -- nodes

    async def locate(self, node: Node) -> str:
        place = await self._pooled_vif.place(node)
        self._note_place(node.name, place)
        return place

    def _note_place(self, name: str, place: str) -> None:
        before = self._places.get(name, place)
        self._nodes[place], self._places[name] = name, place
        if before != place and self._nodes.get(before) == name:
            del self._nodes[before]  # its pools are emptied unless another Node is there
            self._tell_change(before)

    async def _place_of(self, node: Node) -> str:
        """Find the place of a node; where another Node is known to be there, it stays that one's.

        Two Nodes may have published one host. Which of them has its pools is not for Pods to say.
        """
        place = await self._pooled_vif.place(node)
        if self._nodes.get(place, node.name) == node.name:
            self._note_place(node.name, place)
        return place

    def close_node(self, name: str) -> None:
        self._pooled_vif.forget(name)
        place = self._places.pop(name, None)
        if place is not None and self._nodes.get(place) == name:
            del self._nodes[place]
            self._close({place})

    def close_unlocated(self) -> None:
        self._close({key.place for key in self._state.pools} - self._nodes.keys())

    def _close(self, places: set[str]) -> None:
        for key in [pool.key for place in places for pool in self._state.at(place)]:
            LOG.info("no node is at %s: ports of project %s leave", key.place, key.project_id)
            self._waiters.wake(self._state.close(key, self._now()))
            self._carry_out(Effects(upkeep=(key,)))

    async def ports_to_park(self, place: str) -> list[ParkablePort]:
        return await self._parking.ports_to_park(place)

    def set_parked(self, place: str, parked: frozenset[str], leaving: frozenset[str]) -> None:
        self._carry_out(self._parking.set_parked(place, parked, leaving))

    # -- operators

    def pools(self, place: str | None = None) -> list[PoolView]:
        now = self._now()
        pools = self._state.pools.values() if place is None else self._state.at(place)
        return [
            PoolView(
                key=pool.key,
                node=self._nodes.get(pool.key.place, ""),
                network_name=self._network_name(pool.key.network_id),
                numbers=pool.numbers(now),
            )
            for pool in pools
        ]

    def _network_name(self, network_id: str) -> str:
        pod_network = self._networks.get(network_id)
        return pod_network.network.name if pod_network is not None else ""

    def ports(self, key: PoolKey) -> list[tuple[PooledPort, str]]:
        pool = self._state.pools.get(key)
        records = pool.records() if pool is not None else ()
        return [(record.port, str(record.phase)) for record in records]

    async def key_of(self, request: PortRequest) -> PoolKey:
        network = request.pod_network.network
        self._networks.add(request.pod_network)
        key = PoolKey(
            project_id=request.project_id,
            place=await self._place_of(request.node),
            network_id=network.id,
            subnet_ids=request.pod_network.asked_subnet_ids,
            security_groups=tuple(sorted(set(request.security_groups))),
        )
        return self._networks.preferred(key)

    def populate(self, key: PoolKey, count: int) -> None:
        self._state.order(key, count, self._now())
        self._carry_out(Effects(fill=(key,), upkeep=(key,)))

    def free(self, key: PoolKey, count: int | None) -> int:
        freed = self._state.empty(key, count, self._now())
        self._carry_out(Effects(upkeep=(key,)))
        return freed

    # -- work

    async def _work(self, task: PoolTask) -> float | None:
        if task.number == UPKEEP:
            delay = await self._upkeep.work(task.key)
            if task.key not in self._state.pools:
                self._filling.forget(task.key)
        else:
            delay = await self._filling.work(task.key)
        if self._filling.is_well(task.key):
            self._reporter.well(task)
        return delay


class NeutronPool(PortPool):
    """Ports bound to the nodes' own hosts."""

    name = "neutron"
    kind = VIFOpenVSwitch


class NestedPool(PortPool):
    """Subports of the nodes' trunks; they are attached, hence ACTIVE."""

    name = "nested"
    kind = VIFVlanNested


def _is_usable(port: PooledPort, keys: Collection[PoolKey]) -> bool:
    return any(port.key._replace(security_groups=key.security_groups) == key for key in keys)
