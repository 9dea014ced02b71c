"""What was asked of the API server, by user: read from its audit log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class Request(NamedTuple):
    """A kind of request; `resource` is "kuryrports" or "kuryrports/status"."""

    user: str
    verb: str
    resource: str


class Tally(Counter[Request]):
    """How many requests of each kind; renewals of Leases are not among them."""

    def writes(self, user: str) -> int:
        return sum(n for request, n in self.items() if _is(request, user, WRITES))

    def reads(self, user: str) -> int:
        """GETs of single objects."""
        return sum(n for request, n in self.items() if _is(request, user, {"get"}))

    def lists(self, user: str) -> int:
        """Lists and watches begun."""
        return sum(n for request, n in self.items() if _is(request, user, {"list", "watch"}))

    def kinds(self) -> dict[str, int]:
        """By user, verb and resource in words."""
        names = {request: request.user.rpartition(":")[2] for request in self}
        words = {f"{names[one]} {one.verb} {one.resource}": n for one, n in self.items()}
        return dict(sorted(words.items()))


class AuditLog:
    """The part of the log that was written since the last :meth:`mark`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin = 0

    def mark(self) -> None:
        """Forget what was asked until now."""
        self._begin = self._path.stat().st_size if self._path.exists() else 0

    def tally(self) -> Tally:
        """Requests answered since the mark, and watches begun."""
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


def _is(request: Request, user: str, verbs: Iterable[str]) -> bool:
    return request.user == user and request.verb in verbs
