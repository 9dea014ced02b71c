"""Keystone, Neutron and Octavia as a process: `python -m bench.testbed.fake_cloud PORT HOSTS`.

Beside the cloud, the process serves what the benchmark needs on PORT: the cloud's address, its
delays, and the calls that it answered. HOSTS is the number of its hosts, named like the nodes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from aiohttp import web

from bench.testbed.cloud_control import Call
from bench.testbed.forwarding import ForwardingLog
from tests.kit.fakes.cloud import FakeCloud
from tests.kit.fakes.faults import Answer, Proceed

Json = dict[str, Any]
METHODS = ("GET", "POST", "PUT", "DELETE")
FURTHER = 3  # networks for further interfaces of Pods
# subnets of Services: range, gateway, and the addresses that Neutron chooses from by itself;
# the latter are outside the range of ClusterIPs
SERVICE_SUBNETS = (
    ("10.96.0.0/15", "10.97.0.1", "10.97.0.2", "10.97.255.254"),
    ("fd96::/64", "fd96::1:1", "fd96::1:2", "fd96::1:ffff"),
)


class CallLog:
    """A log of all calls but Keystone's.

    The fake cloud calls it as an action of its faults. While `outage` is a status, that is the
    answer to each of these calls.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.outage = 0

    async def __call__(self, request: web.Request, proceed: Proceed) -> web.StreamResponse:
        """Answer a request, and add the call to the log."""
        route = request.match_info.route.resource
        what = route.canonical if route is not None else request.path
        if what.startswith("/v3"):
            return await proceed()
        rows = 0
        try:
            if self.outage:
                raise Answer(self.outage)
            response = await proceed()
            if request.method == "GET":
                rows = _count_rows(response)
            return response
        finally:
            call = Call(request.method, what, request.query_string, time.monotonic(), rows)
            self.calls.append(call)


def _count_rows(response: web.StreamResponse) -> int:
    """Count the objects in the answer to a list; 0 in any other answer."""
    if not isinstance(response, web.Response) or not response.text:
        return 0
    lists = [value for value in json.loads(response.text).values() if isinstance(value, list)]
    return max(map(len, lists), default=0)


class DataPlane:
    """The nodes' switches: a plugged port becomes ACTIVE after a while, an unplugged one DOWN."""

    def __init__(self, cloud: FakeCloud) -> None:
        self._cloud = cloud
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def plug(self, ports: list[str], after: float) -> None:
        """Set the ports ACTIVE in `after` seconds."""
        loop = asyncio.get_running_loop()
        for port_id in ports:
            self._timers[port_id] = loop.call_later(after, self._set_status, port_id, "ACTIVE")

    def unplug(self, ports: list[str]) -> None:
        """Set the ports DOWN now."""
        for port_id in ports:
            timer = self._timers.pop(port_id, None)
            if timer is not None:
                timer.cancel()
            self._set_status(port_id, "DOWN")

    def _set_status(self, port_id: str, status: str) -> None:
        if port_id in self._cloud.ports:
            self._cloud.set_status(port_id, status)


