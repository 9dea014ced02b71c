"""Listeners and pools that owners have in the load balancers of others.

Tags tell whose they are, so each owner sees, changes and removes only its own. After one list at
the start, the records know where owners have any.
"""

import logging
from collections.abc import Callable, Sequence
from typing import NoReturn

from kuryr_k8s import errors
from kuryr_k8s.cloud.mark import ClusterMark, clusters_on
from kuryr_k8s.cloud.paging import Reading
from kuryr_k8s.drivers.base import DriverContext, Owned
from kuryr_k8s.drivers.base import tags as owner_tags
from kuryr_k8s.drivers.lbaas import ownership, plan
from kuryr_k8s.drivers.lbaas.record import Look, Record, View
from kuryr_k8s.drivers.lbaas.records import Records
from kuryr_k8s.drivers.lbaas.survey import AwaitedSurvey
from kuryr_k8s.drivers.lbaas.work import SOON, Gone, Work
from kuryr_k8s.model.load_balancer import ERROR, FoundLoadBalancer, LoadBalancer
from kuryr_k8s.model.owner import Owner

LOG = logging.getLogger(__name__)
FIELDS = ("id", "tags", "project_id", "loadbalancers")
FORBIDDEN = 403


class Unusable(errors.Refused):
    """The load balancer that an owner names cannot be shared."""

    reason = "KuryrLoadBalancerUnusable"


