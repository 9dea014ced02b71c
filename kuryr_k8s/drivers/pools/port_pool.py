"""vif_pool ``neutron`` and ``nested``: Pods get ports that were made before them.

A port of a pool bears the tag ``kuryr-pool`` from its creation on. Who has it is the KuryrPorts'
word alone: its name and device in Neutron follow later, for people. So recovery is one list of
ports, held against the KuryrPorts.

request  → a port that is available, at once; else the pool is filled, and the Pod is woken
release  → the port returns, is checked and cools down (pool_upkeep)
survey   → the first one recovers, the later ones find what others did (pool_survey)
"""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import (
    DriverContext,
    PodVIFDriver,
    PooledPort,
    PooledVIFDriver,
    PoolKey,
    PortRequest,
    Records,
    VIFPoolDriver,
)
from kuryr_k8s.drivers.pools.claims import Claim
from kuryr_k8s.drivers.pools.filling import Filling
from kuryr_k8s.drivers.pools.metrics import PoolCollector
from kuryr_k8s.drivers.pools.networks import PoolNetworks
from kuryr_k8s.drivers.pools.pool import Limits
from kuryr_k8s.drivers.pools.shared import TIDY, Pools, PoolWork
from kuryr_k8s.drivers.pools.survey import Survey
from kuryr_k8s.drivers.pools.upkeep import Upkeep
from kuryr_k8s.drivers.pools.worker import pool_loop
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.model.pod import Node
from kuryr_k8s.model.vif import VIFBase, VIFOpenVSwitch, VIFVlanNested

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
PATIENCE = 30.0  # seconds after which a Pod that waits asks again by itself


