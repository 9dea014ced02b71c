"""The daemon of a node as far as the API server sees it: the same writes, nothing plugged."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bench.testbed.data_plane import Wiring
from kuryr_k8s.k8s.api import JSON_PATCH
from kuryr_k8s.k8s.resources import KURYRPORTS
from kuryr_k8s.model.annotations import KURYRPORT_FINALIZER, NODE_FINALIZER, NODE_NAME_LABEL
from tests.kit.fakes.observing import Changes
from tests.kit.kube import KubeClient, KubeRefusal

Json = dict[str, Any]
AT_ONCE = 32


class NodeDaemon:
    """Watches the KuryrPorts of one node and answers each as the real one does, at once.

    The three dictionaries say when, by name and on the clock time.monotonic(): `plugged` the
    VIFs were seen in the watch, `active` their mark was written, `gone` the deletion was seen.
    With `wiring` it tells the cloud what it plugs, and marks only what is ACTIVE by then.
    """

    finalizer = NODE_FINALIZER

    def __init__(self, client: KubeClient, node: str, wiring: Wiring | None = None) -> None:
        self._client = client
        self.node = node
        self._wiring = wiring
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._let_go: set[str] = set()  # uids whose deletion was answered
        self.changes = Changes()
        self.plugged: dict[str, float] = {}
        self.active: dict[str, float] = {}
        self.gone: dict[str, float] = {}

    def forget(self) -> None:
        """Begin with empty dictionaries."""
        for times in (self.plugged, self.active, self.gone):
            times.clear()
        self._let_go.clear()

    async def until_permitted(self) -> None:
        """The server takes a moment to know permissions that were just installed."""
        async with asyncio.timeout(30):
            while True:
                try:
                    await self._client.list(KURYRPORTS.path(), limit=1)
                except KubeRefusal:
                    await asyncio.sleep(0.05)
                else:
                    return

    async def run(self) -> None:
        """Until cancelled. The server ends a watch whose reader lags; then it goes on."""
        query = self._query()
        async with asyncio.TaskGroup() as group:
            while True:
                version = await self._list(group, query)
                while version:
                    version = await self._follow(group, query, version)

    def _query(self) -> dict[str, str]:
        return {"fieldSelector": f"spec.podNodeName={self.node}"}

    async def _list(self, group: asyncio.TaskGroup, query: dict[str, str]) -> str:
        """Take what is there, and note what went unseen; the version to go on from."""
        listed = await self._client.request("GET", KURYRPORTS.path(), **query)
        items = listed["items"]
        for item in items:
            self._take(group, "MODIFIED", item)
        names = {item["metadata"]["name"] for item in items}
        for name in self.plugged.keys() - names - self.gone.keys():
            self.gone[name] = time.monotonic()
        self.changes.notify()
        return str(listed["metadata"]["resourceVersion"])

    async def _follow(self, group: asyncio.TaskGroup, query: dict[str, str], version: str) -> str:
        """One watch; the version to go on from, empty where it is too old for the server."""
        query = query | {"timeoutSeconds": "3600", "resourceVersion": version}
        try:
            async for event in self._client.watch(KURYRPORTS.path(), **query):
                if event["type"] == "ERROR":
                    return ""
                self._take(group, event["type"], event["object"])
                version = event["object"]["metadata"]["resourceVersion"]
                self.changes.notify()
        except KubeRefusal as refusal:
            if refusal.status == 410:
                return ""
            raise
        return version

    def _take(self, group: asyncio.TaskGroup, kind: str, item: Json) -> None:
        meta, name = item["metadata"], item["metadata"]["name"]
        if kind == "DELETED":
            self.gone[name] = time.monotonic()
        elif "deletionTimestamp" in meta:
            finalizers = meta.get("finalizers", ())
            if self.finalizer in finalizers and meta["uid"] not in self._let_go:
                self._let_go.add(meta["uid"])
                group.create_task(self._release(item))
        elif (item.get("status") or {}).get("vifs") and name not in self.plugged:
            self.plugged[name] = time.monotonic()
            group.create_task(self._plug(item))

    async def _plug(self, item: Json) -> None:
        if self._wiring is not None:
            await self._wiring.plug(_ports(item))
        await self._mark(item)

    async def _mark(self, item: Json) -> None:
        active = {"vif": {"versioned_object.data": {"active": True}}}
        status = {"vifs": dict.fromkeys(item["status"]["vifs"], active)}
        patch = {"metadata": {"uid": item["metadata"]["uid"]}, "status": status}
        async with self._slots:
            await self._client.patch(f"{_path(item)}/status", patch)
        self.active[item["metadata"]["name"]] = time.monotonic()
        self.changes.notify()

    async def _release(self, item: Json) -> None:
        if self._wiring is not None:
            await self._wiring.unplug(_ports(item))
        meta = item["metadata"]
        place = f"/metadata/finalizers/{meta['finalizers'].index(NODE_FINALIZER)}"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
            {"op": "test", "path": place, "value": NODE_FINALIZER},
            {"op": "remove", "path": place},
        ]
        async with self._slots:
            await self._client.patch(_path(item), patch, JSON_PATCH)


class AncestorNode(NodeDaemon):
    """The node of kuryr-kubernetes: its daemon writes nothing.

    `active` is when the controller's mark was seen in the watch.
    """

    finalizer = KURYRPORT_FINALIZER  # the controller's, which asks no node

    def _query(self) -> dict[str, str]:
        return {"labelSelector": f"{NODE_NAME_LABEL}={self.node}"}

    def _take(self, group: asyncio.TaskGroup, kind: str, item: Json) -> None:
        super()._take(group, kind, item)
        name, vifs = item["metadata"]["name"], (item.get("status") or {}).get("vifs")
        if vifs and name not in self.active and all(_is_active(one) for one in vifs.values()):
            self.active[name] = time.monotonic()

    async def _mark(self, item: Json) -> None:
        """The controller asks Neutron until it may."""

    async def _release(self, item: Json) -> None:
        if self._wiring is not None:
            await self._wiring.unplug(_ports(item))


def _path(item: Json) -> str:
    return KURYRPORTS.path(item["metadata"]["namespace"], item["metadata"]["name"])


def _is_active(vif: Json) -> bool:
    return bool(vif["vif"]["versioned_object.data"]["active"])


def _ports(item: Json) -> list[str]:
    vifs = (item.get("status") or {}).get("vifs") or {}
    return [vif["vif"]["versioned_object.data"]["id"] for vif in vifs.values()]
