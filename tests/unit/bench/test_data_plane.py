"""Reports of plugged ports to the fake cloud, and the statuses that follow."""

import asyncio

from bench.testbed.data_plane import DataPlaneClient
from bench.testbed.fake_cloud import DataPlane
from tests.kit.fakes.cloud import FakeCloud


class Cloud:
    """A cloud that records the reports and yields while it takes one."""

    def __init__(self):
        self.reports = []

    async def plug(self, ports, after):
        self.reports.append(("plug", ports, after))
        await asyncio.sleep(0)

    async def unplug(self, ports):
        self.reports.append(("unplug", ports))


async def make_port(cloud):
    network = cloud.add_network("pods", "10.1.0.0/24")
    body = {"network_id": network["id"], "name": "", "device_id": "", "tags": []}
    port = cloud.store.add("port", body | {"project_id": cloud.project_id, "status": "DOWN"})
    return port["id"]


async def test_a_plugged_port_is_active_after_its_time_and_down_once_it_is_unplugged():
    async with FakeCloud() as cloud:
        port, data_plane = await make_port(cloud), DataPlane(cloud)
        data_plane.plug([port], 0.01)
        assert cloud.ports[port]["status"] == "DOWN"
        await cloud.wait_for(lambda: cloud.ports[port]["status"] == "ACTIVE")
        data_plane.unplug([port])
        assert cloud.ports[port]["status"] == "DOWN"


async def test_a_port_that_was_unplugged_before_its_time_stays_down():
    async with FakeCloud() as cloud:
        early, late, data_plane = await make_port(cloud), await make_port(cloud), DataPlane(cloud)
        data_plane.plug([early], 0.01)
        data_plane.plug([late], 0.02)
        data_plane.unplug([early])
        await cloud.wait_for(lambda: cloud.ports[late]["status"] == "ACTIVE")
        assert cloud.ports[early]["status"] == "DOWN"


async def test_ports_plugged_at_once_are_reported_in_one_call():
    cloud = Cloud()
    client = DataPlaneClient(cloud, 0.0)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        reporting = group.create_task(client.run())
        async with asyncio.TaskGroup() as nodes:
            nodes.create_task(client.plug(["a"]))
            nodes.create_task(client.plug(["b"]))
            nodes.create_task(client.unplug(["c"]))
        reporting.cancel()
    assert cloud.reports == [("plug", ["a", "b"], 0.0), ("unplug", ["c"])]
