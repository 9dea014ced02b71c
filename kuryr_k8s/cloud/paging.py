"""Lists that are read to their end, whatever page size the server imposes.

Neutron and Octavia answer with no more objects than their ``pagination_max_limit``, however many
are asked for. A short page is therefore not the last one: the last one has no link to a next page.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from kuryr_k8s import errors
from kuryr_k8s.cloud.page_size import PAGE
from kuryr_k8s.cloud.transport import Query, Transport

Json = dict[str, Any]
T = TypeVar("T")
# Neutron does not sort the pages of all kinds by itself.
BY_ID = {"sort_key": "id", "sort_dir": "asc"}
NO_MARKER = (400, 404)  # statuses where the object that a page follows is gone
NO_ANSWER = (0, 504)  # statuses of a page that did not come in time
IDS = 180  # in a query: its URL then stays below the 8 KB that servers and proxies read


def in_queries(ids: Iterable[str]) -> Iterator[Sequence[str]]:
    """Divide ids among as many queries as they need."""
    wanted = list(ids)
    for start in range(0, len(wanted), IDS):
        yield wanted[start : start + IDS]


class Reading:
    """Lists that may take several attempts: a page that was read stays when a later one fails."""

    def __init__(self) -> None:
        self._lists: dict[tuple[str, str], _List] = {}
        self._noted: list[Any] = []

    def begin(self, note: Callable[[], T]) -> T:
        """Return what ``note`` has returned when the first attempt began."""
        if not self._noted:
            self._noted.append(note())
        noted: T = self._noted[0]
        return noted

    @property
    def rows(self) -> int:
        """The number of objects read so far, in all lists."""
        return sum(len(each.found) for each in self._lists.values())

    def of(self, path: str, query: Query) -> "_List":
        """Return the list as far as it has been read."""
        key = path, str(sorted(query.items()))
        return self._lists.setdefault(key, _List(path, query))


async def read_all(
    transport: Transport,
    path: str,
    query: Query,
    *,
    page: int = PAGE,
    reading: Reading | None = None,
) -> list[Json]:
    """List all objects that match.

    The next page is asked for by our own query and a marker, not by the link: Octavia's links lack
    the filters, and the address in a link need not be the one that we reach the service at.

    :param query: If it has ``fields``, ``id`` is one of them.
    :param page: The most objects that are asked for at once.
    :param reading: Where what was read stays; the same list goes on there after an error.
    :raises errors.CloudError: Among others, if the marker was deleted meanwhile, and the server
        would leave out objects.
    """
    reading = reading or Reading()
    wanted = reading.of(path, query)
    while not wanted.ended:
        await wanted.read_page(transport, page)
    return list(wanted.found.values())


class _List:
    """One list, as far as it has been read."""

    def __init__(self, path: str, query: Query) -> None:
        self.found: dict[str, Json] = {}
        self.ended = False
        self._path = path
        self._query = query
        self._kind = path.rpartition("/")[2].replace("-", "_")
        self._shape = self._kind, str(query.get("fields"))  # on which the time of a page depends
        self._markers: list[str] = []  # the last object of each page that was read
        self._nothing_follows = False  # the last marker, if that exists at all

    async def read_page(self, transport: Transport, most: int) -> None:
        """Read the page after the last one; one that does not come in time is divided later.

        :param most: The most objects in a page.
        :raises errors.CloudError: The next call tries again, from the page before if there is
            nothing to go on from.
        """
        if self._nothing_follows:
            await self._end(transport)
            return
        learned = transport.page_sizes[self._shape]
        size = min(learned.value, most)
        position = {"marker": self._markers[-1]} if self._markers else {}
        query = {**self._query, "limit": str(size), **position}
        try:
            answer = await transport.call("GET", self._path, query=query)
        except (errors.NotFound, errors.BadRequest) as error:
            if not position or error.status not in NO_MARKER:
                raise
            raise self._step_back() from error
        except errors.CloudError as error:
            if error.status in NO_ANSWER:
                learned.late(size)
            raise
        rows: list[Json] = answer[self._kind]
        learned.came(size, len(rows))
        # a server that does not find the marker may begin again
        self.found |= {row["id"]: row for row in rows}
        if any(link["rel"] == "next" for link in answer.get(f"{self._kind}_links") or ()):
            if not rows or rows[-1]["id"] in self._markers:
                raise self._step_back()
            self._markers.append(rows[-1]["id"])
        elif position and not rows:
            self._nothing_follows = True
            await self._end(transport)
        else:
            self.ended = True

    async def _end(self, transport: Transport) -> None:
        """Note that the list has ended, if its last marker exists.

        After one that does not, a Neutron that pages in memory shows nothing: it looks like the
        end.
        """
        query = {**self._query, "id": self._markers[-1], "limit": "1"}
        if not (await transport.call("GET", self._path, query=query))[self._kind]:
            raise self._step_back()
        self.ended = True

    def _step_back(self) -> errors.CloudError:
        """Have the page before read again, as the marker after it is gone."""
        del self._markers[-1:]
        self._nothing_follows = False
        return errors.CloudError(f"{self._path} has changed while it was read")
