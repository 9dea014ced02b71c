"""The handler of Nodes and KuryrPortPools: ports that each node should keep plugged.

The map of a KuryrPortPool is written in batches, never because of one Pod: a port stays in it
while a Pod has the port. A port that no Pod will have again gets the state ``REMOVE``, and is
deleted in Neutron when the node has unplugged it. A node without pools has no KuryrPortPool.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import KeepsPorts, NodeNotReady, ParkablePort, VIFPoolDriver, keepers
from kuryr_k8s.engine.limit import Priority, prioritized
from kuryr_k8s.handlers.base import Handler, HandlerContext, Watch
from kuryr_k8s.handlers.pools.hosts import Hosts, HostShared
from kuryr_k8s.k8s.events import Reference, node_reference
from kuryr_k8s.k8s.resources import KURYRPORTPOOLS, NODES, Key
from kuryr_k8s.model.kuryrportpool import REMOVE, KuryrPortPool, park_entry
from kuryr_k8s.model.pod import Node

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
GAP = 1.0  # seconds between two looks at a node's pools, and changes of its map
UNLOCATED = Key("", "")  # stands for the pools that no known Node has
# The numbers in the status of a KuryrPortPool, by their names in PoolNumbers
SHOWN = {
    "available": "available",
    "parkedCount": "parked",
    "inUse": "in_use",
    "creating": "creating",
    "returning": "returning",
    "target": "target",
}


@dataclass(slots=True)
class _Written:
    """The last writes for one node, and their times.

    :param looked: when the node's pools were last looked at.
    :param counted: when the numbers were last written.
    :param counts: the numbers that were written.
    :param uid: of the KuryrPortPool that they were written to.
    """

    looked: float | None = None
    counted: float | None = None
    counts: Json | None = None
    uid: str = ""


class KuryrPortPoolHandler(Handler):
    """Writes for each node the ports to park, and reads which ports are parked."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._nodes = context.informers.of(NODES)
        self._kuryrportpools = context.informers.of(KURYRPORTPOOLS)
        self._driver = context.drivers[VIFPoolDriver]
        self._keepers = keepers(self._driver)
        self._patience = context.patience
        self._now = context.clock.now
        self._hosts = Hosts()
        self._written: dict[Key, _Written] = {}
        self._unlocated_since: float | None = None
        for keeper in self._keepers:
            keeper.on_change(lambda node_name: self.wake(Key("", node_name)))

    def watches(self) -> Sequence[Watch[Any]]:
        return (Watch(self._nodes, self._of_node), Watch(self._kuryrportpools, _of_pool))

    def _of_node(self, key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
        """Note the Node's host, and return the keys that the change concerns.

        :returns: the Nodes that it shared its former host with, then the Node itself if it changed
            in a way that matters.
        """
        left = [Key("", name) for name in self._hosts.note(key.name, new)]
        return left if _what_matters(old) == _what_matters(new) else [*left, key]

    def collectors(self) -> Sequence[Collector]:
        return (self._hosts,)

    async def reconcile(self, key: Key) -> float | None:
        if key == UNLOCATED:
            return await self._close_unlocated()
        node = self._nodes.get(key)
        if node is None:
            await self._close(key)
            self._written.pop(key, None)
            return None
        keeper = self._driver.part_of(node)
        if not isinstance(keeper, KeepsPorts):
            await self._delete(key)
            self._hosts.check(node.name)
            return None
        try:
            self._hosts.check(node.name)
        except HostShared:
            await self._write_ports(key, node, [])  # the other one parks them
            raise
        try:
            with prioritized(Priority.REFILL):  # after a start all nodes ask, and no Pod waits
                place = await keeper.locate(node)
        except NodeNotReady:
            return None  # a change of the Node reports when its daemon has started
        if not keeper.recovered:
            return None  # no port leaves the map just because it is not known yet
        self._read_parked(key, keeper, place)
        written = self._written.setdefault(key, _Written())
        if delay := self._left(written.looked, GAP):
            return delay
        written.looked = self._now()
        await self._write_ports(key, node, await keeper.ports_to_park(place))
        return await self._write_counts(key, written, keeper, place)

    async def _delete(self, key: Key) -> None:
        """Delete the KuryrPortPool of a time when the node had pools: it unplugs their ports."""
        known = self._kuryrportpools.get(key)
        if known is None or known.deleting:
            return
        LOG.info("node %s has no pools any more; its KuryrPortPool is deleted", key)
        try:
            answer = await self._context.kube.delete(KURYRPORTPOOLS, key, uid=known.uid)
        except errors.KubeConflict as error:
            raise errors.Wait(f"KuryrPortPool {key} is another one by now", delay=1.0) from error
        self._kuryrportpools.learn(answer)

    def _left(self, since: float | None, gap: float) -> float:
        """Return the seconds left until ``gap`` seconds have passed since then."""
        return 0.0 if since is None else max(0.0, since + gap - self._now())

    async def _close(self, key: Key) -> None:
        """Empty the pools of a Node that is gone, as a live read confirms."""
        live = await self._context.kube.find(NODES, key)
        if live is not None:
            raise errors.Wait(f"node {key} is not in the cache", delay=1.0)
        for keeper in self._keepers:
            keeper.close_node(key.name)

    async def _close_unlocated(self) -> float | None:
        """Empty the pools of Nodes that went away while no controller worked.

        A Node whose place nobody knows yet may have any of the pools, but not for ever: its
        daemon may never start.
        """
        gap = self._patience.locate_node
        written = self._written.setdefault(UNLOCATED, _Written())
        if delay := self._left(written.looked, gap):
            return delay
        written.looked = now = self._now()
        since = self._unlocated_since = self._unlocated_since or now
        for node in await self._context.kube.list_views(NODES):
            try:
                self._hosts.check(node.name)
                keeper = self._driver.part_of(node)
                if isinstance(keeper, KeepsPorts):
                    await keeper.locate(node)
            except HostShared:
                continue
            except errors.Refused:
                if now - since < self._patience.unlocated_node:
                    return gap  # the pools may be this node's
        self._unlocated_since = None
        for keeper in self._keepers:
            keeper.close_unlocated()
        return None

    def _read_parked(self, key: Key, keeper: KeepsPorts, place: str) -> None:
        """Tell the driver which ports the node has parked, and which it was told to unplug."""
        known = self._kuryrportpools.get(key)
        parked = known.parked if known is not None else frozenset()
        ports = known.ports if known is not None else {}
        leaving = frozenset(port_id for port_id, entry in ports.items() if not entry.keep)
        keeper.set_parked(place, parked, leaving)

    async def _write_ports(self, key: Key, node: Node, ports: list[ParkablePort]) -> None:
        """Bring the map of ports up to date."""
        known = self._kuryrportpools.get(key)
        changes = _changes(known, ports)
        if not changes:
            return
        kube = self._context.kube
        if known is None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
            meta = {"name": key.name, "ownerReferences": [owner]}
            body = {"metadata": meta, "spec": {"ports": changes}}
            answer = await kube.create(KURYRPORTPOOLS, body)
        else:
            patch = {"metadata": {"uid": known.uid}, "spec": {"ports": changes}}
            answer = await kube.merge_patch(KURYRPORTPOOLS, key, patch)
        self._kuryrportpools.learn(answer)

    async def _write_counts(
        self, key: Key, written: _Written, keeper: KeepsPorts, place: str
    ) -> float | None:
        """Bring the numbers up to date.

        :returns: seconds until that may be done; None: they are up to date.
        """
        known = self._kuryrportpools.get(key)
        pools = [pool.numbers._asdict() for pool in keeper.pools(place)]
        counts = {shown: sum(pool[name] for pool in pools) for shown, name in SHOWN.items()}
        if known is None or (written.uid, written.counts) == (known.uid, counts):
            return None
        if delay := self._left(written.counted, self._patience.pool_counts):
            return delay
        written.counted = self._now()
        patch = {"metadata": {"uid": known.uid}, "status": counts}
        answer = await self._context.kube.merge_patch(
            KURYRPORTPOOLS, key, patch, subresource="status"
        )
        self._kuryrportpools.learn(answer)
        written.uid, written.counts = known.uid, counts
        return None

    def about(self, key: Key) -> Reference | None:
        return node_reference(self._nodes.get(key))


def _what_matters(node: Node | None) -> object:
    return node and (node.uid, node.host_id, node.addresses, node.pod_vif)


def _of_pool(key: Key, old: KuryrPortPool | None, new: KuryrPortPool | None) -> Iterable[Key]:
    if old is not None and new is not None:
        same = (old.uid, old.parked, old.ports) == (new.uid, new.parked, new.ports)
        return () if same else (key,)
    return (key,)


def _changes(known: KuryrPortPool | None, ports: list[ParkablePort]) -> Json:
    """Compute the difference between the map and the pools, as a merge patch of the map."""
    there = dict(known.ports) if known is not None else {}
    changes: Json = {}
    for parkable in ports:
        port_id = parkable.port.id
        entry = there.pop(port_id, None)
        kept = entry is not None and entry.keep
        if kept and parkable.leaving:
            changes[port_id] = {"state": REMOVE}
        elif not kept and not parkable.leaving and parkable.mtu is not None:
            changes[port_id] = _entry(parkable)
    return changes | dict.fromkeys(there)


def _entry(parkable: ParkablePort) -> Json:
    port = parkable.port
    addresses = [address for _, address in port.fixed_ips]
    return park_entry(port.mac, addresses, parkable.mtu, port.bridge)
