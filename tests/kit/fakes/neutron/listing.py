"""GET of a collection: filters, order, pages and fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from multidict import MultiDict, MultiMapping
from yarl import URL

from tests.kit.fakes.faults import Answer

from . import errors
from .kinds import RBAC_POLICY, Kind
from .policy import Context, Policy
from .store import Store

Json = dict[str, Any]

_STEERING = {"fields", "limit", "marker", "page_reverse", "sort_key", "sort_dir"}
_PAGED_IN_MEMORY = ("floatingip", "router")  # by OVN's plugin of routers
_TAGS = ("tags", "tags-any", "not-tags", "not-tags-any")


class Listing:
    """Answers lists from the store."""

    def __init__(self, store: Store, policy: Policy) -> None:
        self.max_limit = 0  # Neutron's pagination_max_limit; 0: infinite
        self._store = store
        self._policy = policy

    def answer(self, context: Context, kind: Kind, url: URL) -> Json:
        """The body of the answer."""
        query = MultiDict(url.query)
        filters = _filters(kind, query)
        found = [
            resource
            for resource in self._candidates(kind, filters)
            if _matches(resource, filters) and self._policy.sees(context, kind.name, resource)
        ]
        _sort(kind, found, query, paged=bool(self.max_limit))
        limit, page = self._page(kind, found, query)
        views = (self._policy.view(context, kind.name, resource, page[0]) for resource in page)
        fields = set(query.getall("fields", []))
        body: Json = {kind.plural: [select(view, fields) for view in views]}
        if limit and (links := _links(url, query, page, limit)):
            body[f"{kind.plural}_links"] = links
        return body

    def _page(
        self, kind: Kind, found: list[Json], query: MultiMapping[str]
    ) -> tuple[int, list[Json]]:
        limit = _limit(query)
        if self.max_limit:
            limit = min(self.max_limit, limit) or self.max_limit
        if not limit or kind is RBAC_POLICY:
            return 0, found
        start = _start(kind, found, query.get("marker"))
        return limit, found[start : start + limit]

    def _candidates(self, kind: Kind, filters: dict[str, list[str]]) -> Iterable[Json]:
        """The resources that the most selective index gives, or all."""
        resources = self._store.of(kind.name)
        if "id" in filters:
            return [
                resources[resource_id]
                for resource_id in set(filters["id"])
                if resource_id in resources
            ]
        if kind.name == "port":
            for name, index in (
                ("device_id", self._store.ports_by_device),
                ("tags", self._store.ports_by_tag),
            ):
                if name in filters:
                    wanted = filters[name][:1] if name == "tags" else filters[name]
                    ids = set().union(*(index.get(value.split(",")[0], ()) for value in wanted))
                    return [resources[port_id] for port_id in ids]
        return list(resources.values())


def select(view: Json, fields: set[str]) -> Json:
    """Only the fields asked for."""
    return {name: value for name, value in view.items() if name in fields} if fields else view


def _filters(kind: Kind, query: MultiMapping[str]) -> dict[str, list[str]]:
    filters = {name: query.getall(name) for name in query if name not in _STEERING}
    wrong = [name for name in filters if "f" not in kind.attributes.get(name, "")]
    if wrong:
        raise errors.malformed(f"{wrong} is invalid attribute for filtering")
    return filters


def _matches(resource: Json, filters: dict[str, list[str]]) -> bool:
    return all(
        _match_tags(resource.get("tags", ()), name, values)
        if name in _TAGS
        else _match_value(resource.get(name), values)
        for name, values in filters.items()
    )


def _match_tags(tags: Iterable[str], name: str, values: list[str]) -> bool:
    wanted = {tag for value in values for tag in value.split(",")}
    found = wanted & set(tags)
    hit = bool(found) if name.endswith("any") else found == wanted
    return hit != name.startswith("not")


def _match_value(actual: Any, values: list[str]) -> bool:
    if isinstance(actual, bool):
        return any(value.lower() in (("true", "1") if actual else ("false", "0"))
                   for value in values)  # fmt: skip
    if isinstance(actual, list):
        return _match_list(actual, values)
    return str(actual) in values


def _match_list(items: list[Any], values: list[str]) -> bool:
    """One of the ids; of fixed_ips, one of the addresses and one of the subnets given."""
    if not any("=" in value for value in values):
        return any(value in items for value in values)
    wanted: dict[str, set[str]] = {}
    for value in values:
        name, _, text = value.partition("=")
        wanted.setdefault(name, set()).add(text)
    return all(any(item.get(name) in texts for item in items) for name, texts in wanted.items())


def _sort(kind: Kind, found: list[Json], query: MultiMapping[str], *, paged: bool) -> None:
    keys, ways = query.getall("sort_key", []), query.getall("sort_dir", [])
    if len(keys) != len(ways):
        raise errors.malformed("The number of sort_keys and sort_dirs must be same")
    sortable = {} if kind is RBAC_POLICY else kind.attributes
    wrong = [key for key in keys if "f" not in sortable.get(key, "")]
    if wrong:
        raise errors.malformed(f"{wrong} is invalid attribute for sort_keys")
    if "limit" in query or keys or paged:
        found.sort(key=lambda resource: resource["id"])
    for key, way in reversed(list(zip(keys, ways, strict=True))):
        found.sort(key=lambda resource, key=key: str(resource[key]), reverse=way == "desc")


def _limit(query: MultiMapping[str]) -> int:
    text = query.get("limit", "0")
    if not text.isdigit():
        raise Answer(
            400,
            "BadRequest",
            f"Bad limit request: Limit must be an integer 0 or greater and not '{text}'.",
        )
    return int(text)


def _start(kind: Kind, found: list[Json], marker: str | None) -> int:
    """Where the page begins; what becomes of a marker that is not there depends on the plugin."""
    if not marker:
        return 0
    at = next((at for at, resource in enumerate(found) if resource["id"] == marker), None)
    if at is not None:
        return at + 1
    if kind.name in ("port", "network"):
        raise errors.missing(kind.name, marker)
    return len(found) if kind.name in _PAGED_IN_MEMORY else 0


def _links(url: URL, query: MultiDict[str], page: list[Json], limit: int) -> list[Json]:
    links = []
    for relation, at in (("next", -1), ("previous", 0)):
        if relation == "next" and len(page) < limit:
            continue
        params = [(name, value) for name, value in query.items() if name != "marker"]
        if page:
            params.append(("marker", page[at]["id"]))
        if relation == "previous":
            params.append(("page_reverse", "True"))
        links.append({"rel": relation, "href": f"{url.origin()}{url.path}?{urlencode(params)}"})
    return links