class PortPool(VIFPoolDriver):
    """Pools of the ports that a pod_vif driver makes of the class ``kind`` of VIFs."""

    keeps_ports = True
    name: ClassVar[str]
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
        limits = Limits(
            minimum=options.ports_pool_min,
            batch=options.ports_pool_batch,
            maximum=options.ports_pool_max,
            ttl=options.ports_pool_ttl,
            idle=options.ports_pool_idle,
            cooldown=options.ports_pool_cooldown,
        )
        self._ports: PooledVIFDriver = vif
        self.pools = Pools(
            vif, context.neutron, context.conf.neutron_defaults.resource_tags, limits
        )
        self._state = self.pools.state
        self._filling = Filling(
            self.pools, reserve=options.ports_quota_reserve, rate=options.ports_pool_fill_rate
        )
        self._upkeep = Upkeep(
            self.pools,
            names=options.port_names,
            rate=options.ports_pool_cleanup_rate,
            interval=options.ports_pool_update_frequency,
        )
        self.pools.ask, self.pools.offer = self._filling.ask, self._filling.offer
        self.pools.freed = self._filling.relieve
        self._parks = options.park_ports and vif.kind is VIFOpenVSwitch
        self._networks = PoolNetworks(context.neutron)
        self._survey = Survey(self.pools, self._upkeep)
        self._loop = pool_loop(context, self)
        self.pools.wake = self._loop.queue.add
        self.pools.wake_later = self._loop.queue.add_after

    def loops(self) -> Sequence[Controller[PoolWork]]:
        """Return the workers that make ports, and keep pools tidy."""
        return (self._loop,)

    def collectors(self) -> Sequence[Collector]:
        """Return the metrics of the pools."""
        return (PoolCollector({self.name: self.pools}),)

    def on_lost(self, call: Callable[[], None]) -> None:
        """Call back when a port that a Pod has turns out to be gone."""
        self.pools.lost = call

    async def request(self, request: PortRequest) -> VIFBase:
        if not request.is_plain:
            return await self._vif.ensure(request)
        claim = Claim(request.pod_uid, request.ifname)
        if not self.recovered:
            self._survey.early[claim] = request.wake
            raise errors.Wait("the pools are not recovered yet", delay=PATIENCE)
        key = await self.key_of(request)
        if refusal := self.pools.refusal(claim):
            raise refusal
        spare = self._take(key, claim)
        if spare is None:
            self.pools.wait(claim, request.wake)
            self._filling.ask(key)
            if self._state.due(key):
                self.pools.wake(PoolWork.tidy(key))
            raise errors.Wait("the pool is empty and being filled", delay=PATIENCE)
        if spare.key.security_groups != key.security_groups:
            spare = await self._regroup(spare, key.security_groups)
        self.pools.settled(claim)
        self._upkeep.used(spare, request.pod_name)
        self._filling.ask(key)
        self.pools.changed(key.place)
        vif = self._ports.vif_of_pooled(spare, request.pod_network)
        return dataclasses.replace(vif, active=self._state.is_parked(spare.id))

    def _take(self, key: PoolKey, claim: Claim) -> PooledPort | None:
        now = self.pools.now()
        spare = self._state.take(key, claim, now)
        if spare is not None and not _is_usable(spare, key):
            # Its Pod is to be elsewhere by now; or a KuryrPort names it, in an answer we lost.
            self._state.set_aside(claim)
            spare = self._state.take(key, claim, now)
        return spare

    async def _regroup(self, spare: PooledPort, groups: tuple[str, ...]) -> PooledPort:
        """It was promised to the Pod with other security groups."""
        try:
            await self._context.neutron.update_port(spare.id, {"security_groups": list(groups)})
        except errors.NotFound:
            if not await self._context.neutron.list_ports_by_id([spare.id], ("id",)):
                self.pools.bury(spare.id)
            raise
        return self.pools.with_groups(spare, groups)

    async def place(self, node: Node) -> str:
        """Where ports for the node's Pods are made. :raises NodeNotReady: nobody knows yet."""
        place = await self._ports.place(node)
        self.pools.nodes[place] = node.name
        return place

    async def key_of(self, request: PortRequest) -> PoolKey:
        """The pool that has such ports."""
        network = request.pod_network.network
        self._networks.note(request.pod_network)
        return PoolKey(
            project_id=request.project_id,
            place=await self.place(request.node),
            network_id=network.id,
            subnet_ids=tuple(sorted(subnet.id for subnet in request.pod_network.subnets)),
            security_groups=tuple(sorted(request.security_groups)),
        )

    async def update_security_groups(self, vif: VIFBase, groups: tuple[str, ...]) -> None:
        await self._vif.update_security_groups(vif, groups)

    async def release(self, vif: VIFBase, pod_uid: str) -> None:
        self._require_recovery()  # a port that is not known yet is not nobody's
        if self._state.holder(vif.id) not in (None, pod_uid):
            return  # an earlier life gave it back, and on
        if self._state.give_back(vif.id, self.pools.now()):
            self._returned(vif.id)
        else:
            await self._vif.release(vif)

    async def release_unrecorded(self, pod_uid: str) -> int:
        self._require_recovery()
        ports = self._state.withdraw(pod_uid, self.pools.now())
        self.pools.withdrawn(pod_uid)
        for port in ports:
            self._returned(port)
        return len(ports) + await self._vif.release_unrecorded(pod_uid)

    def _returned(self, port: str) -> None:
        spare = self._state.spare(port)
        if spare is None:
            return
        pool = self._state.pools[spare.key]
        self.pools.changed(spare.key.place)
        if pool.waiting or pool.leaving:
            self.pools.wake(PoolWork.tidy(spare.key))

    def _require_recovery(self) -> None:
        if not self.recovered:
            raise errors.Wait("the pools are not recovered yet", delay=1.0)

    # -- what an operator asks for

    def populate(self, key: PoolKey, count: int) -> None:
        """Make so many ports more, once."""
        self._state.order(key, count, self.pools.now())
        self._filling.ask(key)
        self.pools.wake(PoolWork.tidy(key))

    def free(self, key: PoolKey, count: int | None) -> int:
        """Delete so many available ports (None: all), and make none until a Pod asks; how many."""
        freed = self._state.free(key, count, self.pools.now())
        self._state.pools[key].rests = True
        self.pools.wake(PoolWork.tidy(key))
        return freed

    # -- recovery, and what others do

    def known(self) -> frozenset[str]:
        return frozenset(spare.id for spare in self._state.known())

    async def survey(
        self, known: frozenset[str], ports: list[Json], records: Records
    ) -> list[Json]:
        return await self._survey.survey(known, ports, records)

    # -- nodes

    def close_node(self, name: str) -> None:
        """The Node is gone: its pools are emptied."""
        self._ports.forget(name)
        places = {place for place, node in self.pools.nodes.items() if node == name}
        for place in places:
            del self.pools.nodes[place]
        self._close(places)

    def close_nobodys(self) -> None:
        """Every Node's place is known: the pools of other places are emptied."""
        self._close({key.place for key in self._state.pools} - self.pools.nodes.keys())

    def _close(self, places: set[str]) -> None:
        for key in [pool.key for place in places for pool in self._state.at(place)]:
            LOG.info("no node is %s any more: its ports of %s go", key.place, key.project_id)
            self.pools.tell(self._state.close(key, self.pools.now()))
            self.pools.wake(PoolWork.tidy(key))

    @property
    def recovered(self) -> bool:
        """Whether it is known which ports there are; ``changed`` is called then."""
        return self._survey.recovered

    def is_open(self, place: str) -> bool:
        """Whether the place has a pool that is not being emptied."""
        return not all(pool.closed for pool in self._state.at(place))

    def parked(self, place: str, ports: frozenset[str], leaving: frozenset[str]) -> None:
        """The node says which ports it keeps plugged; and these were told to be unplugged, by an
        earlier life perhaps."""
        concerned = self._state.parked(ports, place)
        for port in leaving:
            if self._state.where(port) in ("available", "returning"):
                self._state.dismiss(port, self.pools.now())
                concerned.add(port)
        spares = (self._state.spare(port) for port in concerned if self.is_leaving(port))
        for key in {spare.key for spare in spares if spare is not None}:
            self.pools.wake(PoolWork.tidy(key))

    def to_park(self, place: str) -> list[PooledPort]:
        """The ports that the node of this place is to keep plugged, those that leave included."""
        if not self._parks:
            return []
        pools = self._state.at(place)
        spares = (self._state.spare(port) for pool in pools for port in pool.ports())
        return [spare for spare in spares if spare is not None]

    def is_leaving(self, port: str) -> bool:
        return self._state.where(port) == "leaving"

    async def learn_networks(self, place: str) -> None:
        """Have :meth:`vif_of` know all ports of the place.

        :raises errors.CloudError: Neutron does not tell.
        """
        await self._networks.learn(spare.key for spare in self.to_park(place))

    def vif_of(self, spare: PooledPort) -> VIFBase | None:
        """What it will be to a Pod; None while nothing is known of its network."""
        network = self._networks.get(spare.key.network_id)
        return self._ports.vif_of_pooled(spare, network) if network is not None else None

    # -- work

    async def work(self, work: PoolWork) -> float | None:
        if work.lane != TIDY:
            return await self._filling.work(work.key)
        delay = await self._upkeep.work(work.key)
        if work.key not in self._state.pools:
            self._filling.forget(work.key)
        return delay

    def is_well(self, key: PoolKey) -> bool:
        """Whether the pool has what it wants, and got it by its last creation."""
        return self._filling.is_well(key)


class NeutronPool(PortPool):
    """Ports bound to the nodes' own hosts."""

    name = "neutron"
    kind = VIFOpenVSwitch


class NestedPool(PortPool):
    """Subports of the nodes' trunks, attached, hence ACTIVE."""

    name = "nested"
    kind = VIFVlanNested


def _is_usable(spare: PooledPort, key: PoolKey) -> bool:
    return spare.key._replace(security_groups=key.security_groups) == key


def pools_of(driver: VIFPoolDriver) -> list[PortPool]:
    """Return the drivers that keep ports, of those that the options name."""
    return [part for part in driver.parts() if isinstance(part, PortPool)]
