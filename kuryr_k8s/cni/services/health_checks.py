"""Answers to health checks of Services (healthCheckNodePort).

By them a load balancer outside of the cluster learns whether this node takes a Service's traffic.
kube-proxy sends such traffic only to Pods of its own node (externalTrafficPolicy: Local), and so
counts them. Here every node sends it to the Service's load balancer in Octavia, wherever the Pods
are. So all nodes answer alike: 200 with one «endpoint» and the same weight, so that the outer
balancer distributes evenly, as long as their node ports work and the Service has an endpoint that
is ready. Those that terminate serve as long as there is no other, but a balancer is to go
elsewhere (KEP-1669). At an address of the node that has no node ports, the answer is 503.
"""

import asyncio
import json
from collections.abc import Callable, Sequence

from aiohttp import web

from kuryr_k8s import errors
from kuryr_k8s.cni.parts import Job, Loop, Part
from kuryr_k8s.cni.services.node_ports import Services
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.listening import listen
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.node_port import ServiceAtNodes

KEY = Key("", "health checks")  # the only one


class HealthChecks(Part):
    """Reconciles a single key: answers at the health check ports of Services.

    :param working: tells whether node ports forward at an address of the node.
    :param has_ready: tells whether an endpoint of the Service is ready.
    """

    def __init__(
        self,
        services: Services,
        working: Callable[[str], bool],
        has_ready: Callable[[Key], bool],
    ) -> None:
        self._services = services
        self._working = working
        self._has_ready = has_ready
        self._runner = web.ServerRunner(web.Server(self._answer, access_log=None))
        self._sites: dict[int, web.TCPSite] = {}
        self._served: dict[int, ServiceAtNodes] = {}
        self._controller = Controller("health-checks", self.reconcile, workers=1)
        services.subscribe(lambda _key, _old, _new: self._controller.queue.add(KEY))

    def loops(self) -> Sequence[Loop]:
        """Return the loop that opens and closes ports, and the one that serves them."""
        return [self._controller, Job("health-check-ports", self.run)]

    async def run(self) -> None:
        """Serve until cancelled, then close the ports."""
        try:
            await asyncio.Event().wait()
        finally:
            await self._runner.cleanup()

    async def reconcile(self, _key: Key) -> None:
        """Open and close ports as Services ask for them.

        :raises errors.KuryrError: a port is taken; the others are served.
        """
        if self._runner.server is None:
            await self._runner.setup()
        self._served = {
            service.health_check_port: service
            for service in self._services.values()
            if service.health_check_port is not None
        }
        for port in self._sites.keys() - self._served.keys():
            await self._sites.pop(port).stop()
        failed = []
        for port in self._served.keys() - self._sites.keys():
            site = web.TCPSite(self._runner, None, port)
            try:
                await listen(site)
                self._sites[port] = site
            except OSError as error:
                await site.stop()
                failed.append(f"{port}: {error.strerror or error}")
        if failed:
            raise errors.KuryrError(f"healthCheckNodePort {', '.join(failed)}")

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        """Answer any request in the format of kube-proxy."""
        if request.transport is None:  # the client has just gone
            return web.Response(status=503)
        address, port, *_ = request.transport.get_extra_info("sockname")
        service = self._served.get(port)
        if service is None:  # its Service has just gone
            return web.Response(status=503)
        working = self._working(address)
        # the load balancer of the Service, if there is anything behind it
        endpoints = int(self._has_ready(Key(service.namespace, service.name)))
        body = {
            "service": {"namespace": service.namespace, "name": service.name},
            "localEndpoints": endpoints,
            "serviceProxyHealthy": working,
        }
        return web.Response(
            text=json.dumps(body),
            status=200 if working and endpoints else 503,
            content_type="application/json",
            headers={
                "X-Content-Type-Options": "nosniff",
                "X-Load-Balancing-Endpoint-Weight": str(endpoints),
            },
        )
