"""vif_pool ``neutron`` and ``nested``: Pods get ports that were made before them.

A port of a pool bears the tag ``kuryr-pool`` from its creation on. Who has it is the KuryrPorts'
word alone: its name and device in Neutron follow later, for people. So recovery is one list of
ports, held against the KuryrPorts.

request  → a port that is available, at once; else the pool is filled, and the Pod is woken
release  → the port returns, is checked and cools down (pool_upkeep)
survey   → the first one recovers, the later ones find what others deleted or left
"""

import dataclasses
import logging
from collections.abc import Callable
from typing import Any, ClassVar

from kuryr_k8s import errors
from kuryr_k8s.drivers import vif_plan
from kuryr_k8s.drivers.base import (
    DriverContext,
    PodNetwork,
    PooledVIFDriver,
    PoolKey,
    PortRequest,
    Records,
    Spare,
    VIFPoolDriver,
)
from kuryr_k8s.drivers.pool_filling import Filling
from kuryr_k8s.drivers.pool_state import Claim, Limits
from kuryr_k8s.drivers.pool_upkeep import Upkeep
from kuryr_k8s.drivers.pools import TIDY, Pools, PoolWork
from kuryr_k8s.model.pod import Node
from kuryr_k8s.model.vif import VIFBase, VIFOpenVSwitch, VIFVlanNested

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
PATIENCE = 30.0  # seconds after which a Pod that waits asks again by itself
ORPHAN = 120.0  # seconds for which a port may be in use before a KuryrPort names it


