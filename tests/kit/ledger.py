"""The books of the pools: each port of the cloud is one Pod's, or lies in a pool.

What the pools have is asked of the controller's metrics; who has a port, of the KuryrPorts.
"""

import asyncio
import contextlib
from collections import Counter

from kuryr_k8s.model.annotations import NODE_FINALIZER
from tests.kit.fakes.observing import PATIENCE
from tests.kit.stage import KURYRPORTS

MOVING = ("creating", "returning", "leaving", "waiting")


def counts_of(app):
    """Ports of all pools of the controller, by state."""
    counts = Counter()
    for metric in app.registry.collect():
        if metric.name == "kuryr_pool_ports":
            for sample in metric.samples:
                counts[sample.labels["state"]] += int(sample.value)
    return counts


async def named(stage):
    """Ids of the ports that KuryrPorts name, each as often as it is named."""
    return [
        entry["vif"]["versioned_object.data"]["id"]
        for recorded in await stage.kuryrports()
        for entry in ((recorded.get("status") or {}).get("vifs") or {}).values()
    ]


@contextlib.asynccontextmanager
async def one_holder_each(stage):
    """Follow all KuryrPorts; yield a list of the moments at which two Pods had the same port.

    A Pod has a port until its node has let go of it.
    """
    found, holders = [], {}
    path = KURYRPORTS.format(stage.cluster.namespace)

    async def follow():
        async with contextlib.aclosing(stage.client.watch(path)) as events:
            async for event in events:
                note(event)

    def note(event):
        meta, status = event["object"]["metadata"], event["object"].get("status") or {}
        for port in [port for port, uids in holders.items() if meta["uid"] in uids]:
            holders[port].discard(meta["uid"])
        if event["type"] == "DELETED" or NODE_FINALIZER not in meta.get("finalizers", ()):
            return
        for entry in (status.get("vifs") or {}).values():
            port = entry["vif"]["versioned_object.data"]["id"]
            holders.setdefault(port, set()).add(meta["uid"])
            if len(holders[port]) > 1:
                found.append(f"port {port} was that of {len(holders[port])} Pods")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(follow())
        yield found
        task.cancel()


def pod_ports(stage):
    """The ids of all ports but those of virtual machines."""
    parents = {trunk["port_id"] for trunk in stage.cloud.trunks.values()}
    return set(stage.cloud.ports) - parents


async def mismatch(stage, app):
    """Why the books do not balance yet; empty when they do."""
    counts = counts_of(app)
    in_use = await named(stage)
    ports = pod_ports(stage)
    problems = [f"{state} {counts[state]}" for state in MOVING if counts[state]]
    if len(set(in_use)) != len(in_use):
        problems.append("a port is named twice")
    if not set(in_use) <= ports:
        problems.append("a KuryrPort names a port that is not there")
    if counts["in_use"] != len(in_use):
        problems.append(f"{counts['in_use']} in use, {len(in_use)} named by KuryrPorts")
    if counts["available"] + len(in_use) != len(ports):
        problems.append(
            f"{len(ports)} in Neutron, {len(in_use)} of Pods, {counts['available']} of pools"
        )
    if counts["available"] < counts["target"]:
        problems.append(f"{counts['available']} available of {counts['target']}")
    return "; ".join(problems)


async def settle(stage, current, *, within=PATIENCE):
    """Wait until Neutron's ports are those of Pods and pools, exactly, and none is on its way.

    :param current: gives the controller at work.
    """
    last = ""

    async def balanced():
        nonlocal last
        last = await mismatch(stage, current())
        return not last

    try:
        await stage.until(balanced, within=within)
    except TimeoutError:
        raise AssertionError(f"the pools never settled: {last}") from None
