"""The loop that parks the ports of the Node's KuryrPortPool, and reports which are parked."""

import asyncio
import logging
from collections.abc import Sized
from typing import Any, Protocol

from kuryr_k8s import errors
from kuryr_k8s.cni.bindings.base import Settled
from kuryr_k8s.cni.bindings.parked_ports import ParkedPorts
from kuryr_k8s.cni.ovs.switch import InterfaceRow, OpenVSwitch
from kuryr_k8s.cni.patience import USUAL, Patience
from kuryr_k8s.k8s.resources import KURYRPORTPOOLS, Key, Resource
from kuryr_k8s.model.kuryrportpool import KuryrPortPool, PoolPort

LOG = logging.getLogger(__name__)
BATCH = 10  # ports in a transaction; the ADD of one of them waits for it
AFTER_REPAIR = 1.0  # seconds until the next look at ports whose interfaces Pods have
AFTER_ADDS = 0.25  # seconds until the next look whether ADDs are being done
LONGEST = 5.0  # seconds that parking waits for ADDs

Json = dict[str, Any]


class Cache(Protocol):
    """The part of an informer that parking needs."""

    synced: asyncio.Event

    def get(self, key: Key) -> KuryrPortPool | None:
        """Return an object as last reported."""

    def learn(self, item: Json | None) -> None:
        """Take in the server's answer to a write."""


class Api(Protocol):
    """The part of the API's client that parking needs."""

    async def find(self, resource: Resource[Any], key: Key) -> Json | None:
        """Read an object; None if it does not exist."""

    async def merge_patch(
        self, resource: Resource[Any], key: Key, patch: Json, *, subresource: str = ""
    ) -> Json:
        """Patch an object and return it."""


class Parking:
    """Reconciles one key, the Node's. It writes ``status.parked`` and nothing else."""

    def __init__(
        self,
        cache: Cache,
        api: Api,
        parked: ParkedPorts,
        switch: OpenVSwitch,
        *,
        adds: Sized,
        settled: Settled,
        patience: Patience = USUAL,
    ) -> None:
        self._cache = cache
        self._api = api
        self._parked = parked
        self._switch = switch
        self._adds = adds
        self._settled = settled
        self._look_again = patience.look_again
        self._interval = patience.status_interval
        self._mended_at = self._reported_at = float("-inf")
        self._waiting_since: float | None = None

    async def reconcile(self, key: Key) -> float | None:
        """Unpark what the pool does not want, report what is parked, and park some more.

        :returns: seconds until there is more to do.
        :raises errors.KuryrError: to be tried again.
        """
        self._require_knowledge()
        await self._mend()
        pool = self._cache.get(key)
        if unwanted := self._unwanted(pool):
            await self._parked.unpark(await self._confirmed(key, pool, unwanted))
        again = self._look_again
        reported = again if pool is None else await self._report(key, pool)
        parked = again if pool is None or pool.deleting else await self._park(pool)
        return min(reported, parked)

    def _require_knowledge(self) -> None:
        known = (self._cache.synced, self._switch.connected, self._settled)
        if not all(event.is_set() for event in known):
            raise errors.Wait("it is not known which ports are wanted or plugged", delay=0.5)

    async def _mend(self) -> None:
        """Mend at the start, and now and then: no event reports that a pair is gone."""
        now = asyncio.get_running_loop().time()
        if now - self._mended_at >= self._look_again:
            await self._parked.mend()
            self._mended_at = now

    def _unwanted(self, pool: KuryrPortPool | None) -> list[InterfaceRow]:
        return [row for row in self._parked.rows() if not keeps(pool, row.iface_id)]

    async def _confirmed(
        self, key: Key, pool: KuryrPortPool | None, rows: list[InterfaceRow]
    ) -> list[InterfaceRow]:
        """Return the rows that the pool marks to be removed, or that the server does not name.

        The cache may lag behind the KuryrPortPool that names them.
        """
        if pool is not None and all(row.iface_id in pool.ports for row in rows):
            return rows
        live = await self._api.find(KURYRPORTPOOLS, key)
        now = None if live is None else KuryrPortPool.read(live)
        return [row for row in rows if not keeps(now, row.iface_id)]

    async def _park(self, pool: KuryrPortPool) -> float:
        """Park a batch of ports, after the ADDs that are being done.

        :returns: seconds until there is more to do.
        """
        unplugged = self._unplugged(pool)
        # what a Pod has lost its row, and gets it back as an attachment
        missing = {i: port for i, port in unplugged.items() if not self._parked.occupied(i)}
        again = AFTER_REPAIR if len(missing) < len(unplugged) else self._look_again
        if not missing:
            self._waiting_since = None
            return again
        now = asyncio.get_running_loop().time()
        if self._waiting_since is None:
            self._waiting_since = now
        if len(self._adds) and now - self._waiting_since < LONGEST:
            return AFTER_ADDS
        await self._parked.park(dict(list(missing.items())[:BATCH]))
        if len(missing) <= BATCH:
            self._waiting_since = None
            return again
        return 0.0

    def _unplugged(self, pool: KuryrPortPool) -> dict[str, PoolPort]:
        plugged = {row.iface_id for row in self._switch.interfaces()}
        return {
            port_id: port
            for port_id, port in pool.ports.items()
            if port.keep and port_id not in plugged
        }

    async def _report(self, key: Key, pool: KuryrPortPool) -> float:
        """Write which of the pool's ports are plugged and installed, with or without a Pod.

        :returns: seconds until it may be written again.
        """
        ready = {row.iface_id for row in self._switch.interfaces() if row.installed}
        parked = ready & pool.ports.keys()
        if parked == pool.parked:
            return self._look_again
        now = asyncio.get_running_loop().time()
        if now - self._reported_at < self._interval:
            return self._interval - (now - self._reported_at)
        self._reported_at = now
        changes: dict[str, Json | None] = {port_id: {} for port_id in parked - pool.parked}
        changes |= dict.fromkeys(pool.parked - parked)
        patch = {"metadata": {"uid": pool.uid}, "status": {"parked": changes}}
        try:
            answer = await self._api.merge_patch(KURYRPORTPOOLS, key, patch, subresource="status")
        except (errors.KubeNotFound, errors.KubeConflict):
            LOG.debug("KuryrPortPool %s is gone, or has been replaced", key)
            return self._look_again
        self._cache.learn(answer)
        return self._interval


def keeps(pool: KuryrPortPool | None, port_id: str) -> bool:
    """Return whether the pool wants the port to stay plugged."""
    port = None if pool is None or pool.deleting else pool.ports.get(port_id)
    return port is not None and port.keep


def may_keep(cache: Cache, key: Key, port_id: str) -> bool:
    """Return whether the Node's pool may want the port to stay plugged.

    It may while the cache is empty: the port can be unparked afterwards.
    """
    return not cache.synced.is_set() or keeps(cache.get(key), port_id)
