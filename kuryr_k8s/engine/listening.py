"""The start of an HTTP server, which may be cancelled while it runs."""

import asyncio

from aiohttp import web


async def listen(site: web.BaseSite) -> None:
    """Start a server. Even a cancelled caller waits until it has started, and can stop it then.

    If asyncio's ``create_server`` is cancelled, it leaves listening sockets that nobody can close.

    :raises OSError: the port is taken, or may not be used.
    """
    # without a TaskGroup, which would cancel it
    starting = asyncio.ensure_future(site.start())  # noqa: TID251
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait([starting])
        if not starting.cancelled():
            starting.exception()  # seen: nobody else asks for it
        raise
