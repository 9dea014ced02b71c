"""The stand-in of a node's daemon: it writes what the daemon writes, and plugs nothing."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bench.testbed.data_plane import DataPlaneClient
from bench.testbed.watch import follow
from kuryr_k8s.k8s.api import JSON_PATCH
from kuryr_k8s.k8s.resources import KURYRPORTS
from kuryr_k8s.model.annotations import NODE_FINALIZER
from tests.kit.fakes.observing import Changes
from tests.kit.kube import KubeClient, KubeRefusal

Json = dict[str, Any]
AT_ONCE = 32  # requests under way


class NodeDaemon:
    """A stand-in that watches the KuryrPorts of its node and answers each at once.

    Three dictionaries hold times of time.monotonic() by name: `plugged` when the VIFs were seen in
    the watch, `active` when their mark was written, `gone` when the deletion was seen. With a data
    plane the stand-in reports what it plugs, and marks a VIF once its port is ACTIVE.
    """

    finalizer = NODE_FINALIZER

    def __init__(
        self, client: KubeClient, node: str, data_plane: DataPlaneClient | None = None
    ) -> None:
        self._client = client
        self.node = node
        self._data_plane = data_plane
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._releasing: set[str] = set()  # uids of KuryrPorts whose deletion was answered
        self.changes = Changes()
        self.plugged: dict[str, float] = {}
        self.active: dict[str, float] = {}
        self.gone: dict[str, float] = {}

    def reset(self) -> None:
        """Clear all times."""
        for times in (self.plugged, self.active, self.gone):
            times.clear()
        self._releasing.clear()

    async def wait_for_permission(self) -> None:
        """Wait until the API server knows permissions that were just installed."""
        async with asyncio.timeout(30):
            while True:
                try:
                    await self._client.list(KURYRPORTS.path(), limit=1)
                except KubeRefusal:
                    await asyncio.sleep(0.05)
                else:
                    return

    async def run(self) -> None:
        """Watch and answer until cancelled."""
        async with asyncio.TaskGroup() as group:

            def listed(kuryrports: list[Json]) -> None:
                for kuryrport in kuryrports:
                    self._take(group, "MODIFIED", kuryrport)
                names = {kuryrport["metadata"]["name"] for kuryrport in kuryrports}
                for name in self.plugged.keys() - names - self.gone.keys():
                    self.gone[name] = time.monotonic()
                self.changes.notify()

            def changed(event: str, kuryrport: Json) -> None:
                self._take(group, event, kuryrport)
                self.changes.notify()

            path = KURYRPORTS.path()
            await follow(self._client, path, self._query(), listed=listed, changed=changed)

    def _query(self) -> dict[str, str]:
        return {"fieldSelector": f"spec.podNodeName={self.node}"}

    def _take(self, group: asyncio.TaskGroup, event: str, kuryrport: Json) -> None:
        meta, name = kuryrport["metadata"], kuryrport["metadata"]["name"]
        if event == "DELETED":
            self.gone[name] = time.monotonic()
        elif "deletionTimestamp" in meta:
            finalizers = meta.get("finalizers", ())
            if self.finalizer in finalizers and meta["uid"] not in self._releasing:
                self._releasing.add(meta["uid"])
                group.create_task(self._release(kuryrport))
        elif vifs_of(kuryrport) and name not in self.plugged:
            self.plugged[name] = time.monotonic()
            group.create_task(self._plug(kuryrport))

    async def _plug(self, kuryrport: Json) -> None:
        if self._data_plane is not None:
            await self._data_plane.plug(_port_ids(kuryrport))
        await self._mark(kuryrport)

    async def _mark(self, kuryrport: Json) -> None:
        """Write the mark `active` of all VIFs."""
        active = {"vif": {"versioned_object.data": {"active": True}}}
        status = {"vifs": dict.fromkeys(vifs_of(kuryrport), active)}
        patch = {"metadata": {"uid": kuryrport["metadata"]["uid"]}, "status": status}
        async with self._slots:
            await self._client.patch(f"{_path(kuryrport)}/status", patch)
        self.active[kuryrport["metadata"]["name"]] = time.monotonic()
        self.changes.notify()

    async def _release(self, kuryrport: Json) -> None:
        """Unplug the ports and let the KuryrPort go."""
        if self._data_plane is not None:
            await self._data_plane.unplug(_port_ids(kuryrport))
        await self._remove_finalizer(kuryrport)

    async def _remove_finalizer(self, kuryrport: Json) -> None:
        meta = kuryrport["metadata"]
        path = f"/metadata/finalizers/{meta['finalizers'].index(NODE_FINALIZER)}"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
            {"op": "test", "path": path, "value": NODE_FINALIZER},
            {"op": "remove", "path": path},
        ]
        async with self._slots:
            await self._client.patch(_path(kuryrport), patch, JSON_PATCH)


def vifs_of(kuryrport: Json) -> dict[str, Json]:
    """Return the VIFs in a KuryrPort's status, by interface name."""
    return (kuryrport.get("status") or {}).get("vifs") or {}


def _path(kuryrport: Json) -> str:
    return KURYRPORTS.path(kuryrport["metadata"]["namespace"], kuryrport["metadata"]["name"])


def _port_ids(kuryrport: Json) -> list[str]:
    return [vif["vif"]["versioned_object.data"]["id"] for vif in vifs_of(kuryrport).values()]
