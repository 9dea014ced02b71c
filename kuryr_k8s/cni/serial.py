"""Mutual exclusion by key."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Serial:
    """Locks by key: bodies with the same key run one after another."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    def busy(self, key: str) -> bool:
        """Return whether a body with this key runs or waits."""
        return key in self._locks

    @contextlib.asynccontextmanager
    async def held(self, key: str) -> AsyncIterator[None]:
        """Run the body while no other body with this key runs."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]
