"""Sizes of pages for which an API has time, as learned from those that came and did not come."""

PAGE = 500
FIRST_WAIT, LONGEST_WAIT = 4, 64  # pages that come before a size that failed is tried again


class PageSize:
    """The number of objects to ask for in a page of one kind.

    A page that does not come in time costs a whole deadline, and the API's limit of calls falls by
    it. So half as many are asked for next, and a size that failed is tried again only after ever
    more pages of the smaller one.
    """

    def __init__(self) -> None:
        self.value = PAGE
        self._ceiling = PAGE  # more did not come in time
        self._came = 0  # since the last that did not come
        self._wait = FIRST_WAIT

    def came(self, size: int, objects: int) -> None:
        """Note that a page of this size came with so many objects: only a full one tells."""
        if objects < size or size < self.value:
            return
        self._came += 1
        if size > self._ceiling:
            self._ceiling, self._wait = PAGE, FIRST_WAIT
        larger = min(2 * size, PAGE)
        if larger <= self._ceiling or self._came >= self._wait:
            self.value = larger

    def late(self, size: int) -> None:
        """Note that a page of this size did not come in time."""
        if size > self.value:
            return  # another one of this size was late before
        if self._came:
            self._wait = min(2 * self._wait, LONGEST_WAIT)
        self._came = 0
        self.value = max(1, size // 2)
        self._ceiling = size // 2 or PAGE  # it is not the size if a single object does not come
