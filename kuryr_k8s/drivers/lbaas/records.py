"""Records of owners: what each has in Octavia, and what is known of it.

After a start, a few lists tell of all load balancers of the cluster and of what they contain. From
then on, an owner without a known load balancer has none, unless a creation was not answered: then
Octavia is asked again, by the owner's tag.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kuryr_k8s.cloud.mark import ClusterMark
from kuryr_k8s.cloud.octavia.found import Parts
from kuryr_k8s.cloud.paging import Reading
from kuryr_k8s.drivers.base import DriverContext, Owned
from kuryr_k8s.drivers.base import tags as owner_tags
from kuryr_k8s.drivers.lbaas.ownership import former_ids_of
from kuryr_k8s.drivers.lbaas.record import Created, Deletion, Listed, Record, Stepped, View
from kuryr_k8s.drivers.lbaas.survey import AwaitedSurvey
from kuryr_k8s.model.load_balancer import DELETED, FoundLoadBalancer
from kuryr_k8s.model.owner import Owner

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
FIELDS = ("id", "tags", "project_id", "provisioning_status", "created_at")


class Records:
    """The records of all owners in the cluster, and the survey of their load balancers.

    A load balancer with the mark of another cluster comes into no record: it is never touched.
    Nor does one of a project that no Service can belong to.

    :param tags: the tags that all load balancers of the cluster have.
    :param mark: that tells apart clusters with the same tags.
    :param projects: the projects that Services can belong to.
    :param wake: called for an owner that waited for the survey.
    """

    def __init__(
        self,
        context: DriverContext,
        tags: Sequence[str],
        mark: ClusterMark,
        projects: Collection[str],
        wake: Callable[[Owner], None],
    ) -> None:
        self._mark = mark
        self._projects = projects
        self._octavia = context.octavia
        self._tags = tuple(tags)
        self._records: dict[Owner, Record] = {}
        self.survey = AwaitedSurvey(context, "load-balancer-survey", self._list_all, wake)

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
        :raises kuryr_k8s.errors.Wait: the survey has not ended.
        :raises kuryr_k8s.errors.CloudError: Octavia does not answer.
        """
        self.survey.check(owner)
        await self.survey.verify(owner, self._ask)
        record = self._records.get(owner)
        return record.own if record is not None else None

    async def owner_of(self, load_balancer_id: str, asking: Owner) -> Owned | None:
        """Return which owner has, or had, a load balancer with this id; None if none has.

        Octavia is asked about one that is in no record: a list may have left it out.

        :param asking: the owner to be woken when the survey has ended.
        :raises kuryr_k8s.errors.Wait: the survey has not ended.
        :raises kuryr_k8s.errors.CloudError: Octavia does not answer.
        """
        self.survey.check(asking)
        for record in self:
            if load_balancer_id in record.ids:
                return Owned(record.owner, record.namespace, load_balancer_id)
        seen = (record.places.get(load_balancer_id) for record in self)
        tags = next((view.seen.tags for view in seen if view is not None and view.seen), None)
        if tags is None:
            query = {"id": load_balancer_id, "fields": FIELDS}
            rows = await self._octavia.list_load_balancers(query)
            tags = rows[0]["tags"] if rows and self._is_ours(rows[0]) else ()
        owner = owner_tags.owner_of(tags)
        if owner is None or self._mark.others_on(tags) or not set(self._tags) <= set(tags):
            return None
        return Owned(owner, owner_tags.namespace_of(tags), load_balancer_id)

    async def list_all(self) -> list[Json]:
        """List all load balancers of the cluster, and correct the records by that.

        Those with our mark of projects that no Service can belong to are listed, and not recorded.
        """
        return await self.survey.repeat()

    def created(self, owner: Owner, answer: FoundLoadBalancer) -> View:
        """Note that Octavia has begun to create the owner's load balancer."""
        self.survey.doubtful.discard(owner)
        record = self.of(owner)
        record.namespace = owner_tags.namespace_of(answer.tags)
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
        self.survey.doubtful.add(owner)

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
        rows = await self._octavia.list_load_balancers(query)
        self._note(owner, [row for row in _existing(rows) if self._is_ours(row)])

    def concerns(self, row: Json) -> bool:
        """Return whether a load balancer, or a part, can be of this cluster.

        An administrator's account sees those of every project, where anybody can write our tags.
        """
        return row["project_id"] in self._projects

    def _is_ours(self, row: Json) -> bool:
        return self.concerns(row) and not self._mark.others_on(row["tags"])

    def _is_elsewhere(self, row: Json) -> bool:
        """Return whether a load balancer of a project that is not ours bears our mark alone."""
        tags = row["tags"]
        foreign = not self.concerns(row)
        return foreign and self._mark.is_on(tags) and not self._mark.others_on(tags)

    async def _list_all(self, reading: Reading) -> list[Json]:
        before = reading.begin(self._own_views)
        query = {"tags": ",".join(self._tags)}
        listed = await self._octavia.survey(query, self.concerns, reading)
        parts = {each.load_balancer["id"]: each for each in listed}
        rows = []
        by_owner: defaultdict[Owner, list[Json]] = defaultdict(list)
        for row in _existing(each.load_balancer for each in listed):
            owner = owner_tags.owner_of(row["tags"])
            if owner is not None and (self.concerns(row) or self._is_elsewhere(row)):
                rows.append(row)
                if self._is_ours(row):
                    by_owner[owner].append(row)
        for owner, view in before.items():
            if owner not in by_owner and self._own(owner) is view:
                self.doubt(owner)
        for owner, found in by_owner.items():
            # what has changed while the lists were read, they may tell wrongly
            if self._own(owner) is before.get(owner) and owner not in self.survey.doubtful:
                self._compare(self._note(owner, found), parts)
                if len(found) > 1:  # before one goes, Octavia is asked again
                    self.survey.doubtful.add(owner)
        return rows

    def _own_views(self) -> dict[Owner, View]:
        return {record.owner: record.own for record in self if record.own is not None}

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
        # What is assumed of a change under way was not read after this list: the next one is to
        # differ.
        view.digest = None if isinstance(view.phase, Created | Stepped) else digest
        if not self.survey.done:  # later, a change may be under way
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
        known = record.own.id if record.own is not None else ""
        first, *others = sorted(rows, key=lambda row: _rank(row, known))
        record.namespace = owner_tags.namespace_of(first["tags"])
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


def _rank(row: Json, known: str) -> tuple[bool, str, bool, str]:
    """Return the rank of an owner's load balancer; of two of the same second, the known one stays.

    :param known: id of the one that may serve already.
    """
    return _is_leaving(row), row["created_at"], row["id"] != known, row["id"]


def _is_leaving(row: Json) -> bool:
    return row["provisioning_status"] in ("PENDING_DELETE", DELETED)
