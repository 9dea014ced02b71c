"""The last check before a write: a controller that has lost the Lease sends nothing.

When a process was frozen, or its event loop was late, requests may still wait for a connection or
for its handshake. Another controller may be at work by then. So the check is made right before
the bytes are sent, not when the request is made. Preconditions protect what was sent before.
"""

from collections.abc import Callable
from typing import Any

import aiohttp
from kubernetes_asyncio.client import ApiClient

from kuryr_k8s import errors

READS = frozenset({"GET", "HEAD", "OPTIONS"})
READ_BUFFER = 2**21  # bytes, as in kubernetes_asyncio: events of a watch may be large
Deadline = Callable[[], float]


def time_for(method: str, deadline: Deadline | None, longest: float) -> float:
    """Return the seconds that a request may take from now on.

    :raises errors.KubeError: it is a write, and there is no time left for any.
    """
    if deadline is None or method in READS:
        return longest
    left = deadline()
    if left <= 0:
        raise errors.KubeError("not sent: another controller may be at work by now")
    return min(left, longest)


def guard(client: ApiClient, deadline: Deadline) -> None:
    """Check the deadline right before each write of the client is sent.

    This includes the repetitions that aiohttp makes by itself.
    """

    class Guarded(aiohttp.ClientRequest):
        async def send(self, conn: Any) -> aiohttp.ClientResponse:
            time_for(self.method, deadline, 0.0)
            return await super().send(conn)

    rest = client.rest_client
    connector = rest.pool_manager.connector
    rest.pool_manager.detach()
    rest.pool_manager = aiohttp.ClientSession(
        connector=connector, trust_env=True, read_bufsize=READ_BUFFER, request_class=Guarded
    )