class PortPool(VIFPoolDriver):
    """Pools of the ports that a pod_vif driver makes of the class ``kind`` of VIFs."""

    keeps_ports = True
    name: ClassVar[str]
    kind: ClassVar[type[VIFBase]]

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        vif = context.pod_vif
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
        self._vif: PooledVIFDriver = vif
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
        self.pools.freed = self._filling.relieve
        self._interval = options.ports_pool_update_frequency
        self._names = options.port_names
        self._parks = options.park_ports and vif.kind is VIFOpenVSwitch
        self._networks: dict[str, PodNetwork] = {}
        self._recovered = False
        self._early: dict[Claim, Callable[[], None]] = {}  # who asked before the recovery

    async def request(self, request: PortRequest) -> VIFBase:
        claim = Claim(request.pod_uid, request.ifname)
        if not self._recovered:
            self._early[claim] = request.wake
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
        self.pools.settled(claim)
        self._tidy_later(key)
        if spare.key.security_groups != key.security_groups:
            await self._context.neutron.update_port(
                spare.id, {"security_groups": list(key.security_groups)}
            )
            spare = self.pools.with_groups(spare, key.security_groups)
        if self._names and spare.name == vif_plan.AVAILABLE:
            self._upkeep.pod_names[spare.id] = request.pod_name
        self._filling.ask(key)
        self.pools.changed(key.place)
        vif = self._vif.vif_of_spare(spare, request.pod_network)
        return dataclasses.replace(vif, active=self._state.is_parked(spare.id))

    def _take(self, key: PoolKey, claim: Claim) -> Spare | None:
        now = self.pools.now()
        spare = self._state.take(key, claim, now)
        if spare is not None and not _is_usable(spare, key):
            self._state.withdraw(claim.pod_uid, now)  # its Pod is to be elsewhere by now
            spare = self._state.take(key, claim, now)
        return spare

    async def place(self, node: Node) -> str:
        """Where ports for the node's Pods are made. :raises NodeNotReady: nobody knows yet."""
        place = await self._vif.place(node)
        self.pools.nodes[place] = node.name
        return place

    async def key_of(self, request: PortRequest) -> PoolKey:
        """The pool that has such ports."""
        network = request.pod_network.network
        self._networks[network.id] = request.pod_network
        return PoolKey(
            project_id=request.project_id,
            place=await self.place(request.node),
            network_id=network.id,
            subnet_ids=tuple(sorted(subnet.id for subnet in request.pod_network.subnets)),
            security_groups=tuple(sorted(request.security_groups)),
        )

    async def update_security_groups(self, vif: VIFBase, groups: tuple[str, ...]) -> None:
        await self._vif.update_security_groups(vif, groups)

    async def release(self, vif: VIFBase) -> None:
        self._require_recovery()  # a port that is not known yet is not nobody's
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
        else:
            self._tidy_later(spare.key)

    def _require_recovery(self) -> None:
        if not self._recovered:
            raise errors.Wait("the pools are not recovered yet", delay=1.0)

    def _tidy_later(self, key: PoolKey) -> None:
        """At the pool's next round, and every so often from then on."""
        self.pools.wake_later(PoolWork.tidy(key), self._interval)

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
        spares = await self._vif.find_spares(ports + await self.pools.tag_ports({}))
        if self._recovered:
            self._compare(known, spares, records)
        else:
            self._recover(spares, records)
        mine = {spare.id for spare in spares}
        return [port for port in ports if port["id"] not in mine]

    def _recover(self, spares: list[Spare], records: Records) -> None:
        now = self.pools.now()
        for spare in spares:
            holder = records.holders.get(spare.id)
            self._state.recover(spare, holder.pod_uid if holder else None, now)
            if holder and self._names and spare.name == vif_plan.AVAILABLE:
                self._upkeep.pod_names[spare.id] = holder.pod
        self._recovered = True
        LOG.info("%d ports of %d pools recovered", len(spares), len(self._state.pools))
        for key in list(self._state.pools):
            self.pools.wake(PoolWork.tidy(key))
            self.pools.changed(key.place)
        for wake in self._early.values():
            wake()
        self._early.clear()

    def _compare(self, known: frozenset[str], spares: list[Spare], records: Records) -> None:
        for port in known - {spare.id for spare in spares}:
            self.pools.bury(port)
        unnamed = [spare for spare in spares if spare.id not in records.holders]
        self.pools.adopt(unnamed)
        now = self.pools.now()
        for spare in unnamed:
            since = self._state.in_use_since(spare.id)
            if since is None or now - since < ORPHAN:
                continue
            if self._state.holder(spare.id) not in records.pods:
                LOG.warning("port %s is in use and no KuryrPort names it; it goes", spare.id)
                self._state.orphaned(spare.id, now)
                self.pools.wake(PoolWork.tidy(spare.key))

    # -- nodes

    def close_node(self, name: str) -> None:
        """The Node is gone: its pools are emptied."""
        places = {place for place, node in self.pools.nodes.items() if node == name}
        for key in [key for key in self._state.pools if key.place in places]:
            LOG.info("node %s is gone: its ports of project %s go", name, key.project_id)
            self._state.close(key, self.pools.now())
            self.pools.wake(PoolWork.tidy(key))

    def parked(self, place: str, ports: frozenset[str]) -> None:
        """The node says which ports it keeps plugged."""
        self._state.parked(ports, place)
        for key, pool in self._state.pools.items():
            if key.place == place and pool.leaving:
                self.pools.wake(PoolWork.tidy(key))

    def to_park(self, place: str) -> list[Spare]:
        """The ports that the node of this place is to keep plugged, those that leave included."""
        if not self._parks:
            return []
        pools = (pool for key, pool in self._state.pools.items() if key.place == place)
        spares = (self._state.spare(port) for pool in pools for port in pool.ports())
        return [spare for spare in spares if spare is not None]

    def is_leaving(self, port: str) -> bool:
        return self._state.where(port) == "leaving"

    def vif_of(self, spare: Spare) -> VIFBase | None:
        """What it will be to a Pod; None while nothing is known of its network."""
        network = self._networks.get(spare.key.network_id)
        return self._vif.vif_of_spare(spare, network) if network is not None else None

    def counts(self, place: str) -> Json:
        """How many ports the node has, as its KuryrPortPool shows them."""
        counts = dict.fromkeys(
            ("available", "parkedCount", "inUse", "creating", "returning", "target"), 0
        )
        now = self.pools.now()
        for key, pool in self._state.pools.items():
            if key.place == place:
                counts["available"] += len(pool.available)
                counts["parkedCount"] += sum(map(self._state.is_parked, pool.available))
                counts["inUse"] += len(pool.in_use)
                counts["creating"] += pool.creating
                counts["returning"] += len(pool.returning)
                counts["target"] += self._state.target(key, now)
        return counts

    # -- work

    async def work(self, work: PoolWork) -> float | None:
        if work.lane == TIDY:
            return await self._upkeep.work(work.key)
        return await self._filling.work(work.key)


class NeutronPool(PortPool):
    """Ports bound to the nodes' own hosts."""

    name = "neutron"
    kind = VIFOpenVSwitch


class NestedPool(PortPool):
    """Subports of the nodes' trunks, attached, hence ACTIVE."""

    name = "nested"
    kind = VIFVlanNested


def _is_usable(spare: Spare, key: PoolKey) -> bool:
    return spare.key._replace(security_groups=key.security_groups) == key