class ControlServer:
    """The HTTP server through which the benchmark controls the cloud."""

    def __init__(self, cloud: FakeCloud, facts: Json) -> None:
        self._cloud = cloud
        self._facts = facts
        self._data_plane = DataPlane(cloud)
        self._log = CallLog()
        self._forwarding = ForwardingLog(cloud)
        cloud.faults.add(action=self._log, times=None)

    async def serve(self, port: int) -> None:
        """Serve on a port of 127.0.0.1 until cancelled."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/facts", self._get_facts),
                web.put("/delays", self._set_delays),
                web.put("/extension", self._add_extension),
                web.put("/quota", self._set_quota),
                web.put("/outage", self._set_outage),
                web.put("/plugged", self._plug),
                web.put("/unplugged", self._unplug),
                web.get("/calls", self._get_calls),
                web.delete("/calls", self._clear_calls),
                web.get("/ports", self._get_hosts_of_ports),
                web.get("/load-balancers", self._count_load_balancers),
                web.delete("/load-balancers", self._remove_load_balancers),
                web.put("/forwarding", self._switch_forwarding),
                web.get("/forwarding", self._get_forwarding),
            ]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await self._forwarding.run()

    async def _get_facts(self, _request: web.Request) -> web.Response:
        return web.json_response(self._facts)

    async def _set_delays(self, request: web.Request) -> web.Response:
        delays = await request.json()
        self._cloud.latency = dict.fromkeys(METHODS, delays["latency"])
        self._cloud.latency_per_port = delays["per_port"]
        self._cloud.octavia_pending = delays["pending"]
        self._cloud.octavia.progress.one_by_one = delays["one_by_one"]
        return web.json_response({})

    async def _add_extension(self, request: web.Request) -> web.Response:
        self._cloud.switch_extension((await request.json())["alias"], on=True)
        return web.json_response({})

    async def _set_quota(self, request: web.Request) -> web.Response:
        self._cloud.set_quota(self._facts["project"], port=(await request.json())["ports"])
        return web.json_response({})

    async def _set_outage(self, request: web.Request) -> web.Response:
        self._log.outage = (await request.json())["status"]
        return web.json_response({})

    async def _plug(self, request: web.Request) -> web.Response:
        body = await request.json()
        self._data_plane.plug(body["ports"], body["after"])
        return web.json_response({})

    async def _unplug(self, request: web.Request) -> web.Response:
        self._data_plane.unplug((await request.json())["ports"])
        return web.json_response({})

    async def _get_calls(self, _request: web.Request) -> web.Response:
        return web.json_response([vars(call) for call in self._log.calls])

    async def _clear_calls(self, _request: web.Request) -> web.Response:
        self._log.calls.clear()
        self._cloud.calls.clear()
        return web.json_response({})

    async def _get_hosts_of_ports(self, _request: web.Request) -> web.Response:
        return web.json_response([port["binding:host_id"] for port in self._cloud.ports.values()])

    async def _count_load_balancers(self, request: web.Request) -> web.Response:
        begin = f"{request.query['namespace']}/"
        names = [found["name"] for found in self._cloud.load_balancers.values()]
        return web.json_response(sum(name.startswith(begin) for name in names))

    async def _switch_forwarding(self, request: web.Request) -> web.Response:
        self._forwarding.switch(on=(await request.json())["on"])
        return web.json_response({})

    async def _get_forwarding(self, _request: web.Request) -> web.Response:
        return web.json_response([vars(state) for state in self._forwarding.states])

    async def _remove_load_balancers(self, request: web.Request) -> web.Response:
        name = request.query["name"]
        for load_balancer in tuple(self._cloud.load_balancers.values()):
            if load_balancer["name"] == name:
                self._cloud.octavia.remove(load_balancer["id"])
        return web.json_response({})


async def serve(port: int, hosts: int) -> None:
    """Serve a cloud with networks for Pods and for Services, in both families, until killed."""
    async with FakeCloud(hosts=[f"node{number}" for number in range(hosts)]) as cloud:
        cloud.keep_tags_at_creation(on=True)  # as with ML2's tag_ports_during_bulk_creation
        await ControlServer(cloud, _add_networks(cloud)).serve(port)


def _add_networks(cloud: FakeCloud) -> Json:
    """Add the networks and a security group.

    :returns: what the benchmark has to know of the cloud.
    """
    pods = cloud.add_network("pods", "10.64.0.0/14", "fd64::/64", mtu=1442)
    group = cloud.add_security_group("pods")
    further = [
        cloud.add_network(f"further-{number}", f"10.{80 + number}.0.0/16")["subnets"][0]
        for number in range(FURTHER)
    ]
    services = cloud.add_network("services")
    for cidr, gateway, first, last in SERVICE_SUBNETS:
        pools = [{"start": first, "end": last}]
        cloud.add_subnet(services["id"], cidr, gateway_ip=gateway, allocation_pools=pools)
    return {
        "url": cloud.url,
        "neutron": cloud.neutron_options(),
        "project": cloud.project_id,
        "network": pods["id"],
        "subnets": pods["subnets"],
        "further_subnets": further,
        "group": group["id"],
        "service_subnets": services["subnets"],
    }


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
