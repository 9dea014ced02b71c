"""Records of owners: what each has in Octavia, and what is known of it.

After a start, a few lists tell of all load balancers of the cluster and of what they contain. From
then on, an owner without a known load balancer has none, unless a creation was not answered: then
Octavia is asked again, by the owner's tag.
"""

import enum
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.cloud.octavia.found import Parts
from kuryr_k8s.drivers.base import tags as owner_tags
from kuryr_k8s.drivers.base.survey import Survey
from kuryr_k8s.drivers.lbaas.ownership import former_ids_of
from kuryr_k8s.drivers.lbaas.steps import Change
from kuryr_k8s.model.load_balancer import DELETED, FoundLoadBalancer
from kuryr_k8s.model.owner import Owner

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
FIELDS = ("id", "tags", "provisioning_status", "created_at")
LONGEST = 300.0  # seconds before a repair, at most


@dataclass(frozen=True, slots=True)
class Unread:
    """Phase: nothing is known of the contents, or it is no longer true."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Phase: the lists of the start have told of the contents."""

    parts: Parts


@dataclass(frozen=True, slots=True)
class Created:
    """Phase: the creation was answered; the answer is true once everything is ACTIVE."""

    answer: FoundLoadBalancer


@dataclass(frozen=True, slots=True)
class Settled:
    """Phase: the owner's parts match the desired state, and are ACTIVE.

    :param others: parts of other owners, when they were last read; None if they were not.
    """

    own: FoundLoadBalancer
    others: FoundLoadBalancer | None


Phase = Unread | Listed | Created | Settled


class Deletion(enum.Enum):
    """Progress of the deletion of a load balancer."""

    BEGUN = enum.auto()
    DONE = enum.auto()


@dataclass(slots=True, eq=False)
class View:
    """What one owner knows of one load balancer: its own, or one in which it has parts.

    :param former: ids that the load balancer had before it was made anew, as far as known.
    :param foreign: it does not have the tags of the cluster.
    :param used: another owner's load balancer in which this owner may have parts.
    :param changed: a change was asked for since the parts last matched the desired state.
    :param last: the last step; whether Octavia carried it out has not been seen yet.
    :param immutable: how often in a row Octavia refused a change of what did not look PENDING.
    :param pending_since: since when Octavia has been waited for.
    :param parts_pending_since: since when parts are PENDING and the load balancer itself is not.
    :param duplicates: ids of further load balancers of the owner, which have to go.
    :param deletions: progress by id, of the load balancer and its duplicates.
    :param digest: of everything that the last lists showed of it.
    """

    record: "Record"
    id: str
    phase: Phase = field(default_factory=Unread)
    former: frozenset[str] = frozenset()
    foreign: bool = False
    used: bool = False
    changed: bool = False
    last: Change | None = None
    immutable: int = 0
    pending_since: float | None = None
    parts_pending_since: float | None = None
    duplicates: frozenset[str] = frozenset()
    deletions: dict[str, Deletion] = field(default_factory=dict)
    digest: bytes | None = None

    @property
    def owner(self) -> Owner:
        """The owner whose view it is."""
        return self.record.owner

    def doubt(self) -> None:
        """Have the contents read again before they are relied on."""
        if isinstance(self.phase, Settled):
            self.phase = Unread()

    def begin(self) -> None:
        """Note that a change is being asked for: nothing known of the contents stays true."""
        self.phase = Unread()
        self.pending_since = self.parts_pending_since = None

    def settle(self, own: FoundLoadBalancer, others: FoundLoadBalancer | None) -> None:
        """Note that the owner's parts match the desired state."""
        self.begin()
        self.phase = Settled(own, others)
        self.last, self.changed = None, False


class LoadBalancerFailed(errors.Refused):
    """Octavia put the load balancer, or a part of it, in ERROR."""

    reason = "KuryrLoadBalancerError"


class Repairs:
    """Limit on how often one owner's load balancer is made anew after ERROR.

    The count begins with the first ERROR, and ends when the load balancer matches its desired
    state. Delays grow from repair to repair.

    :param limit: the most repairs.
    :param delay: seconds from the ERROR to the first repair.
    """

    def __init__(self, limit: int, delay: float) -> None:
        self._limit = limit
        self._delay = delay
        self._made = 0
        self._due: float | None = None  # when the next one may begin
        self._open = False  # one has begun: all that it needs may be done

    def begin(self, load_balancer_id: str, now: float) -> None:
        """Allow something to be done about an ERROR.

        :raises LoadBalancerFailed: it is too early, or there were too many repairs.
        """
        if self._open:
            return
        what = f"load balancer {load_balancer_id}, or a part of it, is in ERROR"
        if self._made >= self._limit:
            raise LoadBalancerFailed(
                f"{what}; it has been made anew {self._made} times, and is left to people now"
            )
        if self._due is None:
            self._due = now + min(self._delay * 2.0**self._made, LONGEST)
        if now < self._due:
            raise LoadBalancerFailed(f"{what} and will be made anew")
        self._open, self._due = True, None
        self._made += 1

    def error_cleared(self) -> None:
        """Note that the error has cleared; a later one counts as new."""
        self._open, self._due = False, None


@dataclass(slots=True, eq=False)
class Record:
    """The state of one owner.

    :param own: its load balancer; None if it has none, or if that is in doubt.
    :param former: ids of load balancers that it had and that are gone, or said to be.
    :param named: id of the load balancer of another owner in which it is to have parts.
    :param places: load balancers of others in which it has parts or is to have some, by id.
    """

    owner: Owner
    own: View | None = None
    former: frozenset[str] = frozenset()
    named: str | None = None
    places: dict[str, View] = field(default_factory=dict)
    repairs: Repairs | None = None

    def is_empty(self) -> bool:
        """Tell whether there is nothing to remember of the owner."""
        return not (self.own or self.former or self.named or self.places or self.repairs)


