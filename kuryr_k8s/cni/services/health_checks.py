"""healthCheckNodePort: whether a balancer outside of the cluster may send a Service's traffic to
this node.

kube-proxy leads such traffic to Pods of its own node alone (externalTrafficPolicy: Local), and so
counts those. Here every node leads it to the Service's one load balancer, wherever the Pods are:
so every node answers alike, 200 as long as its node ports work, with one «endpoint» and the same
weight, and the balancer divides evenly, as it should. Whether there are Pods, Octavia knows. They
do not work before the first table is there, and after two failures of nft in a row; one alone
leaves the table as it is.
"""

import asyncio
import json
from collections.abc import Callable

from aiohttp import web

from kuryr_k8s import errors
from kuryr_k8s.cni.services.node_ports import Services
from kuryr_k8s.engine.listening import listen
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.node_port import ServiceAtNodes

ENDPOINTS = 1  # what a node leads a Service's traffic to: its load balancer


class HealthChecks:
    """Reconciles one key, the node's: answers at the ports that Services have for it.

    :param working: whether node ports lead where they should.
    """

    def __init__(self, services: Services, working: Callable[[], bool]) -> None:
        self._services = services
        self._working = working
        self._runner = web.ServerRunner(web.Server(self._answer, access_log=None))
        self._sites: dict[int, web.TCPSite] = {}
        self._served: dict[int, ServiceAtNodes] = {}

    async def run(self) -> None:
        """Until cancelled, when the ports are closed."""
        try:
            await asyncio.Event().wait()
        finally:
            await self._runner.cleanup()

    async def reconcile(self, _key: Key) -> None:
        """:raises errors.KuryrError: a port is taken; the others are served."""
        if self._runner.server is None:
            await self._runner.setup()
        self._served = {
            one.health_check_port: one
            for one in self._services.values()
            if one.health_check_port is not None
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
        """As kube-proxy words it, whatever was asked for."""
        port = request.transport.get_extra_info("sockname")[1] if request.transport else 0
        service = self._served.get(port)
        if service is None:  # it has just gone
            return web.Response(status=503)
        working = self._working()
        body = {
            "service": {"namespace": service.namespace, "name": service.name},
            "localEndpoints": ENDPOINTS,
            "serviceProxyHealthy": working,
        }
        return web.Response(
            text=json.dumps(body),
            status=200 if working else 503,
            content_type="application/json",
            headers={
                "X-Content-Type-Options": "nosniff",
                "X-Load-Balancing-Endpoint-Weight": str(ENDPOINTS),
            },
        )
