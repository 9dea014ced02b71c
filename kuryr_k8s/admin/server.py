"""The server of requests that change something, on a UNIX socket.

Only root and the user that the controller runs as may send them: the mode of the socket keeps
others out, and the kernel tells who has connected.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from kuryr_k8s import errors
from kuryr_k8s.engine.listening import listen
from kuryr_k8s.engine.unix_socket import bind, user_of

LOG = logging.getLogger(__name__)
ROOT = 0
Json = dict[str, Any]


class BadRequest(Exception):
    """The request makes no sense; the message says why."""


class AdminServer:
    """Serves routes on a socket to the users that may use it.

    ``serving`` is set as soon as it answers.

    :param users: the numeric ids of these users; root and our own, if None.
    """

    def __init__(
        self, path: Path, routes: Sequence[web.RouteDef], users: Collection[int] | None = None
    ) -> None:
        self.serving = asyncio.Event()
        self._path = path
        self._routes = routes
        self._users = {ROOT, os.geteuid()} if users is None else users

    async def run(self) -> None:
        """Serve until cancelled.

        :raises errors.ConfigError: the socket cannot be made.
        """
        app = web.Application(middlewares=[self._known_users])
        app.add_routes(self._routes)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        with contextlib.closing(self._bind()) as channel:
            try:
                await listen(web.SockSite(runner, channel))
                self.serving.set()
                await asyncio.Event().wait()
            finally:
                await runner.cleanup()

    def _bind(self) -> socket.socket:
        try:
            return bind(self._path)
        except errors.ConfigError as error:
            raise errors.ConfigError(f"[health_server] admin_socket: {error}") from error

    @web.middleware
    async def _known_users(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        channel = request.get_extra_info("socket")
        user = None if channel is None else user_of(channel)
        if user not in self._users:
            LOG.warning("refused %s %s of user %s", request.method, request.path, user)
            return refusal(403, "only root and the user of the controller may ask for that")
        return await handler(request)


def refusal(status: int, error: str) -> web.Response:
    """Return a refusal in the form that all routes use: ``{"error": "..."}``."""
    return web.json_response({"error": error}, status=status)


def require_lead(leads: Callable[[], bool]) -> None:
    """Refuse a request unless this controller leads.

    :raises web.HTTPServiceUnavailable: it does not.
    """
    if not leads():
        raise web.HTTPServiceUnavailable(text="this controller does not lead")


def answering(
    answer: Callable[[web.Request], Awaitable[Json]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Turn a function's answer, or the error that it raises, into a response."""

    async def handler(request: web.Request) -> web.Response:
        try:
            return web.json_response(await answer(request))
        except web.HTTPException as error:
            return refusal(error.status, error.text or "")
        except BadRequest as error:
            return refusal(400, str(error))
        except errors.KuryrError as error:
            return refusal(502, str(error))

    return handler