class Records:
    """All owners of the cluster, and the survey of their load balancers.

    :param tags: the tags that all load balancers of the cluster have.
    """

    def __init__(self, octavia: Octavia, tags: Sequence[str]) -> None:
        self._octavia = octavia
        self._tags = tuple(tags)
        self._records: dict[Owner, Record] = {}
        self._survey = Survey[Owner, list[Json]](self._list_all, self._ask)

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self._records.values()))

    def of(self, owner: Owner) -> Record:
        """Return the owner's record, a new one if need be."""
        return self._records.setdefault(owner, Record(owner))

    def known(self, owner: Owner) -> Record | None:
        """Return the owner's record, if there is one."""
        return self._records.get(owner)

    def tidy(self, owner: Owner) -> None:
        """Drop the owner's record if it is empty."""
        record = self._records.get(owner)
        if record is not None and record.is_empty():
            del self._records[owner]

    async def own_view(self, owner: Owner) -> View | None:
        """Return the view of the owner's load balancer; ask Octavia if it is in doubt.

        :returns: None if the owner has no load balancer.
        :raises kuryr_k8s.errors.CloudError: Octavia does not answer.
        """
        await self._survey.verify(owner)
        record = self._records.get(owner)
        return record.own if record is not None else None

    async def list_all(self) -> list[Json]:
        """List all load balancers of the cluster, and correct the records by that."""
        return await self._survey.repeat()

    def created(self, owner: Owner, answer: FoundLoadBalancer) -> View:
        """Note that Octavia has begun to create the owner's load balancer."""
        self._survey.doubtful.discard(owner)
        record = self.of(owner)
        record.own = View(
            record,
            answer.id,
            phase=Created(answer),
            changed=True,
            former=former_ids_of(answer.tags),
        )
        return record.own

    def doubt(self, owner: Owner) -> None:
        """Have Octavia asked before anything else is done for the owner."""
        record = self._records.get(owner)
        if record is not None and record.own is not None:
            record.former |= record.own.former | {record.own.id}
            record.own = None
        self._survey.doubtful.add(owner)

    def former_of(self, owner: Owner) -> frozenset[str]:
        """Return ids of load balancers that the owner had and that are gone, or said to be."""
        record = self._records.get(owner)
        return record.former if record is not None else frozenset()

    def released(self, owner: Owner) -> None:
        """Note that the owner's load balancer is gone."""
        record = self._records.get(owner)
        if record is not None:
            record.own, record.former, record.repairs = None, frozenset(), None
            self.tidy(owner)

    async def _ask(self, owner: Owner) -> None:
        tags = (*self._tags, owner_tags.owner_tag(owner))
        query = {"tags": ",".join(tags), "fields": FIELDS}
        self._note(owner, _existing(await self._octavia.list_load_balancers(query)))

    async def _list_all(self) -> list[Json]:
        before = {record.owner: record.own for record in self if record.own is not None}
        listed = await self._octavia.survey({"tags": ",".join(self._tags)})
        parts = {each.load_balancer["id"]: each for each in listed}
        rows = []
        by_owner: defaultdict[Owner, list[Json]] = defaultdict(list)
        for row in _existing(each.load_balancer for each in listed):
            owner = owner_tags.owner_of(row["tags"])
            if owner is not None:
                rows.append(row)
                by_owner[owner].append(row)
        for owner, view in before.items():
            if owner not in by_owner and self._own(owner) is view:
                self.doubt(owner)
        for owner, found in by_owner.items():
            # what has changed while the lists were read, they may tell wrongly
            if self._own(owner) is before.get(owner) and owner not in self._survey.doubtful:
                self._compare(self._note(owner, found), parts)
        return rows

    def _own(self, owner: Owner) -> View | None:
        record = self._records.get(owner)
        return record.own if record is not None else None

    def _compare(self, view: View | None, listed: Mapping[str, Parts]) -> None:
        """Doubt the contents if the lists show that somebody has changed them."""
        if view is None:
            return
        parts = listed[view.id]
        digest = parts.mark()
        if view.digest != digest:
            view.doubt()
        view.digest = digest
        if not self._survey.done:  # later, a change may be under way
            view.phase = Listed(parts)

    def _note(self, owner: Owner, rows: Sequence[Json]) -> View | None:
        """Note what Octavia shows for the owner: the oldest stays, unless it is being deleted."""
        if not rows:
            record = self._records.get(owner)
            if record is not None:
                record.own = None
                self.tidy(owner)
            return None
        record = self.of(owner)
        first, *others = sorted(rows, key=_rank)
        if record.own is None or record.own.id != first["id"]:
            record.own = View(record, first["id"], former=former_ids_of(first["tags"]))
        if others:
            LOG.warning("%s has more than one load balancer; %s stays", owner, record.own.id)
        record.own.duplicates = frozenset(row["id"] for row in others)
        for row in others:
            if not _is_leaving(row) and record.own.deletions.get(row["id"]) is Deletion.BEGUN:
                del record.own.deletions[row["id"]]
        return record.own


def _existing(rows: Iterable[Json]) -> list[Json]:
    return [row for row in rows if row["provisioning_status"] != DELETED]


def _rank(row: Json) -> tuple[bool, str, str]:
    return _is_leaving(row), row["created_at"], row["id"]


def _is_leaving(row: Json) -> bool:
    return row["provisioning_status"] in ("PENDING_DELETE", DELETED)
