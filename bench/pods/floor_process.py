"""The measurement of the floor: `python -m bench.pods.floor_process N --config-file …`.

The process creates N KuryrPorts and patches their status, then deletes them and removes their two
finalizers, with the product's client and concurrency. It watches nothing, decides nothing, and
does not call Neutron. It prints the seconds of the creation and of the deletion.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median
from typing import Any

from bench.testbed.concurrency import for_each
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
STEADY = 20  # KuryrPorts in all runs together, at the least


async def seconds(arguments: list[str], number: int) -> tuple[float, float]:
    """Measure the creation and the deletion of KuryrPorts.

    A few others come first, so that connections are warm.

    :returns: medians of as many measurements as make them steady.
    """
    kube = await connect.connect(config.load(arguments, "floor"))
    try:
        await _measure(kube, [f"warm-{i}" for i in range(AT_ONCE)])
        runs = range(max(1, STEADY // number))
        names = [[f"pod-{run}-{i}" for i in range(number)] for run in runs]
        measured = [await _measure(kube, names_of_run) for names_of_run in names]
        creation, deletion = zip(*measured, strict=True)
        return median(creation), median(deletion)
    finally:
        await kube.close()


async def _measure(kube: KubeApi, names: list[str]) -> tuple[float, float]:
    uids: dict[str, str] = {}
    network = pod_network()

    async def write(numbered: tuple[int, str]) -> None:
        number, name = numbered
        created = await kube.create(KURYRPORTS, _body(name, number))
        uids[name] = created["metadata"]["uid"]
        status = kuryrport_status(sample_port(number), network)
        patch = {"metadata": {"uid": uids[name]}, "status": status}
        await kube.merge_patch(KURYRPORTS, Key(NAMESPACE, name), patch, subresource="status")

    async def remove(name: str) -> None:
        key, uid = Key(NAMESPACE, name), uids[name]
        await kube.delete(KURYRPORTS, key, uid=uid)
        for finalizer, known in (
            (NODE_FINALIZER, (KURYRPORT_FINALIZER, NODE_FINALIZER)),
            (KURYRPORT_FINALIZER, (KURYRPORT_FINALIZER,)),
        ):
            await kube.remove_finalizers(KURYRPORTS, key, finalizer, uid=uid, known=known)

    begun = time.monotonic()
    await for_each(enumerate(names), write, at_once=AT_ONCE)
    written = time.monotonic()
    await for_each(names, remove, at_once=AT_ONCE)
    return written - begun, time.monotonic() - written


def _body(name: str, number: int) -> Json:
    """Return a KuryrPort as the product writes it."""
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
    return kuryrport_of(pod, "floor", vouches=True)


if __name__ == "__main__":
    print(*asyncio.run(seconds(sys.argv[2:], int(sys.argv[1]))))
