"""Listeners and pools that are attached to the load balancers of others.

Whose they are stands in their tags: so each owner sees, changes and removes its own alone. Where
owners have any is remembered after one list of them all at the start.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.drivers.base import Owned
from kuryr_k8s.drivers.lbaas import parts as lb_parts
from kuryr_k8s.drivers.lbaas import plan as lb_plan
from kuryr_k8s.drivers.lbaas import tags as lb_tags
from kuryr_k8s.drivers.lbaas.memory import Known
from kuryr_k8s.drivers.lbaas.work import SOON, Gone, Wake, Work
from kuryr_k8s.model.load_balancer import ERROR, FoundLoadBalancer, LoadBalancer

LOG = logging.getLogger(__name__)
FIELDS = ("id", "tags", "loadbalancers")
FORBIDDEN = 403


class Unusable(errors.Refused):
    """The load balancer that is named cannot be shared."""

    reason = "KuryrLoadBalancerUnusable"


class Named(NamedTuple):
    """What an owner names, and how to have it look again."""

    load_balancer_id: str
    wake: Wake


class Attachments:
    """:param tags: what everything of the cluster has."""

    def __init__(self, octavia: Octavia, work: Work, tags: Sequence[str]) -> None:
        self._octavia = octavia
        self._work = work
        self._tags = tuple(tags)
        self._places: dict[str, dict[str, Known]] = {}  # of each owner, by load balancer
        self._used: set[tuple[str, str]] = set()  # those in which the owner may have something
        self._named: dict[str, Named] = {}
        self._now: dict[str, str] = {}  # ids of load balancers that were made anew, by the old one
        self._surveyed = False
        self._surveying = asyncio.Lock()

    async def ensure(
        self, owner: str, load_balancer_id: str, desired: LoadBalancer, wake: Wake
    ) -> FoundLoadBalancer:
        """As :meth:`LBaaSDriver.attach`."""
        await self._survey()
        before = self._named.get(owner)
        if before is not None and before.load_balancer_id != load_balancer_id:
            self._work.waiters.forget(owner)  # users may name many that there never were
        self._named[owner] = Named(load_balancer_id, wake)
        known = self._known(owner, self._now.get(load_balancer_id, load_balancer_id))
        self._work.check_idle(owner, known, wake)
        try:
            found = await self._look(owner, known)
            self._check(found, desired.project_id)
            desired = lb_parts.for_vip(desired, found.vip_address)
            await self._leave(owner, wake, but=known.id)
            others = known.rest.listeners if known.rest else ()
            taken = lb_parts.taken_of(desired.listeners, others)
            fitting = lb_parts.without(desired, taken)
            step = lb_plan.next_step_inside(fitting, found)
            if step is not None:
                self._used.add((owner, known.id))
            await self._work.take(owner, known, found, fitting, step, wake)
        except Gone:
            await self._follow(owner, load_balancer_id, known.id, wake)
        except Unusable:
            self._work.waiters.add(load_balancer_id, owner, wake)
            await self._leave(owner, wake, but=known.id)
            raise
        if not (found.listeners or found.pools):
            self._used.discard((owner, known.id))
        self._work.refuse_taken(owner, known, found, taken, wake)
        return found

    async def leave(self, owner: str, wake: Wake) -> None:
        """Remove what the owner has in load balancers of others; on return it is gone."""
        await self._survey()
        await self._leave(owner, wake)
        self._named.pop(owner, None)
        self._work.forget(owner)

    # -- what the owners of the load balancers ask

    def is_named(self, load_balancer_id: str) -> bool:
        """Whether somebody is to have something in it."""
        return any(one.load_balancer_id == load_balancer_id for one in self._named.values())

    async def is_used(self, load_balancer_id: str) -> bool:
        """Whether somebody may have something in it."""
        await self._survey()
        return any(place == load_balancer_id for _owner, place in self._used)

    def clear(self, load_balancer_id: str) -> None:
        """Nobody has anything in it that matters."""
        self._used = {one for one in self._used if one[1] != load_balancer_id}

    def lost(self, load_balancer_id: str) -> None:
        """It is gone, with all that was in it; who had something in it, will look when it is
        there again."""
        for owner, places in list(self._places.items()):
            if load_balancer_id in places:
                self._forget(owner, load_balancer_id)
                if owner in self._named:
                    named = self._named[owner]
                    self._work.waiters.add(named.load_balancer_id, owner, named.wake)

    async def list_all(self) -> list[Owned]:
        """Who has something in which load balancer, by Octavia's word; what is remembered of it
        is forgotten."""
        query = {"tags": ",".join((*self._tags, lb_tags.SHARED_TAG)), "fields": FIELDS}
        before = [one for places in self._places.values() for one in places.values()]
        found = {
            Owned(lb_tags.owner_of(row["tags"]), lb_tags.namespace_of(row["tags"]), each["id"])
            for row in await self._octavia.list_parts(query)
            for each in row["loadbalancers"]
        }
        for known in before:
            known.tree = None
        for one in found:
            self._known(one.owner, one.id)
            self._used.add((one.owner, one.id))
        self._surveyed = True
        return sorted(found)

    # -- looking

    async def _survey(self) -> None:
        async with self._surveying:
            if not self._surveyed:
                await self.list_all()

    def _known(self, owner: str, load_balancer_id: str) -> Known:
        places = self._places.setdefault(owner, {})
        return places.setdefault(load_balancer_id, Known(id=load_balancer_id))

    async def _look(self, owner: str, known: Known) -> FoundLoadBalancer:
        """:raises Gone: it is not there.
        :raises Unusable: we may not see it.
        """
        try:
            found = await self._work.look(owner, known)
        except errors.BadRequest as error:
            if error.status != FORBIDDEN:
                raise
            raise Unusable(f"load balancer {known.id} is another project's") from error
        known.foreign = not set(self._tags) <= set(found.tags)
        return found

    @staticmethod
    def _check(found: FoundLoadBalancer, project_id: str) -> None:
        """:raises Unusable: it is not the project's, or broken."""
        if found.project_id != project_id:
            raise Unusable(f"load balancer {found.id} is another project's")
        if found.provisioning_status == ERROR:
            raise Unusable(f"load balancer {found.id} is in ERROR")

    async def _follow(self, owner: str, named: str, gone: str, wake: Wake) -> NoReturn:
        """It may have been made anew, and have another id.

        :raises errors.Wait: so it is.
        :raises Unusable: it is not.
        """
        self._forget(owner, gone)
        query = {"tags": ",".join((*self._tags, lb_tags.FORMERLY_TAG + named)), "fields": ("id",)}
        rows = [row["id"] for row in await self._octavia.list_load_balancers(query)]
        now = next((one for one in rows if one != gone), None)
        if now is None:
            self._now.pop(named, None)
            self._work.waiters.add(named, owner, wake)
            await self._leave(owner, wake)
            raise Unusable(f"there is no load balancer {named}")
        self._now[named] = now
        raise errors.Wait(f"load balancer {named} has the id {now} now", delay=SOON)

    # -- removing

    async def _leave(self, owner: str, wake: Wake, but: str = "") -> None:
        """:param but: id of the load balancer where it stays."""
        for known in [one for one in self._places.get(owner, {}).values() if one.id != but]:
            if (owner, known.id) in self._used:
                await self._empty(owner, known, wake)
                self._work.waiters.wake(known.id, but=owner)
            self._forget(owner, known.id)

    async def _empty(self, owner: str, known: Known, wake: Wake) -> None:
        self._work.check_idle(owner, known, wake)
        try:
            found = await self._look(owner, known)
            if found.provisioning_status == ERROR and (found.listeners or found.pools):
                raise Unusable(
                    f"load balancer {known.id} is in ERROR: what is in it cannot be removed"
                )
            step = lb_plan.next_step_inside(lb_parts.NOTHING, found)
            await self._work.take(owner, known, found, lb_parts.NOTHING, step, wake)
        except Gone:
            LOG.info("load balancer %s is gone, with what %s had in it", known.id, owner)

    def _forget(self, owner: str, load_balancer_id: str) -> None:
        self._used.discard((owner, load_balancer_id))
        places = self._places.get(owner, {})
        places.pop(load_balancer_id, None)
        if not places:
            self._places.pop(owner, None)
