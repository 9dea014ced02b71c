"""The last check before a write: a controller that has lost the Lease sends nothing.

When a process was frozen, or its event loop was late, requests may still wait for a connection or
for its handshake. Another controller may be at work by then. So the check is made right before
the bytes are sent, not when the request is made. Preconditions protect what was sent before.
"""

from collections.abc import Callable
from typing import Any

import aiohttp

from kuryr_k8s import errors

READS = frozenset({"GET", "HEAD", "OPTIONS"})
READ_BUFFER = 2**21  # bytes: events of a watch may be large
TimeLeft = Callable[[], float]  # seconds in which writes may be sent


def time_for(method: str, time_left: TimeLeft | None, longest: float) -> float:
    """Return the seconds that a request may take from now on.

    :raises errors.KubeError: it is a write, and there is no time left for any.
    """
    if time_left is None or method in READS:
        return longest
    left = time_left()
    if left <= 0:
        raise errors.KubeError("not sent: another controller may be at work by now")
    return min(left, longest)


def open_session(time_left: TimeLeft | None) -> aiohttp.ClientSession:
    """Open a session that checks the time left right before each write is sent.

    This includes the repetitions that aiohttp makes by itself.
    """

    class Guarded(aiohttp.ClientRequest):
        async def send(self, conn: Any) -> aiohttp.ClientResponse:
            time_for(self.method, time_left, 0.0)
            return await super().send(conn)

        # A request with a body is sent as a whole by this one, in a task of its own: on a busy
        # loop, a while after ``send`` has returned.
        async def write_bytes(
            self, writer: Any, conn: Any, content_length: int | None = None
        ) -> None:
            try:
                time_for(self.method, time_left, 0.0)
            except errors.KubeError as error:
                conn.protocol.set_exception(error)  # raised where the answer is awaited
                return
            await super().write_bytes(writer, conn, content_length)

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),  # callers limit their calls
        read_bufsize=READ_BUFFER,
        request_class=Guarded,
    )
