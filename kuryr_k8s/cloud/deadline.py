"""The end of a call: nothing is sent after it, and nobody waits any longer.

The timeout of requests is no such end: it counts for each address that is tried, and anew for each
piece of an answer. So connections ask right before they send anything, and the call's socket is
shut down when the time is over, which wakes the thread that waits for it.
"""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from keystoneauth1.session import TCPKeepAliveAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from kuryr_k8s import errors

_CURRENT = threading.local()


class NotSent(errors.CloudError):
    """The request was not sent because it was not allowed: it says nothing about the API."""


class Deadline:
    """The end of one call, which is made in a thread and awaited by a task.

    :param allowed: Returns the seconds that a request may take at this moment.
    """

    def __init__(self, allowed: Callable[[], float]) -> None:
        self._allowed = allowed
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._end: float | None = None
        self._over = False
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.given_up = self._loop.create_future()  # done if the time ended without a connection

    # In the thread of the call.

    @contextlib.contextmanager
    def sending(self) -> Iterator[float]:
        """Let connections of this thread send until the end, which the first request sets.

        :returns: The seconds that are left.
        :raises NotSent: No request may be sent at this moment.
        """
        seconds = self._require()
        if self._end is None:
            self._end = time.monotonic() + seconds
            self._loop.call_soon_threadsafe(self._arm, seconds)
        _CURRENT.deadline = self
        try:
            yield min(seconds, max(0.001, self._end - time.monotonic()))
        finally:
            _CURRENT.deadline = None
            self.release()

    def release(self) -> None:
        """Leave the connection to others: the end of this call must not cut theirs."""
        with self._lock:
            self._socket = None

    def check(self, connected: socket.socket | None) -> None:
        """Make sure that this connection may still send.

        :raises errors.CloudError: The call is over.
        """
        self._require()
        with self._lock:
            if self._over or self._end is None or time.monotonic() >= self._end:
                raise errors.CloudError("not sent: there was no connection in time")
            self._socket = connected

    def _require(self) -> float:
        seconds = self._allowed()
        if seconds <= 0:
            raise NotSent("not sent: another controller may lead by now")
        return seconds

    # In the loop.

    def _arm(self, seconds: float) -> None:
        if not self._over:
            self._timer = self._loop.call_later(seconds, self._cut)

    def _cut(self) -> None:
        with self._lock:
            self._over = True
            if self._socket is None:
                self.given_up.set_result(None)
                return
            with contextlib.suppress(OSError):  # TLS has nothing to say any more
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Let nothing be sent any more: nobody waits for the call."""
        with self._lock:
            self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self.given_up.cancel()


def _current() -> Deadline | None:
    """Return the deadline of the call that this thread makes."""
    deadline: Deadline | None = getattr(_CURRENT, "deadline", None)
    return deadline


class _Connection(HTTPConnection):
    """A connection that asks the deadline right before it sends anything."""

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        if (deadline := _current()) is not None:
            deadline.check(self.sock)
        super().send(data)


class _TLSConnection(_Connection, HTTPSConnection):
    """The same, with TLS."""


class _Releasing:
    """A pool of connections, to which the thread of a call returns its connection."""

    def _put_conn(self, conn: Any) -> None:
        if (deadline := _current()) is not None:
            deadline.release()  # before another thread can take it
        super()._put_conn(conn)  # type: ignore[misc]


class _Pool(_Releasing, HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(_Releasing, HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


class DeadlineAdapter(TCPKeepAliveAdapter):
    """An adapter of requests whose connections send nothing after the end of their call."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}
        return manager
