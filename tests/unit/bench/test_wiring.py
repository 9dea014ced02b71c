"""Ports that stand-ins of nodes plug: what Neutron is told, and when."""

import asyncio

from bench.testbed.data_plane import Wiring
from bench.testbed.fake_cloud import Wires
from tests.kit.fakes.cloud import FakeCloud


class Cloud:
    """Notes what it is told; takes its time for the first word."""

    def __init__(self):
        self.told = []

    async def plug(self, ports, after):
        self.told.append(("plug", ports, after))
        await asyncio.sleep(0)

    async def unplug(self, ports):
        self.told.append(("unplug", ports))


async def make_port(cloud):
    network = cloud.add_network("pods", "10.1.0.0/24")
    body = {"network_id": network["id"], "name": "", "device_id": "", "tags": []}
    port = cloud.store.add("port", body | {"project_id": cloud.project_id, "status": "DOWN"})
    return port["id"]


async def test_a_plugged_port_is_active_after_its_time_and_down_once_it_is_unplugged():
    async with FakeCloud() as cloud:
        port, wires = await make_port(cloud), Wires(cloud)
        wires.plug([port], 0.01)
        assert cloud.ports[port]["status"] == "DOWN"
        await cloud.wait_for(lambda: cloud.ports[port]["status"] == "ACTIVE")
        wires.unplug([port])
        assert cloud.ports[port]["status"] == "DOWN"


async def test_a_port_that_was_unplugged_before_its_time_stays_down():
    async with FakeCloud() as cloud:
        early, late, wires = await make_port(cloud), await make_port(cloud), Wires(cloud)
        wires.plug([early], 0.01)
        wires.plug([late], 0.02)
        wires.unplug([early])
        await cloud.wait_for(lambda: cloud.ports[late]["status"] == "ACTIVE")
        assert cloud.ports[early]["status"] == "DOWN"


async def test_what_is_plugged_at_once_is_told_in_one_call():
    cloud = Cloud()
    wiring = Wiring(cloud, 0.0)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        telling = group.create_task(wiring.run())
        async with asyncio.TaskGroup() as nodes:
            nodes.create_task(wiring.plug(["a"]))
            nodes.create_task(wiring.plug(["b"]))
            nodes.create_task(wiring.unplug(["c"]))
        telling.cancel()
    assert cloud.told == [("plug", ["a", "b"], 0.0), ("unplug", ["c"])]
