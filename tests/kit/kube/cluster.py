"""What a component test holds: a namespace of its own, and the hands of the missing programs.

No scheduler, no kubelet and no controller-manager run, so `bind`, `set_phase` and `delete_pod`
do what they would do. Nodes, Pods, KuryrPorts and Services go away with the Cluster, finalizers or
not, since a controller that watches all namespaces must not see them in the next test.
"""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import yaml

from .client import KubeClient, KubeRefusal
from .objects import make_binding, make_namespace, make_node, make_pod, path_of

Json = dict[str, Any]

_NAMESPACED = (
    "/api/v1/namespaces/{}/pods",
    "/api/v1/namespaces/{}/services",
    "/apis/openstack.org/v1/namespaces/{}/kuryrports",
    "/apis/openstack.org/v1/namespaces/{}/neutronportpools",
    "/apis/openstack.org/v1/namespaces/{}/neutronports",
)
_OF_NODES = ("/apis/openstack.org/v1/kuryrportpools/{}", "/api/v1/nodes/{}")


class Cluster:
    """One test's part of the server."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.namespace = f"test-{uuid.uuid4().hex[:10]}"
        self._namespaces: list[str] = []
        self._nodes: list[str] = []

    async def add_namespace(self, name: str = "", **metadata: Any) -> str:
        """A namespace; the test's own if no name is given."""
        made = await self.client.create(make_namespace(name or self.namespace, **metadata))
        self._namespaces.append(made["metadata"]["name"])
        return self._namespaces[-1]

    async def install_crds(self, directory: Path) -> None:
        """Have the kinds of all manifests of a directory, and wait until they are served."""
        for crd in _manifests(directory):
            if await self.client.find(path_of(crd)) is None:
                await self.client.create(crd)
                await self._established(crd)

    async def add_node(self, name: str, **options: Any) -> Json:
        """A Node, see make_node."""
        node = await self.client.create(make_node(name, **options))
        self._nodes.append(name)
        return node

    async def add_pod(self, name: str, **options: Any) -> Json:
        """A Pod in the test's namespace, see make_pod."""
        return await self.client.create(
            make_pod(name, options.pop("namespace", self.namespace), **options)
        )

    async def bind(self, pod: Json, node: str) -> None:
        """The scheduler chooses a Node."""
        await self.client.request("POST", f"{path_of(pod)}/binding", make_binding(pod, node))

    async def set_phase(self, pod: Json, phase: str, **status: Any) -> Json:
        """The kubelet says how the Pod is."""
        body = {"status": {"phase": phase, **status}}
        return await self.client.patch(f"{path_of(pod)}/status", body)

    async def delete_pod(self, pod: Json) -> None:
        """The Pod is gone at once, if no finalizer holds it."""
        preconditions = {"uid": pod["metadata"]["uid"]}
        await self.client.delete(path_of(pod), gracePeriodSeconds=0, preconditions=preconditions)

    async def clean(self) -> None:
        """Remove what a controller would work on that watches all namespaces.

        Namespaces and what else is in them stay: proxies show no controller those of others.
        """
        async with asyncio.TaskGroup() as group:
            for path in (p.format(name) for name in self._namespaces for p in _NAMESPACED):
                group.create_task(self._empty(path))
            for path in (path.format(name) for name in self._nodes for path in _OF_NODES):
                group.create_task(self._delete(path))

    async def _delete(self, path: str) -> None:
        """Delete an object if it is there."""
        try:
            await self.client.delete(path)
        except KubeRefusal as refusal:
            if refusal.status != 404:
                raise

    async def _established(self, crd: Json) -> None:
        watch = self.client.watch(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            fieldSelector=f"metadata.name={crd['metadata']['name']}",
        )
        async for event in watch:
            conditions = event["object"].get("status", {}).get("conditions") or []
            if any(
                condition["type"] == "Established" and condition["status"] == "True"
                for condition in conditions
            ):
                break
        await watch.aclose()
        await self._served(crd)

    async def _served(self, crd: Json) -> None:
        """Even an established kind is refused for a moment, while its storage starts."""
        spec = crd["spec"]
        group = f"/apis/{spec['group']}/{spec['versions'][0]['name']}"
        async with asyncio.timeout(60):
            while True:
                try:
                    await self.client.list(f"{group}/{spec['names']['plural']}", limit=1)
                except KubeRefusal as refusal:
                    if refusal.status not in (404, 429, 503):
                        raise
                    await asyncio.sleep(0.05)
                else:
                    return

    async def _listed(self, path: str) -> list[Json]:
        """The objects of a collection; a server that has just started serves it in a moment."""
        async with asyncio.timeout(60):
            while True:
                try:
                    return await self.client.list(path)
                except KubeRefusal as refusal:
                    if refusal.status == 404:
                        return []
                    if refusal.status != 429:
                        raise
                    await asyncio.sleep(0.05)

    async def _empty(self, path: str) -> None:
        """Delete a collection, finalizers first."""
        for item in await self._listed(path):
            item_path = f"{path}/{item['metadata']['name']}"
            try:
                if item["metadata"].get("finalizers"):
                    await self.client.patch(item_path, {"metadata": {"finalizers": None}})
                await self.client.delete(item_path, gracePeriodSeconds=0)
            except KubeRefusal as refusal:
                if refusal.status != 404:
                    raise


def _manifests(directory: Path) -> list[Json]:
    paths = sorted(directory.glob("*.yaml"))
    found = [document for path in paths for document in yaml.safe_load_all(path.read_text())]
    return [
        document
        for document in found
        if document and document["kind"] == "CustomResourceDefinition"
    ]
