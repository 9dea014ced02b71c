"""Many Pods, many pools: Neutron is asked little, Pods go first, and nobody starves."""

import asyncio

from kuryr_k8s.cloud.neutron.specific_ports import ON_TRUNK
from kuryr_k8s.handlers.nodes.ports import NODE_DEVICE_OWNER
from kuryr_k8s.model.annotations import HOST_ID
from tests.kit.confs import NODE
from tests.kit.fakes.faults import Hang
from tests.kit.ledger import counts_of, named, settle
from tests.lives.pools import options

QUIET = {"neutron_defaults": {"sweep_interval": "600"}}
LONG = 180.0  # seconds for hundreds of Pods
POOLS = 100
BURST = 21


def pool(**changes):
    return options(**changes) | QUIET


def patient(groups):
    """Calls may last: those that are held do not free their places by themselves."""
    groups["kubernetes"]["lease_duration"] = "600"
    groups["neutron"] = {"call_timeout": "300"}
    return groups


async def add_pods(stage, names, node=NODE, **where):
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(stage.cluster.add_pod(name, node=node, **where))


async def until_named(stage, count):
    async def recorded():
        return len(await named(stage)) == count

    await stage.until(recorded, within=LONG)


async def until_waiting(stage, app, count):
    """Wait until so many Pods wait for the pools: however long it takes them to come, they find
    what they would find if they came at once."""

    async def wait():
        return counts_of(app)["waiting"] == count

    await stage.until(wait, within=LONG)


class Overlap(Hang):
    """How many requests are on their way at once, at the most."""

    def __init__(self):
        super().__init__()
        self.most = self._now = 0

    async def __call__(self, request, proceed):
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            return await super().__call__(request, proceed)
        finally:
            self._now -= 1


async def test_hundred_pods_on_a_cold_pool_cost_a_few_creations_side_by_side(stage):
    overlap = Overlap()
    stage.cloud.latency = {"POST": 0.3}
    stage.cloud.faults.add(method="POST", path=r"/ports$", times=None, action=overlap)
    limits = {"ports_pool_min": "5", "ports_pool_batch": "10"}
    async with stage.controller(**patient(pool(**limits))) as app:
        try:
            await add_pods(stage, [f"web-{number}" for number in range(100)])
            await until_waiting(stage, app, 100)
        finally:
            overlap.release()
        await until_named(stage, 100)
        await settle(stage, lambda: app)
        assert stage.cloud.calls.count("POST", "/v2.0/ports") <= 40
        assert overlap.most >= 4
        assert 105 <= len(stage.cloud.ports) <= 110


async def test_storm_of_new_pools_serves_pods_first_and_fills_within_the_budget(stage):
    for number in range(POOLS):
        stage.cloud.add_host(f"host-{number}")
        await stage.cluster.add_node(f"storm-{number}", annotations={HOST_ID: f"host-{number}"})
    stage.cloud.latency = {"POST": 0.1}
    held = Hang()
    stage.cloud.faults.add(method="POST", path=r"/ports$", times=None, action=held)
    limits = {"ports_pool_min": "5", "ports_pool_batch": "10", "ports_pool_fill_rate": "10"}
    async with stage.controller(**patient(pool(**limits))) as app:
        now = asyncio.get_running_loop().time
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(POOLS):
                    node = f"storm-{number}"
                    group.create_task(stage.cluster.add_pod(f"web-{number}", node=node))
            await until_waiting(stage, app, POOLS)
        finally:
            begun = now()
            held.release()
        free = await stage.until(lambda: _available_when_served(app), within=LONG)
        seconds = now() - begun
        assert free <= BURST + 10 * seconds, f"{free} in {seconds} s"
        assert stage.cloud.calls.count("POST", "/v2.0/ports") <= POOLS


async def _available_when_served(app):
    """How many ports there are for Pods to come, and one more, once every Pod has its own."""
    counts = counts_of(app)
    if counts["in_use"] < POOLS or counts["waiting"]:
        return None
    return 1 + counts["available"] + counts["creating"]


