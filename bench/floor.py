"""The least that N KuryrPorts can take: `python -m bench.floor N --config-file …`.

As many creates and status patches as N Pods need, by the product's own client with the product's
own concurrency, and nothing else: no watch, no Neutron, no decision. Prints the seconds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median
from typing import Any

from bench.objects import UUID, kuryrport_status, pod_network, sample_port
from kuryr_k8s import config
from kuryr_k8s.handlers.vif import kuryrport_of
from kuryr_k8s.k8s import connect
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.resources import KURYRPORTS, Key
from kuryr_k8s.model.pod import Pod

Json = dict[str, Any]
NAMESPACE = "floor"
AT_ONCE = 32  # [kubernetes] pod_workers
STEADY = 20  # KuryrPorts, in all


async def seconds(arguments: list[str], number: int) -> float:
    """Seconds for `number` KuryrPorts, after a few that warm the connections up; the median of
    as many measurements as make it steady."""
    kube = await connect.connect(config.load(arguments, "floor"))
    try:
        await _write_all(kube, [f"warm-{i}" for i in range(AT_ONCE)])
        found = []
        for play in range(max(1, STEADY // number)):
            begun = time.monotonic()
            await _write_all(kube, [f"pod-{play}-{i}" for i in range(number)])
            found.append(time.monotonic() - begun)
        return median(found)
    finally:
        await kube.close()


async def _write_all(kube: KubeApi, names: list[str]) -> None:
    left = iter(enumerate(names))
    network = pod_network()

    async def work() -> None:
        for number, name in left:
            made = await kube.create(KURYRPORTS, _body(name, number))
            status = kuryrport_status(sample_port(number), network)
            patch = {"metadata": {"uid": made["metadata"]["uid"]}, "status": status}
            await kube.merge_patch(KURYRPORTS, Key(NAMESPACE, name), patch, subresource="status")

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


def _body(name: str, number: int) -> Json:
    """As the product writes it, but for the finalizers: they would only make cleaning slow."""
    pod = Pod(
        namespace=NAMESPACE,
        name=name,
        uid=UUID(number),
        resource_version="1",
        node="node0",
        phase="Pending",
        host_network=False,
        deleting=False,
        config_hash=None,
    )
    body = kuryrport_of(pod, "floor")
    del body["metadata"]["finalizers"]
    return body


if __name__ == "__main__":
    print(asyncio.run(seconds(sys.argv[2:], int(sys.argv[1]))))
