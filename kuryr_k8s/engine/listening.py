"""The start of an HTTP server that may be cancelled in its midst."""

import asyncio

from aiohttp import web


async def listen(site: web.BaseSite) -> None:
    """Start it. A caller who is cancelled waits until it has started, and can stop it then.

    asyncio's ``create_server`` that is cancelled leaves sockets that listen, and nobody has them.

    :raises OSError: the port is taken, or may not be had.
    """
    # not of a TaskGroup, which would cancel it
    starting = asyncio.ensure_future(site.start())  # noqa: TID251
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait([starting])
        if not starting.cancelled():
            starting.exception()  # looked at: nobody else will
        raise
