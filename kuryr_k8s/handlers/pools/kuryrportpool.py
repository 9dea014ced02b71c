"""Node → KuryrPortPool: the ports that the node is to keep plugged, and what it says of them.

Written in batches, never because of one Pod: a port stays in the map while a Pod has it. One that
nobody will have any more is marked, and is deleted in Neutron when the node has unplugged it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.limit import Priority, prioritized
from kuryr_k8s.drivers.base import NodeNotReady, PooledPort, VIFPoolDriver
from kuryr_k8s.drivers.pools.port_pool import PortPool, pools_of
from kuryr_k8s.handlers.base import Handler, HandlerContext, Watch
from kuryr_k8s.k8s.events import Reference, node_reference
from kuryr_k8s.k8s.resources import KURYRPORTPOOLS, NODES, Key
from kuryr_k8s.model.kuryrportpool import REMOVE, KuryrPortPool, park_entry
from kuryr_k8s.model.pod import Node

Json = dict[str, Any]
GAP = 1.0  # seconds between two looks at a node's pools, and changes of its map
COUNTS_GAP = 10.0  # between two changes of the numbers
NOBODYS = Key("", "")  # pools of which it is not known which Node's they are
UNREADY = 60.0  # seconds until it is asked again where a Node is in the cloud
PATIENCE = 600.0  # seconds for which it may be that nobody knows


class KuryrPortPoolHandler(Handler):
    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._looked: dict[Key, float] = {}
        self._counts_written: dict[Key, float] = {}
        self._counts: dict[Key, tuple[str, Json]] = {}  # of the object with this uid
        self._nobodys_since: float | None = None
        for pool in pools_of(context.drivers[VIFPoolDriver]):
            pool.pools.changed = self._of_place(pool)

    def _of_place(self, pool: PortPool) -> Any:
        def changed(place: str) -> None:
            if name := pool.pools.nodes.get(place):
                self.wake(Key("", name))
            elif pool.is_open(place):
                self.wake(NOBODYS)

        return changed

    def watches(self) -> Sequence[Watch[Any]]:
        informers = self._context.informers
        return (
            Watch(informers.of(NODES), _of_node),
            Watch(informers.of(KURYRPORTPOOLS), _of_pool),
        )

    async def reconcile(self, key: Key) -> float | None:
        if key == NOBODYS:
            return await self._close_nobodys()
        node = self._context.informers.of(NODES).get(key)
        if node is None:
            await self._close(key)
            self._forget(key)
            return None
        pool = self._context.drivers[VIFPoolDriver].part_of(node)
        if not isinstance(pool, PortPool):
            return None
        try:
            with prioritized(Priority.REFILL):  # at a start all nodes ask, and no Pod waits
                place = await pool.place(node)
        except NodeNotReady:
            return None  # its daemon's word comes as a change of the Node
        if not pool.recovered:
            return None  # nothing is to leave the map because it is not known yet
        self._learn_parked(key, pool, place)
        if delay := _left(self._looked, key, GAP):
            return delay
        await pool.learn_networks(place)
        await self._write_ports(key, node, pool, place)
        return await self._write_counts(key, pool, place)

    async def _close(self, key: Key) -> None:
        """The node is gone, by a live read: so go its ports."""
        live = await self._context.kube.find(NODES, key)
        if live is not None:
            raise errors.Wait(f"node {key} is not in the cache", delay=1.0)
        for pool in pools_of(self._context.drivers[VIFPoolDriver]):
            pool.close_node(key.name)

    async def _close_nobodys(self) -> float | None:
        """Nodes may have gone while no controller worked; by a live list.

        A Node of which nobody knows where it is may be any pool's, but not for ever: its daemon
        may never come.
        """
        if delay := _left(self._looked, NOBODYS, UNREADY):
            return delay
        now = asyncio.get_running_loop().time()
        since = self._nobodys_since = self._nobodys_since or now
        pages = self._context.kube.list_pages(NODES, {})
        for node in [Node.read(item) async for items, _version in pages for item in items]:
            try:
                pool = self._context.drivers[VIFPoolDriver].part_of(node)
                if isinstance(pool, PortPool):
                    await pool.place(node)
            except errors.Refused:
                if now - since < PATIENCE:
                    return UNREADY  # they may be this one's
        self._nobodys_since = None
        for pool in pools_of(self._context.drivers[VIFPoolDriver]):
            pool.close_nobodys()
        return None

    def _forget(self, key: Key) -> None:
        for memory in (self._looked, self._counts_written, self._counts):
            memory.pop(key, None)

    def _learn_parked(self, key: Key, pool: PortPool, place: str) -> None:
        known = self._context.informers.of(KURYRPORTPOOLS).get(key)
        if known is None:
            pool.parked(place, frozenset(), frozenset())
        else:
            leaving = frozenset(port for port, entry in known.ports.items() if not entry.keep)
            pool.parked(place, known.parked, leaving)

    async def _write_ports(self, key: Key, node: Node, pool: PortPool, place: str) -> None:
        """Bring the map up to date."""
        known = self._context.informers.of(KURYRPORTPOOLS).get(key)
        changes = self._changes(known, pool, place)
        if not changes:
            return
        kube, informer = self._context.kube, self._context.informers.of(KURYRPORTPOOLS)
        if known is None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
            meta = {"name": key.name, "ownerReferences": [owner]}
            body = {"metadata": meta, "spec": {"ports": changes}}
            informer.learn(await kube.create(KURYRPORTPOOLS, body))
        else:
            patch = {"metadata": {"uid": known.uid}, "spec": {"ports": changes}}
            informer.learn(await kube.merge_patch(KURYRPORTPOOLS, key, patch))

    def _changes(self, known: KuryrPortPool | None, pool: PortPool, place: str) -> Json:
        """The difference between the map and the pools, as a merge patch of the map."""
        there = dict(known.ports) if known is not None else {}
        changes: Json = {}
        for spare in pool.to_park(place):
            entry = there.pop(spare.id, None)
            leaving = pool.is_leaving(spare.id)
            keep = entry is not None and entry.keep
            if not keep and not leaving and (made := _entry(pool, spare)):
                changes[spare.id] = made
            elif keep and leaving:
                changes[spare.id] = {"state": REMOVE}
        return changes | dict.fromkeys(there)

    async def _write_counts(self, key: Key, pool: PortPool, place: str) -> float | None:
        """Bring the numbers up to date; or seconds until that may be done."""
        known = self._context.informers.of(KURYRPORTPOOLS).get(key)
        counts = pool.pools.counts(place)
        if known is None or self._counts.get(key) == (known.uid, counts):
            return None
        if delay := _left(self._counts_written, key, COUNTS_GAP):
            return delay
        patch = {"metadata": {"uid": known.uid}, "status": counts}
        answer = await self._context.kube.merge_patch(
            KURYRPORTPOOLS, key, patch, subresource="status"
        )
        self._context.informers.of(KURYRPORTPOOLS).learn(answer)
        self._counts[key] = known.uid, counts
        return None

    def about(self, key: Key) -> Reference | None:
        return node_reference(self._context.informers.of(NODES).get(key))


def _of_node(key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
    def matters(node: Node | None) -> object:
        return node and (node.uid, node.host_id, node.addresses, node.pod_vif)

    return () if matters(old) == matters(new) else (key,)


def _of_pool(key: Key, old: KuryrPortPool | None, new: KuryrPortPool | None) -> Iterable[Key]:
    if old is not None and new is not None:
        same = (old.uid, old.parked, old.ports) == (new.uid, new.parked, new.ports)
        return () if same else (key,)
    return (key,)


def _entry(pool: PortPool, spare: PooledPort) -> Json | None:
    vif = pool.vif_of(spare)
    if vif is None or vif.network is None:
        return None  # nothing is known of its network before the first request
    addresses = [address for _, address in spare.fixed_ips]
    return park_entry(spare.mac, addresses, vif.network.mtu, spare.bridge)


def _left(done: dict[Key, float], key: Key, gap: float) -> float:
    """Seconds until it may be done again; none left means that it is done now."""
    now = asyncio.get_running_loop().time()
    left = done.get(key, now - gap) + gap - now
    if left > 0:
        return left
    done[key] = now
    return 0.0
