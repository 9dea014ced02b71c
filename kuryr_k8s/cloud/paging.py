"""Lists that are read to their end, whatever page size the server imposes.

Neutron and Octavia answer with no more objects than their ``pagination_max_limit``, however many
are asked for. A short page is therefore not the last one: the last one has no link to a next page.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.transport import Query, Transport

Json = dict[str, Any]
PAGE = 500
# Neutron does not sort the pages of all kinds by itself.
BY_ID = {"sort_key": "id", "sort_dir": "asc"}
IDS = 180  # in a query: its URL then stays below the 8 KB that servers and proxies read


def in_queries(ids: Iterable[str]) -> Iterator[Sequence[str]]:
    """Divide ids among as many queries as they need."""
    wanted = list(ids)
    for start in range(0, len(wanted), IDS):
        yield wanted[start : start + IDS]


async def read_all(
    transport: Transport, path: str, query: Query, *, page: int = PAGE
) -> list[Json]:
    """List all objects that match.

    The next page is asked for by our own query and a marker, not by the link: Octavia's links lack
    the filters, and the address in a link need not be the one that we reach the service at.

    :param query: If it has ``fields``, ``id`` is one of them.
    :param page: The most objects that are asked for at once.
    :raises errors.CloudError: Among others, if the marker was deleted meanwhile, and the server
        would leave out objects.
    """
    kind = path.rpartition("/")[2].replace("-", "_")
    found: dict[str, Json] = {}
    position: dict[str, str] = {}
    while True:
        try:
            answer = await transport.call(
                "GET", path, query={**query, "limit": str(page), **position}
            )
        except (errors.NotFound, errors.BadRequest) as error:
            if not position:
                raise
            raise _changed(path) from error
        rows: list[Json] = answer[kind]
        known = len(found)
        # a server that does not find the marker may begin again
        found |= {row["id"]: row for row in rows}
        if not any(link["rel"] == "next" for link in answer.get(f"{kind}_links") or ()):
            break
        if len(found) == known:
            raise _changed(path)
        position = {"marker": rows[-1]["id"]}
    if position and not rows and not await _exists(transport, path, kind, query, position):
        raise _changed(path)
    return list(found.values())


async def _exists(
    transport: Transport, path: str, kind: str, query: Query, position: dict[str, str]
) -> bool:
    """Return whether the marker still exists.

    After one that does not, a Neutron that pages in memory shows nothing: it looks like the end.
    """
    marked = {**query, "id": position["marker"], "limit": "1"}
    return bool((await transport.call("GET", path, query=marked))[kind])


def _changed(path: str) -> errors.CloudError:
    return errors.CloudError(f"{path} has changed while it was read")
