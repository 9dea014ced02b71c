"""A cluster full of Pods at work, put into the API server and the cloud before any timing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import aiohttp

from bench.testbed.fake_cloud import login
from bench.testbed.objects import kubelet_pod, kubelet_status, kuryrport_status, pod_network
from bench.testbed.testbed import TAG, Stage
from kuryr_k8s.drivers.vif import neutron_plan as vif_plan
from kuryr_k8s.handlers.pods.vif import kuryrport_of
from kuryr_k8s.k8s.resources import KURYRPORTS, PODS
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.pod import Pod

Json = dict[str, Any]
T = TypeVar("T")
PER_NAMESPACE, PER_NODE = 1000, 100
BULK = 200  # ports in one creation
AT_ONCE = 48


class Population:
    """`number` Pods with their KuryrPorts and ports, as an earlier controller left them."""

    def __init__(self, stage: Stage, number: int) -> None:
        self._stage = stage
        self._number = number
        self._network = pod_network(stage.facts["network"], stage.facts["subnets"])

    async def create(self) -> None:
        """All of it, in the order in which it came to be."""
        for namespace in range(-(-self._number // PER_NAMESPACE)):
            await self._stage.cluster.add_namespace(f"shop{namespace}")
        pods = await _each(range(self._number), self._create_pod)
        ports = await self._create_ports(pods)
        await _each(zip(pods, ports, strict=True), self._create_kuryrport)

    async def size(self) -> int:
        """Bytes of one of the Pods, as the API server sends it."""
        items = await self._stage.admin.request("GET", PODS.path(), limit=1)
        return len(json.dumps(items["items"][0], separators=(",", ":")))

    async def _create_pod(self, number: int) -> Json:
        name = f"shop-frontend-5d4f8c7b9-{number:05x}"
        namespace, node = f"shop{number // PER_NAMESPACE}", f"node{number // PER_NODE}"
        return await self._stage.admin.create(kubelet_pod(name, namespace, node))

    async def _create_ports(self, pods: list[Json]) -> list[Json]:
        """Ports in Neutron, with all that the controller writes on them."""
        facts = self._stage.facts
        bodies = [
            {
                "network_id": facts["network"],
                "project_id": facts["project"],
                "fixed_ips": [{"subnet_id": subnet} for subnet in facts["subnets"]],
                "device_id": pod["metadata"]["uid"],
                "device_owner": vif_plan.DEVICE_OWNER,
                "binding:host_id": pod["spec"]["nodeName"],
                "security_groups": [facts["group"]],
                "name": f"{pod['metadata']['namespace']}/{pod['metadata']['name']}",
                "tags": [TAG, vif_plan.interface_tag(DEFAULT_IFNAME)],
            }
            for pod in pods
        ]
        made: list[Json] = []
        async with aiohttp.ClientSession() as session:
            headers = {"X-Auth-Token": await login(session, facts["neutron"])}
            url = f"{facts['url']}/v2.0/ports"
            for at in range(0, len(bodies), BULK):
                body = {"ports": bodies[at : at + BULK]}
                async with session.post(url, json=body, headers=headers) as response:
                    response.raise_for_status()
                    made += (await response.json())["ports"]
        return made

    async def _create_kuryrport(self, pair: tuple[Json, Json]) -> None:
        pod, port = pair
        admin, meta = self._stage.admin, pod["metadata"]
        running = kubelet_status([ip["ip_address"] for ip in port["fixed_ips"]])
        await admin.patch(
            PODS.path(meta["namespace"], meta["name"], "status"), {"status": running}
        )
        kind = {"apiVersion": KURYRPORTS.api_version, "kind": KURYRPORTS.kind}
        await admin.create(kind | kuryrport_of(Pod.read(pod), "an-earlier-life"))
        status = kuryrport_status(port, self._network, active=True)
        path = KURYRPORTS.path(meta["namespace"], meta["name"], "status")
        await admin.patch(path, {"status": status})


async def _each(items: Iterable[Any], act: Callable[[Any], Awaitable[T]]) -> list[T]:
    """Do it for all, some at once; the results in the order of the items."""
    left = iter(enumerate(items))
    results: dict[int, T] = {}

    async def work() -> None:
        for number, item in left:
            results[number] = await act(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    return [results[number] for number in sorted(results)]
