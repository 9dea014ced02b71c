"""Go through many objects without keeping everything else from the event loop."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

AT_ONCE = 200  # objects looked at in one go
T = TypeVar("T")


async def in_portions(objects: Iterable[T]) -> AsyncIterator[T]:
    """Yield the objects as they are at the beginning, and let others work now and then."""
    for number, each in enumerate(tuple(objects)):
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
        yield each
