"""Keeps those ports parked that the Node's KuryrPortPool names, and says which are."""

import asyncio
import logging
from typing import Any, Protocol

from kuryr_k8s import errors
from kuryr_k8s.cni.bindings.ovs_parked import Parked
from kuryr_k8s.cni.ovs.switch import Interface, OpenVSwitch
from kuryr_k8s.cni.pods.attachments import Attachments
from kuryr_k8s.k8s.resources import KURYRPORTPOOLS, Key, Resource
from kuryr_k8s.model.kuryrportpool import KuryrPortPool, PoolPort

LOG = logging.getLogger(__name__)
BATCH = 10  # ports in a transaction; the ADD of one of them waits for it
PACE = 1.0  # seconds between two writes of the status
AFTER_ADDS = 0.25  # seconds; Pods that wait come first
LONGEST = 5.0  # seconds that parking waits for them
LOOK_AGAIN = 30.0  # seconds; for what no event tells

Json = dict[str, Any]


class Cache(Protocol):
    """The part of an informer that we need."""

    synced: asyncio.Event

    def get(self, key: Key) -> KuryrPortPool | None: ...
    def learn(self, item: Json | None) -> None: ...


class Api(Protocol):
    """The part of the API's client that we need."""

    async def find(self, resource: Resource, key: Key) -> Json | None: ...

    async def merge_patch(
        self, resource: Resource, key: Key, patch: Json, *, subresource: str = ""
    ) -> Json: ...


class Parking:
    """Reconciles one key, the Node's. It writes ``status.parked`` and nothing else."""

    def __init__(
        self,
        cache: Cache,
        api: Api,
        parked: Parked,
        switch: OpenVSwitch,
        attachments: Attachments,
    ) -> None:
        self._cache = cache
        self._api = api
        self._parked = parked
        self._switch = switch
        self._attachments = attachments
        self._mended_at = self._told_at = float("-inf")
        self._waiting_since: float | None = None

    async def reconcile(self, key: Key) -> float | None:
        """:raises errors.KuryrError: to be tried again."""
        self._require_knowledge()
        await self._mend()
        pool = self._cache.get(key)
        if unwanted := self._unwanted(pool):
            await self._parked.unpark(await self._confirmed(key, pool, unwanted))
        told = LOOK_AGAIN if pool is None else await self._tell(key, pool)
        made = await self._park(pool) if pool is not None and not pool.deleting else LOOK_AGAIN
        return min(told, made)

    def _require_knowledge(self) -> None:
        known = (self._cache.synced, self._switch.connected, self._attachments.settled)
        if not all(event.is_set() for event in known):
            raise errors.Wait("it is not known what is wanted, or what is plugged", delay=0.5)

    async def _mend(self) -> None:
        """At the start, and now and then: nobody tells us when a pair goes."""
        now = asyncio.get_running_loop().time()
        if now - self._mended_at >= LOOK_AGAIN:
            await self._parked.mend()
            self._mended_at = now

    def _unwanted(self, pool: KuryrPortPool | None) -> list[Interface]:
        return [row for row in self._parked.rows() if not keeps(pool, row.iface_id)]

    async def _confirmed(
        self, key: Key, pool: KuryrPortPool | None, rows: list[Interface]
    ) -> list[Interface]:
        """Those of the rows that are marked to be removed; or that are named nowhere, by the
        server's own word: a cache may lag behind the KuryrPortPool that names them.
        """
        if pool is not None and all(row.iface_id in pool.ports for row in rows):
            return rows
        live = await self._api.find(KURYRPORTPOOLS, key)
        now = None if live is None else KuryrPortPool.read(live)
        return [row for row in rows if not keeps(now, row.iface_id)]

    async def _park(self, pool: KuryrPortPool) -> float:
        """Park some; seconds until there is more to do."""
        missing = self._missing(pool)
        if not missing:
            self._waiting_since = None
            return LOOK_AGAIN
        now = asyncio.get_running_loop().time()
        if self._waiting_since is None:
            self._waiting_since = now
        if len(self._attachments.flights) and now - self._waiting_since < LONGEST:
            return AFTER_ADDS
        await self._parked.park(dict(list(missing.items())[:BATCH]))
        if len(missing) <= BATCH:
            self._waiting_since = None
            return LOOK_AGAIN
        return 0.0

    def _missing(self, pool: KuryrPortPool) -> dict[str, PoolPort]:
        plugged = {row.iface_id for row in self._switch.interfaces()}
        return {
            port_id: port
            for port_id, port in pool.ports.items()
            if port.keep and port_id not in plugged
        }

    async def _tell(self, key: Key, pool: KuryrPortPool) -> float:
        """Write what is plugged and installed of the ports that the pool names, whether a Pod has
        them or not; seconds until that may be done again.
        """
        ready = {row.iface_id for row in self._switch.interfaces() if row.installed}
        parked = ready & pool.ports.keys()
        if parked == pool.parked:
            return LOOK_AGAIN
        now = asyncio.get_running_loop().time()
        if now - self._told_at < PACE:
            return PACE - (now - self._told_at)
        self._told_at = now
        changes: dict[str, Json | None] = {port_id: {} for port_id in parked - pool.parked}
        changes |= dict.fromkeys(pool.parked - parked)
        patch = {"metadata": {"uid": pool.uid}, "status": {"parked": changes}}
        try:
            answer = await self._api.merge_patch(KURYRPORTPOOLS, key, patch, subresource="status")
        except (errors.KubeNotFound, errors.KubeConflict):
            LOG.debug("KuryrPortPool %s is gone, or another", key)
            return LOOK_AGAIN
        self._cache.learn(answer)
        return PACE


def keeps(pool: KuryrPortPool | None, port_id: str) -> bool:
    """Does the pool want the port to stay plugged?"""
    port = None if pool is None or pool.deleting else pool.ports.get(port_id)
    return port is not None and port.keep


def may_keep(cache: Cache, key: Key, port_id: str) -> bool:
    """Does the Node's pool? Yes while nobody knows: it can be unparked afterwards."""
    return not cache.synced.is_set() or keeps(cache.get(key), port_id)
