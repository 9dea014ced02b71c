"""A cluster full of running Pods, created in the API server and the cloud before a start."""

from __future__ import annotations

import json
from typing import Any

import aiohttp

from bench.testbed.cloud_control import login
from bench.testbed.concurrency import for_each
from bench.testbed.objects import kubelet_pod, kubelet_status, kuryrport_status, pod_network
from bench.testbed.testbed import TAG, Testbed
from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.drivers.base import DEVICE_OWNER
from kuryr_k8s.drivers.vif import neutron_plan as vif_plan
from kuryr_k8s.handlers.pods.vif import kuryrport_of
from kuryr_k8s.k8s.resources import KURYRPORTS, PODS
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.pod import Pod

Json = dict[str, Any]
PER_NAMESPACE, PER_NODE = 1000, 100
BULK = 200  # ports in one creation
AT_ONCE = 48  # requests under way


class Population:
    """`number` Pods with their KuryrPorts and ports, as an earlier controller left them."""

    def __init__(self, testbed: Testbed, number: int) -> None:
        self._testbed = testbed
        self._number = number
        self._network = pod_network(testbed.facts["network"], testbed.facts["subnets"])

    async def create(self) -> None:
        """Create Pods, ports and KuryrPorts, in the order of a real cluster."""
        for namespace in range(-(-self._number // PER_NAMESPACE)):
            await self._testbed.cluster.add_namespace(f"shop{namespace}")
        pods = await for_each(range(self._number), self._create_pod, at_once=AT_ONCE)
        ports = await self._create_ports(pods)
        pairs = zip(pods, ports, strict=True)
        await for_each(pairs, self._create_kuryrport, at_once=AT_ONCE)

    async def size(self) -> int:
        """Return the bytes of a Pod as the API server sends it."""
        items = await self._testbed.admin.request("GET", PODS.path(), limit=1)
        return len(json.dumps(items["items"][0], separators=(",", ":")))

    async def _create_pod(self, number: int) -> Json:
        name = f"shop-frontend-5d4f8c7b9-{number:05x}"
        namespace, node = f"shop{number // PER_NAMESPACE}", f"node{number // PER_NODE}"
        return await self._testbed.admin.create(kubelet_pod(name, namespace, node))

    async def _create_ports(self, pods: list[Json]) -> list[Json]:
        """Create the ports as the controller does.

        :returns: the ports in the order of the Pods.
        """
        facts = self._testbed.facts
        identity = await self._testbed.admin.request("GET", "/api/v1/namespaces/kube-system")
        mark = ClusterMark(identity["metadata"]["uid"]).tag
        bodies = [
            {
                "network_id": facts["network"],
                "project_id": facts["project"],
                "fixed_ips": [{"subnet_id": subnet} for subnet in facts["subnets"]],
                "device_id": pod["metadata"]["uid"],
                "device_owner": DEVICE_OWNER,
                "binding:host_id": pod["spec"]["nodeName"],
                "security_groups": [facts["group"]],
                "name": f"{pod['metadata']['namespace']}/{pod['metadata']['name']}",
                "tags": [TAG, mark, vif_plan.interface_tag(DEFAULT_IFNAME)],
            }
            for pod in pods
        ]
        ports: list[Json] = []
        async with aiohttp.ClientSession() as session:
            headers = {"X-Auth-Token": await login(session, facts["neutron"])}
            url = f"{facts['url']}/v2.0/ports"
            for start in range(0, len(bodies), BULK):
                body = {"ports": bodies[start : start + BULK]}
                async with session.post(url, json=body, headers=headers) as response:
                    response.raise_for_status()
                    ports += (await response.json())["ports"]
        return ports

    async def _create_kuryrport(self, pair: tuple[Json, Json]) -> None:
        pod, port = pair
        admin, meta = self._testbed.admin, pod["metadata"]
        running = kubelet_status([ip["ip_address"] for ip in port["fixed_ips"]])
        await admin.patch(
            PODS.path(meta["namespace"], meta["name"], "status"), {"status": running}
        )
        kind = {"apiVersion": KURYRPORTS.api_version, "kind": KURYRPORTS.kind}
        await admin.create(
            kind | kuryrport_of(Pod.read(pod), "an-earlier-controller", vouches=True)
        )
        status = kuryrport_status(port, self._network, active=True)
        path = KURYRPORTS.path(meta["namespace"], meta["name"], "status")
        await admin.patch(path, {"status": status})
