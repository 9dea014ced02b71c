"""GET of a collection: filters, pages and fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from multidict import MultiMapping
from yarl import URL

from tests.kit.fakes.faults import Answer

from .kinds import Kind
from .store import OWNER

Json = dict[str, Any]
_STEERING = ("fields", "limit", "marker", "sort", "sort_key", "sort_dir", "page_reverse")
_TAGS = ("tags", "tags-any", "not-tags", "not-tags-any")
_COMMON = ("id", "name", "project_id", "provisioning_status", "operating_status", "admin_state_up")


def select(kind: Kind, resources: Iterable[Json], query: MultiMapping[str]) -> list[Json]:
    """Those that match, oldest first."""
    filters = {name: query.getall(name) for name in query if name not in _STEERING}
    for name, values in filters.items():
        known = name in _TAGS or name in _COMMON or name in kind.filters
        if not known or (name not in _TAGS and len(values) > 1):
            raise Answer(400, message="One or more arguments are either duplicate or invalid")
    found = [
        resource
        for resource in resources
        if all(_fits(resource, *item) for item in filters.items())
    ]
    return sorted(found, key=lambda resource: (resource["created_at"], resource["id"]))


def page(found: list[Json], url: URL, max_limit: int) -> tuple[list[Json], list[Json]]:
    """A page, and the links to those beside it."""
    text, marker = url.query.get("limit", str(max_limit)), url.query.get("marker")
    if not text.lstrip("-").isdigit():
        raise Answer(400, message=f"Supplied pagination limit '{text}' is not valid.")
    limit = min(int(text), max_limit) if int(text) > 0 else len(found) + 1
    start = 0
    if marker is not None:
        at = next((at for at, resource in enumerate(found) if resource["id"] == marker), None)
        if at is None:
            raise Answer(400, message=f"Supplied pagination marker '{marker}' is not valid.")
        start = at + 1
    some = found[start : start + limit]
    links = []
    if some and len(some) >= limit:
        query = urlencode({"limit": limit, "marker": some[-1]["id"]})
        links.append({"rel": "next", "href": f"{url.origin()}{url.path}?{query}"})
    return some, links


def cut(shown: Json, fields: list[str]) -> Json:
    """Only the fields asked for."""
    return {name: value for name, value in shown.items() if name in fields} if fields else shown


def _fits(resource: Json, name: str, values: list[str]) -> bool:
    if name in _TAGS:
        wanted = {tag for value in values for tag in value.split(",")}
        found = wanted & set(resource["tags"])
        hit = bool(found) if name.endswith("any") else found == wanted
        return hit != name.startswith("not")
    actual = resource[OWNER if name == "loadbalancer_id" else name]
    if isinstance(actual, bool):
        return values[0].lower() in (("true", "1") if actual else ("false", "0"))
    return str(actual) == values[0]
