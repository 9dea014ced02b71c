"""Records of the floating IPs of this cluster's Services.

After a start, one list tells of all of them. From then on, an owner without a known floating IP
has none, unless a write was not answered: then Neutron is asked again, about this owner.

Those with the mark of another cluster come into no record, so they are never touched. Anybody can
write marks on a floating IP, and an administrator's account sees those of every
project: a floating IP of a project that no Service can belong to is nobody's.
"""

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from kuryr_k8s.cloud.neutron.floating_ips import FloatingIP, FloatingIPs
from kuryr_k8s.cloud.paging import Reading, in_queries
from kuryr_k8s.cloud.transport import Query
from kuryr_k8s.drivers.base import Owned
from kuryr_k8s.drivers.base import tags as owner_tags
from kuryr_k8s.drivers.base.survey import Survey
from kuryr_k8s.drivers.public_ip.marks import Marks
from kuryr_k8s.model.owner import Owner


class Records:
    """Floating IPs by owner.

    :param projects: the projects that Services can belong to.
    """

    def __init__(self, floating_ips: FloatingIPs, marks: Marks, projects: Collection[str]) -> None:
        self._floating_ips = floating_ips
        self._marks = marks
        self._projects = projects
        self._known: dict[Owner, dict[str, FloatingIP]] = {}  # by id
        self._touched: set[Owner] = set()  # owners with changes since a list was begun
        self._survey = Survey[Owner, list[Owned]](self._list_all)

    async def of(self, owner: Owner) -> list[FloatingIP]:
        """Return the owner's floating IPs, the oldest first; ask Neutron if they are in doubt.

        :raises kuryr_k8s.errors.CloudError: Neutron does not answer.
        """
        await self._survey.verify(owner, self._ask)
        return sorted(
            self._known.get(owner, {}).values(), key=lambda each: (each.created_at, each.id)
        )

    @contextlib.contextmanager
    def changing(self, owner: Owner) -> Iterator[None]:
        """Doubt the record if a write to one of the owner's floating IPs raises."""
        self._survey.doubtful.add(owner)
        self._touched.add(owner)
        yield
        self._survey.doubtful.discard(owner)

    def learn(self, owner: Owner, floating_ip: FloatingIP) -> None:
        """Note the state of one of the owner's floating IPs."""
        self._known.setdefault(owner, {})[floating_ip.id] = floating_ip

    def forget(self, owner: Owner, floating_ip: FloatingIP) -> None:
        """Note that the floating IP is not the owner's any more."""
        left = self._known.get(owner, {})
        left.pop(floating_ip.id, None)
        if not left:
            self._known.pop(owner, None)

    async def list_all(self) -> list[Owned]:
        """List all floating IPs of Services, and correct the records by that."""
        return await self._survey.repeat()

    async def _list_all(self, reading: Reading) -> list[Owned]:
        """List the floating IPs of our projects, which have few.

        No query finds both those with our tags and those with our description only.
        """
        doubtful = reading.begin(self._begin)
        rows = [
            row
            for some in in_queries(sorted(self._projects))
            for row in await self._floating_ips.list_all({"project_id": some}, reading)
        ]
        found = self._by_owner(row for row in rows if not self._is_anothers(row))
        for owner in (found.keys() | self._known.keys()) - doubtful - self._touched:
            if self._known.get(owner, {}).keys() <= found.get(owner, {}).keys():
                self._note(owner, found[owner])
            else:  # a list proves nothing about what it does not show
                self._survey.doubtful.add(owner)
        return [
            Owned(
                owner, owner_tags.namespace_of(each.tags), each.id, self._marks.clusters_of(each)
            )
            for owner, by_id in self._by_owner(rows).items()
            for each in by_id.values()
        ]

    def _begin(self) -> set[Owner]:
        """Note who is touched from now on; return who is in doubt."""
        self._touched.clear()
        return set(self._survey.doubtful)

    def _is_anothers(self, row: FloatingIP) -> bool:
        """Return whether the floating IP bears the mark of another cluster."""
        return bool(self._marks.mark.others_of(self._marks.clusters_of(row)))

    async def _ask(self, owner: Owner) -> None:
        queries: tuple[Query, ...] = (
            {"tags": ",".join(self._marks.search_tags(owner))},
            {"description": list(self._marks.descriptions_of(owner))},
            *({"id": some} for some in in_queries(self._known.get(owner, {}))),
        )
        rows = [row for query in queries for row in await self._floating_ips.list_all(query)]
        ours = (row for row in rows if not self._is_anothers(row))
        self._note(owner, self._by_owner(ours).get(owner, {}))

    def _by_owner(self, rows: Iterable[FloatingIP]) -> dict[Owner, dict[str, FloatingIP]]:
        found: defaultdict[Owner, dict[str, FloatingIP]] = defaultdict(dict)
        for row in rows:
            if row.project_id in self._projects and (owner := self._marks.owner_of(row)):
                found[owner][row.id] = row
        return dict(found)

    def _note(self, owner: Owner, by_id: dict[str, FloatingIP]) -> None:
        self._known.pop(owner, None)
        for floating_ip in by_id.values():
            self.learn(owner, floating_ip)
