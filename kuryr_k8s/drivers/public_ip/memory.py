"""What is known of the floating IPs of this cluster's Services.

After a start one list tells of all. From then on an owner of whom nothing is known has none,
except where a write had no answer: there Neutron is asked again, for those of this owner.

Marks are text that anybody can write on a floating IP, and an administrator's account sees those
of every project: what is of none that Services can be of, is nobody's.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from kuryr_k8s.cloud.neutron.floating_ips import FloatingIP, FloatingIPs
from kuryr_k8s.drivers.base import Owned
from kuryr_k8s.drivers.lbaas import tags as lb_tags
from kuryr_k8s.drivers.public_ip.marks import Marks


class Memory:
    def __init__(self, floating_ips: FloatingIPs, marks: Marks, projects: Collection[str]) -> None:
        self._floating_ips = floating_ips
        self._marks = marks
        self._projects = projects
        self._known: dict[str, dict[str, FloatingIP]] = {}  # of each owner, by id
        self._unsure: set[str] = set()  # owners of whom we do not know for certain
        self._touched: set[str] = set()  # owners with changes since a list was begun
        self._surveyed = False
        self._surveying = asyncio.Lock()

    async def of(self, owner: str) -> list[FloatingIP]:
        """Those of the owner, the oldest first; Neutron is asked where nobody can tell.

        :raises kuryr_k8s.errors.CloudError: it does not answer.
        """
        if not self._surveyed:
            await self._survey()
        if owner in self._unsure:
            await self._ask(owner)
        return sorted(
            self._known.get(owner, {}).values(), key=lambda one: (one.created_at, one.id)
        )

    @contextlib.contextmanager
    def changing(self, owner: str) -> Iterator[None]:
        """While one of the owner's is written; what raises leaves it unsure whether it was."""
        self._unsure.add(owner)
        self._touched.add(owner)
        yield
        self._unsure.discard(owner)

    def learn(self, owner: str, one: FloatingIP) -> None:
        """It is so."""
        self._known.setdefault(owner, {})[one.id] = one

    def forget(self, owner: str, one: FloatingIP) -> None:
        """It is the owner's no more."""
        left = self._known.get(owner, {})
        left.pop(one.id, None)
        if not left:
            self._known.pop(owner, None)

    async def list_all(self) -> list[Owned]:
        """All with their owners and namespaces (empty: nobody knows) by Neutron's word, which
        corrects what is known."""
        async with self._surveying:
            return await self._list_all()

    async def _survey(self) -> None:
        async with self._surveying:
            if not self._surveyed:
                await self._list_all()

    async def _list_all(self) -> list[Owned]:
        """No query finds both those with our tags and those that have our description only: so
        the project's are listed, of which there are few."""
        unsure = set(self._unsure)
        self._touched.clear()
        rows = await self._floating_ips.list_all({})
        found = self._by_owner(rows)
        for owner in (found.keys() | self._known.keys()) - unsure - self._touched:
            self._note(owner, found.get(owner, {}))
        self._surveyed = True
        return [
            Owned(owner, lb_tags.namespace_of(one.tags), one.id)
            for owner, those in found.items()
            for one in those.values()
        ]

    async def _ask(self, owner: str) -> None:
        queries = (
            {"tags": ",".join(self._marks.search_for(owner))},
            {"description": self._marks.description_of(owner)},
        )
        rows = [one for query in queries for one in await self._floating_ips.list_all(query)]
        self._note(owner, self._by_owner(rows).get(owner, {}))
        self._unsure.discard(owner)

    def _by_owner(self, rows: Iterable[FloatingIP]) -> dict[str, dict[str, FloatingIP]]:
        found: defaultdict[str, dict[str, FloatingIP]] = defaultdict(dict)
        for one in rows:
            if one.project_id in self._projects and (owner := self._marks.owner_of(one)):
                found[owner][one.id] = one
        return dict(found)

    def _note(self, owner: str, those: dict[str, FloatingIP]) -> None:
        self._known.pop(owner, None)
        for one in those.values():
            self.learn(owner, one)
