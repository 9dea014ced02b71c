"""What is known of the load balancers of this cluster: whose they are, and what they are like.

After a start a few lists tell of all, and of what is in them. From then on an owner of whom
nothing is known has none, except where a creation had no answer: there Octavia is asked again, by
the owner's tag.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.cloud.octavia.found import Parts
from kuryr_k8s.drivers.lbaas import tags as lb_tags
from kuryr_k8s.drivers.lbaas.changes import Change
from kuryr_k8s.model.load_balancer import DELETED, FoundLoadBalancer

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
FIELDS = ("id", "tags", "provisioning_status", "created_at")


@dataclass(slots=True, eq=False)
class Known:
    """An owner's load balancer, or its part of another's.

    :param tree: what is the owner's of it, all ACTIVE; None: to be read.
    :param rest: what is not, when it was read last; None: it was not.
    :param fresh: what was looked at last is of just now.
    :param former: ids that it had before it was made anew, as far as they are known.
    :param foreign: it has not the tags of the cluster.
    :param parts: what the lists of the start told of it, until it is looked at.
    :param made: what the creation's answer told: so it is once all is ACTIVE.
    :param since: since when Octavia is waited for.
    :param parts_since: since when it is itself not PENDING, but parts of it are.
    :param last: the last step that was taken; whether it came to something, is not seen yet.
    :param immutable: how often in a row Octavia would not have it changed.
    :param changed: something was asked of it since it last was as it is to be.
    :param surplus: ids of others with the same owner, which are to go.
    :param leaving: ids of those whose deletion Octavia has begun.
    :param gone: ids of those that are deleted.
    :param mark: of all its parts, by the last lists.
    """

    id: str
    tree: FoundLoadBalancer | None = None
    parts: Parts | None = None
    made: FoundLoadBalancer | None = None
    since: float | None = None
    parts_since: float | None = None
    last: Change | None = None
    immutable: int = 0
    changed: bool = False
    rest: FoundLoadBalancer | None = None
    fresh: bool = False
    former: frozenset[str] = frozenset()
    foreign: bool = False
    surplus: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    mark: bytes | None = None

    def begin(self) -> None:
        """Something is asked of it: what is known of it is true no more."""
        self.tree = self.parts = self.made = self.since = self.parts_since = None

    def settled(self, tree: FoundLoadBalancer) -> None:
        """It is as it is to be."""
        self.begin()
        self.tree, self.last, self.changed = tree, None, False


class Memory:
    """:param tags: what all load balancers of the cluster have."""

    def __init__(self, octavia: Octavia, tags: Sequence[str]) -> None:
        self._octavia = octavia
        self._tags = tuple(tags)
        self._known: dict[str, Known] = {}
        self._unsure: set[str] = set()  # owners who may have one that we do not know
        self._former: dict[str, frozenset[str]] = {}  # ids of those that an owner had before
        self._surveyed = False
        self._surveying = asyncio.Lock()

    async def of(self, owner: str) -> Known | None:
        """The owner's load balancer, if there is one; Octavia is asked where nobody can tell.

        :raises kuryr_k8s.errors.CloudError: it does not answer.
        """
        await self._survey()
        if owner in self._unsure:
            tags = (*self._tags, f"{lb_tags.SERVICE_TAG}{owner}")
            query = {"tags": ",".join(tags), "fields": FIELDS}
            self._note(owner, _left(await self._octavia.list_load_balancers(query)))
            self._unsure.discard(owner)
        return self._known.get(owner)

    def created(self, owner: str, made: FoundLoadBalancer) -> Known:
        """Octavia has begun to make it."""
        self._unsure.discard(owner)
        former = lb_tags.former_ids_of(made.tags)
        known = self._known[owner] = Known(id=made.id, made=made, changed=True, former=former)
        return known

    def doubt(self, owner: str) -> None:
        """What is known may be wrong: ask before anything else is done for this owner."""
        known = self._known.pop(owner, None)
        if known is not None:
            self._former[owner] = self.former_of(owner) | known.former | {known.id}
        self._unsure.add(owner)

    def former_of(self, owner: str) -> frozenset[str]:
        """Ids of load balancers that the owner had and that are gone, or said to be."""
        return self._former.get(owner, frozenset())

    def forget(self, owner: str) -> None:
        """It has none."""
        self._known.pop(owner, None)
        self._former.pop(owner, None)

    async def list_all(self) -> list[Json]:
        """All load balancers of the cluster, and what is remembered corrected by them."""
        async with self._surveying:
            return await self._list_all()

    async def _survey(self) -> None:
        if self._surveyed:
            return
        async with self._surveying:
            if not self._surveyed:
                await self._list_all()

    async def _list_all(self) -> list[Json]:
        before = dict(self._known)
        listed = await self._octavia.survey({"tags": ",".join(self._tags)})
        parts = {one.load_balancer["id"]: one for one in listed}
        rows = _left(one.load_balancer for one in listed)
        rows = [row for row in rows if lb_tags.owner_of(row["tags"])]
        by_owner: defaultdict[str, list[Json]] = defaultdict(list)
        for row in rows:
            by_owner[lb_tags.owner_of(row["tags"])].append(row)
        for owner, known in before.items():
            if owner not in by_owner and self._known.get(owner) is known:
                self.doubt(owner)
        for owner, found in by_owner.items():
            if self._known.get(owner) is before.get(owner) and owner not in self._unsure:
                self._note(owner, found)
                self._compare(self._known[owner], parts)
        self._surveyed = True
        return rows

    def _compare(self, known: Known, listed: Mapping[str, Parts]) -> None:
        parts = listed[known.id]
        mark = parts.mark()
        if known.mark != mark:  # by us, or by others
            known.tree = None
        known.mark = mark
        if not self._surveyed:  # later, we may be at work on it
            known.parts = parts

    def _note(self, owner: str, rows: Sequence[Json]) -> None:
        """Of several the oldest stays, unless it is going."""
        if not rows:
            self._known.pop(owner, None)
            return
        first, *others = sorted(rows, key=_rank)
        known = self._known.get(owner)
        if known is None or known.id != first["id"]:
            former = lb_tags.former_ids_of(first["tags"])
            known = self._known[owner] = Known(id=first["id"], former=former)
        if others:
            LOG.warning("%s has more than one load balancer; %s stays", owner, known.id)
        known.surplus = {row["id"] for row in others}
        known.leaving -= {row["id"] for row in others if not _is_leaving(row)}


def _left(rows: Iterable[Json]) -> list[Json]:
    return [row for row in rows if row["provisioning_status"] != DELETED]


def _rank(row: Json) -> tuple[bool, str, str]:
    return _is_leaving(row), row["created_at"], row["id"]


def _is_leaving(row: Json) -> bool:
    return row["provisioning_status"] in ("PENDING_DELETE", DELETED)
