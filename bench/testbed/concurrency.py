"""Concurrent work on many objects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def for_each(
    items: Iterable[T], act: Callable[[T], Awaitable[R]], *, at_once: int
) -> list[R]:
    """Apply a function to all items, at most `at_once` at a time.

    :returns: the results in the order of the items.
    """
    left = iter(enumerate(items))
    results: dict[int, R] = {}

    async def work() -> None:
        for number, item in left:
            results[number] = await act(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())
    return [results[number] for number in sorted(results)]
