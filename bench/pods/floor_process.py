"""The least that N KuryrPorts can take: `python -m bench.pods.floor_process N --config-file …`.

As many creates and status patches as N Pods need, then as many deletions and removals of the two
finalizers, by the product's own client with the product's own concurrency, and nothing else: no
watch, no Neutron, no decision. Prints the seconds of both.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

from bench.testbed.objects import UUID, kuryrport_status, pod_network, sample_port
from kuryr_k8s import config
from kuryr_k8s.handlers.pods.vif import kuryrport_of
from kuryr_k8s.k8s import connect
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.resources import KURYRPORTS, Key
from kuryr_k8s.model.annotations import KURYRPORT_FINALIZER, NODE_FINALIZER
from kuryr_k8s.model.pod import Pod

Json = dict[str, Any]
NAMESPACE = "floor"
AT_ONCE = 32  # [kubernetes] pod_workers
STEADY = 20  # KuryrPorts, in all


async def seconds(arguments: list[str], number: int) -> tuple[float, float]:
    """Seconds in which `number` KuryrPorts come, and go, after a few that warm the connections
    up; medians of as many measurements as make them steady."""
    kube = await connect.connect(config.load(arguments, "floor"))
    try:
        await _play(kube, [f"warm-{i}" for i in range(AT_ONCE)])
        plays = range(max(1, STEADY // number))
        names = [[f"pod-{play}-{i}" for i in range(number)] for play in plays]
        coming, going = zip(*[await _play(kube, some) for some in names], strict=True)
        return median(coming), median(going)
    finally:
        await kube.close()


async def _play(kube: KubeApi, names: list[str]) -> tuple[float, float]:
    uids: dict[str, str] = {}
    network = pod_network()

    async def write(number: int, name: str) -> None:
        made = await kube.create(KURYRPORTS, _body(name, number))
        uids[name] = made["metadata"]["uid"]
        status = kuryrport_status(sample_port(number), network)
        patch = {"metadata": {"uid": uids[name]}, "status": status}
        await kube.merge_patch(KURYRPORTS, Key(NAMESPACE, name), patch, subresource="status")

    async def remove(_number: int, name: str) -> None:
        key, uid = Key(NAMESPACE, name), uids[name]
        await kube.delete(KURYRPORTS, key, uid=uid)
        for finalizer, known in (
            (NODE_FINALIZER, (KURYRPORT_FINALIZER, NODE_FINALIZER)),
            (KURYRPORT_FINALIZER, (KURYRPORT_FINALIZER,)),
        ):
            await kube.remove_finalizers(KURYRPORTS, key, finalizer, uid=uid, known=known)

    return await _each(names, write), await _each(names, remove)


async def _each(names: list[str], act: Callable[[int, str], Awaitable[None]]) -> float:
    """Do it for all; the seconds."""
    left = iter(enumerate(names))
    begun = time.monotonic()

    async def work() -> None:
        for number, name in left:
            await act(number, name)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    return time.monotonic() - begun


def _body(name: str, number: int) -> Json:
    """As the product writes it."""
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
    return kuryrport_of(pod, "floor")


if __name__ == "__main__":
    print(*asyncio.run(seconds(sys.argv[2:], int(sys.argv[1]))))
