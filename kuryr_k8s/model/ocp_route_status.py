"""The status of Routes: an entry for each router, with its conditions. Pure.

Entries of other routers stay as they are.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
ROUTER_NAME = "kuryr"
ADMITTED = "Admitted"
MESSAGE_LIMIT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """State what a router says of a Route.

    :param reason: one CamelCase word; empty if there is nothing to say.
    """

    host: str
    wildcard_policy: str
    is_admitted: bool
    reason: str = ""
    message: str = ""
    canonical_hostname: str = ""


def entries(shown: str, admission: Admission | None, now: str) -> list[Json]:
    """Return the list of the status with our entry as it is to be.

    :param shown: the list as it is, as text.
    :param admission: None if there is to be no entry of ours.
    :param now: RFC 3339; the time of a transition, if there is one.
    """
    found: list[Json] = json.loads(shown) if shown else []
    ours = next((each for each in found if _is_ours(each)), None)
    place = found.index(ours) if ours is not None else len(found)
    others = [each for each in found if not _is_ours(each)]
    if admission is not None:
        before = (ours or {}).get("conditions") or ()
        others.insert(place, _entry(admission, before, now))
    return others


def _is_ours(entry: Json) -> bool:
    return entry.get("routerName") == ROUTER_NAME


def _entry(admission: Admission, before: Sequence[Json], now: str) -> Json:
    condition = {
        "type": ADMITTED,
        "status": str(admission.is_admitted),
        "reason": admission.reason,
        "message": admission.message[:MESSAGE_LIMIT],
        "lastTransitionTime": _since(str(admission.is_admitted), before, now),
    }
    entry = {
        "host": admission.host,
        "routerName": ROUTER_NAME,
        "routerCanonicalHostname": admission.canonical_hostname,
        "wildcardPolicy": admission.wildcard_policy,
        "conditions": [{name: text for name, text in condition.items() if text}],
    }
    return {name: content for name, content in entry.items() if content}


def _since(status: str, before: Sequence[Json], now: str) -> str:
    """Return since when the condition has this status."""
    for each in before:
        if (each.get("type"), each.get("status")) == (ADMITTED, status):
            return each.get("lastTransitionTime") or now
    return now
