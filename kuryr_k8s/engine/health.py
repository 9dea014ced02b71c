"""The HTTP server of /livez, /readyz and /metrics, on the loopback address by default.

A program is alive if its event loop turns: an answer is the proof. It is ready if its checks hold;
no check calls Kubernetes or OpenStack. Programs add routes of their own, which change nothing:
there are no accounts here.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from kuryr_k8s import errors
from kuryr_k8s.engine.listening import listen


class HealthServer:
    """The server of a program's health and metrics.

    ``serving`` is set as soon as it answers.

    :param checks: functions that tell whether the program is ready, by name.
    :param routes: are served as well.
    """

    def __init__(
        self,
        address: str,
        port: int,
        checks: Mapping[str, Callable[[], bool]],
        registry: CollectorRegistry,
        routes: Sequence[web.RouteDef] = (),
    ) -> None:
        self.serving = asyncio.Event()
        self._address = address
        self._port = port
        self._checks = checks
        self._registry = registry
        self._routes = routes

    async def run(self) -> None:
        """Serve until cancelled.

        :raises errors.ConfigError: the port is taken.
        """
        app = web.Application()
        app.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                *self._routes,
            ]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await listen(web.TCPSite(runner, self._address, self._port))
            self.serving.set()
            await asyncio.Event().wait()
        except OSError as error:
            raise errors.ConfigError(
                f"cannot serve health on {self._address}:{self._port}: {error}"
            ) from error
        finally:
            await runner.cleanup()

    async def _livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        results = {name: check() for name, check in self._checks.items()}
        lines = [f"[{'+' if ok else '-'}] {name}\n" for name, ok in results.items()]
        return web.Response(text="".join(lines), status=200 if all(results.values()) else 503)

    async def _metrics(self, _request: web.Request) -> web.Response:
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
