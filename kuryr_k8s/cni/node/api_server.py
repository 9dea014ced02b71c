"""The addresses of the API server, whose name may resolve to others at any time."""

import asyncio
import contextlib
import ipaddress
import socket
import time
from typing import Protocol
from urllib.parse import urlsplit

from kuryr_k8s import errors

FRESH = 60.0  # seconds for which an address that was resolved is not asked for again
RESOLVE = 5.0  # seconds that a name server gets
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Api(Protocol):
    """The part of the API's client that this module needs."""

    async def way(self) -> tuple[str, ...]:
        """Return the URLs by which the server is reached."""


class ApiServer:
    """Resolves the names of the API server, and remembers the last answer."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._way: tuple[str, ...] = ()
        self._known: frozenset[Address] | None = None
        self._resolved_at = 0.0

    async def addresses(self) -> frozenset[Address]:
        """Return the addresses, those from before if they cannot be resolved now.

        :raises errors.KuryrError: they could never be resolved.
        """
        try:
            way = await self._api.way()
        except errors.NoCredentials:
            if self._known is None:
                raise
            return self._known
        fresh = time.monotonic() - self._resolved_at < FRESH
        if self._known is not None and way == self._way and fresh:
            return self._known
        try:
            self._known = await _resolve(way)
        except (OSError, TimeoutError) as error:
            if self._known is None or way != self._way:
                names = ", ".join(way)
                raise errors.KuryrError(f"cannot resolve {names}: {error}") from error
        self._way, self._resolved_at = way, time.monotonic()
        return self._known


async def _resolve(way: tuple[str, ...]) -> frozenset[Address]:
    found: set[Address] = set()
    for url in way:
        host = urlsplit(url).hostname or ""
        with contextlib.suppress(ValueError):
            found.add(ipaddress.ip_address(host))
            continue
        async with asyncio.timeout(RESOLVE):
            answers = await asyncio.get_running_loop().getaddrinfo(
                host, None, type=socket.SOCK_STREAM
            )
        found |= {ipaddress.ip_address(str(answer[4][0]).partition("%")[0]) for answer in answers}
    return frozenset(found)
