"""What tests look at beside the state: which requests came, and the moment something changed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

# Seconds in which a condition comes true, unless something is wrong: also where others have the
# processors.
PATIENCE = 120.0


class Call(NamedTuple):
    """One request: `what` is the path with its ids replaced by names."""

    method: str
    what: str
    path: str
    query: str


class Calls(list[Call]):
    """All requests in the order of their arrival."""

    def count(self, method: str | None = None, what: str | None = None) -> int:
        """How many requests had this method and this kind of path (None: any)."""
        return sum(method in (None, call.method) and what in (None, call.what) for call in self)

    def by_kind(self) -> Counter[tuple[str, str]]:
        """How many requests of each (method, kind of path)."""
        return Counter((call.method, call.what) for call in self)


class Changes:
    """Waits for conditions, which are looked at again whenever something happened."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], object], asyncio.Future[None]]] = []

    def notify(self) -> None:
        """Something happened: wake those whose condition is true now."""
        for predicate, future in self._waiting:
            if not future.done() and predicate():
                future.set_result(None)

    async def wait_for(self, predicate: Callable[[], object], *, within: float = PATIENCE) -> None:
        """Return when the predicate is true; TimeoutError after `within` seconds."""
        if predicate():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (predicate, future)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(within):
                await future
        finally:
            self._waiting.remove(entry)
