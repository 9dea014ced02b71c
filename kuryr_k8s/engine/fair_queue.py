"""A queue in which everybody who waits has the same share, however much one has put there."""

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items of several owners: the owners take turns, and each one's items are in order."""

    def __init__(self) -> None:
        self._items: dict[Hashable, deque[T]] = {}  # the owner whose turn it is comes first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return bool(self._items)

    @property
    def owners(self) -> int:
        """The number of owners that wait."""
        return len(self._items)

    def append(self, owner: Hashable, item: T) -> None:
        """Put an item behind the others of its owner."""
        self._items.setdefault(owner, deque()).append(item)
        self._count += 1

    def peek(self) -> T:
        """Return what :meth:`popleft` would take.

        :raises IndexError: the queue is empty.
        """
        if not self._items:
            raise IndexError("nobody waits")
        return next(iter(self._items.values()))[0]

    def popleft(self) -> T:
        """Take the next item of the owner whose turn it is.

        :raises IndexError: the queue is empty.
        """
        if not self._items:
            raise IndexError("nobody waits")
        owner, items = next(iter(self._items.items()))
        del self._items[owner]
        item = items.popleft()
        self._count -= 1
        if items:
            self._items[owner] = items
        return item

    def discard(self, owner: Hashable, item: T) -> None:
        """Remove an item, if it is there."""
        items = self._items.get(owner)
        if items is None or item not in items:
            return
        items.remove(item)
        self._count -= 1
        if not items:
            del self._items[owner]
