"""Blocking work in a few threads of its own, never on the event loop's."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """A bounded pool. Its threads may enter namespaces, and leave them when a call is done."""

    def __init__(self, name: str, limit: int) -> None:
        self._pool = ThreadPoolExecutor(limit, thread_name_prefix=name)

    async def run(self, function: Callable[[], T]) -> T:
        """Call it in a thread. A cancelled caller waits for the end of the call all the same,
        so that whatever undoes the work comes after it.
        """
        return await finish(asyncio.get_running_loop().run_in_executor(self._pool, function))

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


async def finish(future: asyncio.Future[T]) -> T:
    """Wait for ``future``, cancelled or not; a cancellation takes effect when it is done."""
    interrupted: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as cancelled:
            interrupted = cancelled
    if interrupted is not None:
        if not future.cancelled():
            future.exception()  # seen: the caller is not interested any more
        raise interrupted
    return future.result()