async def test_pool_that_starves_holds_up_no_other(stage):
    """The creations for one node are never answered, those for another go on."""
    await stage.cluster.add_node("node2", annotations={HOST_ID: "chassis2"})
    held = Hang()

    async def of_the_other(request, proceed):
        ports = await request.json()
        ports = ports.get("ports") or [ports["port"]]
        # those that come together may go in one request, whatever their node
        if all(port["binding:host_id"] == "chassis2" for port in ports):
            return await held(request, proceed)
        return await proceed()

    stage.cloud.faults.add(method="POST", path=r"/ports$", times=None, action=of_the_other)
    async with stage.controller(**patient(pool())):
        await add_pods(stage, [f"starving-{number}" for number in range(40)], "node2")
        await held.reached.wait()
        try:
            for number in range(5):
                await stage.cluster.add_pod(f"web-{number}", node=NODE)
                await stage.until_plugged_in(f"web-{number}")
        finally:
            held.release()
        await until_named(stage, 45)


async def test_restart_writes_nothing_and_asks_for_all_ports_once(stage):
    limits = {"ports_pool_min": "300", "ports_pool_batch": "300", "ports_pool_fill_rate": "1000"}
    async with stage.controller(**pool(**limits)) as app:
        await add_pods(stage, [f"web-{number}" for number in range(300)])
        await until_named(stage, 300)
        await settle(stage, lambda: app)
    count = len(stage.cloud.ports)
    assert count >= 600
    writes, calls = len(stage.cloud.faults.writes), len(stage.cloud.calls)
    kube_writes = len(stage.proxy.faults.writes)
    limits["ports_pool_min"] = "299"  # no port is to be made for the one that is taken
    async with stage.controller(**pool(**limits)) as app:
        await settle(stage, lambda: app)
        await stage.cluster.add_pod("another", node=NODE)
        await stage.until_plugged_in("another")
        assert len(stage.cloud.faults.writes) == writes
    asked = [
        call
        for call in stage.cloud.calls[calls:]
        if call.what == "/v2.0/ports"
        and not any(mark in call.query for mark in (NODE_DEVICE_OWNER, ON_TRUNK))
    ]
    lists = [call for call in asked if "not-tags-any" not in call.query]
    assert len(lists) == count // 500 + 1
    assert len(asked) <= len(lists) + 1  # the other is for ports that have no tags
    ours = stage.proxy.faults.writes[kube_writes:]
    assert [write.method for write in ours if "another" not in write.path] == ["POST"]


async def test_unchanged_cluster_writes_nothing_and_asks_nothing(stage):
    soon = {"patience": {"pooled_port_name": 0.5, "pool_counts": 1.0}}
    async with stage.controller(**pool(port_names="true", park_ports="true") | soon) as app:
        await stage.cluster.add_pod("web", node=NODE)
        port = f"{stage.cluster.namespace}/web"
        await stage.until_plugged_in("web")
        await stage.activate("web")
        await settle(stage, lambda: app)

        async def told_of():
            """The Node's ports and their numbers as they are, and the Pod's name on its port."""
            shown = await stage.client.find(f"/apis/openstack.org/v1/kuryrportpools/{NODE}")
            if shown is None or port not in [
                neutron_port["name"] for neutron_port in stage.cloud.ports.values()
            ]:
                return False
            counts = counts_of(app)
            expected = (counts["available"], counts["in_use"], counts["target"])
            status = shown.get("status", {})
            return (
                shown["spec"]["ports"].keys() == stage.cloud.ports.keys()
                and tuple(map(status.get, ("available", "inUse", "target"))) == expected
            )

        await stage.until(told_of)
        asked, told = len(stage.cloud.calls), len(stage.proxy.faults.writes)
        rounds = _rounds(app)
        await stage.until(lambda: _reached(app, rounds + 4))
        assert len(stage.cloud.calls) == asked
        assert len(stage.proxy.faults.writes) == told
        assert port in [port["name"] for port in stage.cloud.ports.values()]


def _rounds(app):
    labels = {"handler": "pool-neutron", "outcome": "success"}
    return app.registry.get_sample_value("kuryr_reconciles_total", labels) or 0


async def _reached(app, count):
    return _rounds(app) >= count
