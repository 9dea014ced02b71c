"""Requests to the API server by user, counted in its audit log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class Request(NamedTuple):
    """A kind of request; `resource` is "kuryrports" or "kuryrports/status"."""

    user: str
    verb: str
    resource: str


class Tally(Counter[Request]):
    """The number of requests of each kind, without renewals of Leases."""

    def writes(self, user: str) -> int:
        """Count the writes of a user."""
        return self._count(user, WRITES)

    def reads(self, user: str) -> int:
        """Count the GETs of single objects by a user."""
        return self._count(user, {"get"})

    def lists(self, user: str) -> int:
        """Count the lists and the watches that a user began."""
        return self._count(user, {"list", "watch"})

    def kinds(self) -> dict[str, int]:
        """Return the counts by short user name, verb and resource."""
        named = {
            f"{request.user.rpartition(':')[2]} {request.verb} {request.resource}": count
            for request, count in self.items()
        }
        return dict(sorted(named.items()))

    def _count(self, user: str, verbs: Collection[str]) -> int:
        return sum(
            count
            for request, count in self.items()
            if request.user == user and request.verb in verbs
        )


class AuditLog:
    """The part of an audit log that was written since the last :meth:`mark`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin = 0

    def mark(self) -> None:
        """Ignore all requests until now."""
        self._begin = self._path.stat().st_size if self._path.exists() else 0

    def tally(self) -> Tally:
        """Count the requests answered and the watches begun since the mark."""
        with self._path.open("rb") as file:
            file.seek(self._begin)
            return tally(line for line in file if line.endswith(b"\n"))


def tally(lines: Iterable[bytes]) -> Tally:
    """Count the events of an audit log."""
    found = Tally()
    for line in lines:
        event = json.loads(line)
        target = event.get("objectRef") or {}
        stage = "ResponseStarted" if event["verb"] == "watch" else "ResponseComplete"
        if event["stage"] != stage or target.get("resource") in (None, "leases"):
            continue
        parts = filter(None, (target["resource"], target.get("subresource")))
        found[Request(event["user"]["username"], event["verb"], "/".join(parts))] += 1
    return found