class Attachments:
    """Parts in the load balancers of others.

    :param tags: the tags that everything of the cluster has.
    :param mark: that tells apart clusters with the same tags.
    :param wake: called for an owner that waited for the survey.
    """

    def __init__(
        self,
        context: DriverContext,
        work: Work,
        records: Records,
        tags: Sequence[str],
        mark: ClusterMark,
        wake: Callable[[Owner], None],
    ) -> None:
        self._mark = mark
        self._octavia = context.octavia
        self._work = work
        self._records = records
        self._tags = tuple(tags)
        self._renewed: dict[str, str] = {}  # former id → id of the load balancer made anew
        self.survey = AwaitedSurvey(context, "attached-parts-survey", self._list_all, wake)

    async def ensure(
        self, owner: Owner, load_balancer_id: str, desired: LoadBalancer
    ) -> FoundLoadBalancer:
        """Bring the owner's parts in the load balancer in line; see :meth:`LBaaSDriver.attach`."""
        self.survey.check(owner)
        record = self.name(owner, load_balancer_id)
        view = self._view(record, self._renewed.get(load_balancer_id, load_balancer_id))
        self._work.check_idle(view)
        try:
            look = await self._look(view)
            self._check_usable(look.own, desired.project_id)
            desired = ownership.for_vip(desired, look.own.vip_address)
            await self._leave(record, but=view.id)
            others = look.others.listeners if look.others else ()
            taken = ownership.find_taken(desired.listeners, others)
            fitting = ownership.without(desired, taken)
            steps = list(plan.steps_inside(fitting, look.own, view.newest_pool))
            if steps:
                view.used = True
            await self._work.take(view, look, fitting, steps)
        except Gone:
            await self._follow(record, load_balancer_id, view.id)
        except Unusable:
            self._work.waiters.add(load_balancer_id, owner)
            await self._leave(record, but=view.id)
            raise
        if not (look.own.listeners or look.own.pools):
            view.used = False
        self._work.refuse_taken(view, look.own, taken)
        return look.own

    async def follow(
        self, owner: Owner, wanted: Callable[[FoundLoadBalancer], LoadBalancer]
    ) -> list[FoundLoadBalancer]:
        """Bring the members of the owner's parts in line; see :meth:`LBaaSDriver.follow`."""
        self.survey.check(owner)
        record, found = self._records.known(owner), []
        for view in list(record.places.values()) if record is not None else ():
            if view.used:
                try:
                    found.append(await self._work.follow(view, wanted))
                except Gone:
                    self.lost(view.id)
                    raise
        return found

    def name(self, owner: Owner, load_balancer_id: str) -> Record:
        """Note which load balancer the owner names."""
        record = self._records.of(owner)
        if record.named is not None and record.named != load_balancer_id:
            self._work.waiters.forget(owner)  # users may name many that never existed
        record.named = load_balancer_id
        return record

    async def leave(self, owner: Owner) -> None:
        """Remove the owner's parts from load balancers of others; return when they are gone."""
        self.survey.check(owner)
        record = self._records.of(owner)
        await self._leave(record)
        record.named = record.repairs = None
        self._work.waiters.forget(owner)
        self._records.tidy(owner)

    def places_of(self, owner: Owner) -> frozenset[str]:
        """Return the ids of the load balancers of others in which the owner may have parts.

        :raises errors.Wait: the survey has not ended.
        """
        self.survey.check(owner)
        record = self._records.known(owner)
        places = record.places.values() if record is not None else ()
        return frozenset(view.id for view in places if view.used)

    def last_seen(self, owner: Owner) -> FoundLoadBalancer | None:
        """Return the load balancer with the owner's parts as it was when last read.

        :returns: None if it has not been read, or if the owner has parts in none or in several.
        """
        record = self._records.known(owner)
        used = [view for view in record.places.values() if view.used] if record is not None else []
        return used[0].seen if len(used) == 1 else None

    # -- questions of the load balancers' owners

    def is_named(self, load_balancer_id: str) -> bool:
        """Return whether another owner is to have parts in the load balancer."""
        return any(record.named == load_balancer_id for record in self._records)

    def is_used(self, load_balancer_id: str, owner: Owner) -> bool:
        """Return whether another owner may have parts in the owner's load balancer.

        :raises errors.Wait: the survey has not ended.
        """
        self.survey.check(owner)
        return any(view.used for view in self._views_of(load_balancer_id))

    def clear(self, load_balancer_id: str) -> None:
        """Note that nobody else has anything that matters in the load balancer."""
        for view in self._views_of(load_balancer_id):
            view.used = False

    def lost(self, load_balancer_id: str) -> None:
        """Note that the load balancer is gone with all its parts.

        Owners that had parts in it are woken when it exists again.
        """
        for view in self._views_of(load_balancer_id):
            record = view.record
            del record.places[load_balancer_id]
            if record.named is not None:
                self._work.waiters.add(record.named, record.owner)
            self._records.tidy(record.owner)

    async def list_all(self) -> list[Owned]:
        """List who has parts in which load balancer, and doubt what is remembered of them."""
        return await self.survey.repeat()

    async def _list_all(self, reading: Reading) -> list[Owned]:
        query = {"tags": ",".join((*self._tags, ownership.SHARED_TAG)), "fields": FIELDS}
        before = [view for record in self._records for view in record.places.values()]
        listeners = await self._octavia.list_listeners(query, reading)
        pools = await self._octavia.list_pools(query, reading)
        found = {
            Owned(
                owner,
                owner_tags.namespace_of(row["tags"]),
                load_balancer["id"],
                clusters_on(row["tags"]),
            )
            for row in (*listeners, *pools)
            if self._records.concerns(row)
            for load_balancer in row["loadbalancers"]
            if (owner := owner_tags.owner_of(row["tags"])) is not None
        }
        for view in before:
            view.doubt()
        for owned in found:
            if not self._mark.others_of(owned.clusters):
                self._view(self._records.of(owned.owner), owned.id).used = True
        return sorted(found, key=lambda owned: owned[:3])

    # -- looking

    def _views_of(self, load_balancer_id: str) -> list[View]:
        views = (record.places.get(load_balancer_id) for record in self._records)
        return [view for view in views if view is not None]

    @staticmethod
    def _view(record: Record, load_balancer_id: str) -> View:
        return record.places.setdefault(load_balancer_id, View(record, load_balancer_id))

    async def _look(self, view: View) -> Look:
        """Look at the owner's parts.

        :raises Gone: the load balancer does not exist.
        :raises Unusable: we may not see it.
        """
        try:
            look = await self._work.look(view)
        except errors.BadRequest as error:
            if error.status != FORBIDDEN:
                raise
            raise Unusable(f"load balancer {view.id} is another project's") from error
        view.foreign = not set(self._tags) <= set(look.own.tags)
        return look

    def _check_usable(self, found: FoundLoadBalancer, project_id: str) -> None:
        """Make sure that the load balancer is the project's, and is not broken.

        :raises Unusable: it is not the project's, or is another cluster's, or is in ERROR.
        """
        if found.project_id != project_id:
            raise Unusable(f"load balancer {found.id} is another project's")
        if self._mark.others_on(found.tags):
            raise Unusable(f"load balancer {found.id} is another cluster's")
        if found.provisioning_status == ERROR:
            raise Unusable(f"load balancer {found.id} is in ERROR")

    async def _follow(self, record: Record, named: str, gone: str) -> NoReturn:
        """Look for the load balancer that was made anew, with another id.

        :raises errors.Wait: there is one.
        :raises Unusable: there is none.
        """
        self._forget(record, gone)
        tags = (*self._tags, ownership.FORMERLY_TAG + named)
        query = {"tags": ",".join(tags), "fields": ("id",)}
        ids = [row["id"] for row in await self._octavia.list_load_balancers(query)]
        renewed = next((each for each in ids if each != gone), None)
        if renewed is None:
            self._renewed.pop(named, None)
            self._work.waiters.add(named, record.owner)
            await self._leave(record)
            raise Unusable(f"there is no load balancer {named}")
        self._renewed[named] = renewed
        raise errors.Wait(f"load balancer {named} has the id {renewed} now", delay=SOON)

    # -- removing

    async def _leave(self, record: Record, but: str = "") -> None:
        """Remove the owner's parts from all load balancers of others.

        :param but: id of the load balancer where they stay.
        """
        for view in [each for each in record.places.values() if each.id != but]:
            if view.used:
                await self._empty(view)
                self._work.waiters.notify(view.id, by=record.owner)
            self._forget(record, view.id)

    async def _empty(self, view: View) -> None:
        self._work.check_idle(view)
        try:
            look = await self._look(view)
            found = look.own
            if found.provisioning_status == ERROR and (found.listeners or found.pools):
                raise Unusable(
                    f"load balancer {view.id} is in ERROR: what is in it cannot be removed"
                )
            steps = plan.steps_inside(ownership.NOTHING, found)
            await self._work.take(view, look, ownership.NOTHING, steps)
        except Gone:
            LOG.info("load balancer %s is gone, with what %s had in it", view.id, view.owner)

    @staticmethod
    def _forget(record: Record, load_balancer_id: str) -> None:
        record.places.pop(load_balancer_id, None)
