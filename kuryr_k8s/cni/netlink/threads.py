"""Blocking work on the kernel, in a few threads of its own, never on the event loop's."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kuryr_k8s.cni.netlink.pyroute import NetlinkError
from kuryr_k8s.cni.netlink.wiring import LinkError

T = TypeVar("T")


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise the kernel's errors from the body as :class:`LinkError`."""
    try:
        yield
    except (NetlinkError, OSError) as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        raise LinkError(f"{os.strerror(code) if code else error}") from error


class Threads:
    """A bounded pool. Its threads may enter namespaces, and leave them when a call ends."""

    def __init__(self, name: str, limit: int) -> None:
        self._pool = ThreadPoolExecutor(limit, thread_name_prefix=name)

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function in a thread.

        Even a cancelled caller waits for the end of the call, so that whatever undoes the work
        comes after it.

        :raises LinkError: the kernel refused.
        """

        def call() -> T:
            with translated():
                return function()

        return await finish(asyncio.get_running_loop().run_in_executor(self._pool, call))

    def close(self) -> None:
        """Wait for the calls that have begun, and end the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)


async def finish(future: asyncio.Future[T]) -> T:
    """Wait for a future, even if cancelled; a cancellation takes effect when it is done.

    :returns: the future's result.
    """
    interrupted: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as cancelled:
            interrupted = cancelled
    if interrupted is not None:
        if not future.cancelled():
            future.exception()  # seen: the caller is no longer interested
        raise interrupted
    return future.result()
