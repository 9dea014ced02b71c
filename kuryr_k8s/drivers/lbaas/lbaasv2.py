"""LBaaS driver for Octavia: brings what Octavia has in line with what is wanted, call by call.

The truth is Octavia; load balancers are found again by their tags. Records remember it, so that
what is unchanged costs no call, and a change costs one write.
"""

import contextlib
import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.registry import Collector

from kuryr_k8s import errors
from kuryr_k8s.cloud.mark import clusters_on
from kuryr_k8s.drivers.base import DriverContext, LBaaSDriver, Owned, StillShared, granted
from kuryr_k8s.drivers.base import tags as owner_tags
from kuryr_k8s.drivers.lbaas import ownership, plan
from kuryr_k8s.drivers.lbaas.admission import Urgency
from kuryr_k8s.drivers.lbaas.attached import Attachments
from kuryr_k8s.drivers.lbaas.capabilities import check_groups
from kuryr_k8s.drivers.lbaas.creation import alone, fitting_body
from kuryr_k8s.drivers.lbaas.record import Deletion, View
from kuryr_k8s.drivers.lbaas.records import Records
from kuryr_k8s.drivers.lbaas.repairs import LoadBalancerFailed
from kuryr_k8s.drivers.lbaas.stray_parts import StrayPartSweep
from kuryr_k8s.drivers.lbaas.vip_ports import VIPPortSweep, is_vip_port
from kuryr_k8s.drivers.lbaas.work import IMMUTABLE_LIMIT, SOON, Gone, StillPending, Work
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.metrics import gauge
from kuryr_k8s.model.load_balancer import DELETED, ERROR, FoundLoadBalancer, LoadBalancer
from kuryr_k8s.model.owner import Owner, Role
from kuryr_k8s.model.service import canonical

LOG = logging.getLogger(__name__)
TOO_LARGE = 413  # HTTP status
OF_WHOLE = "resources: Load Balancer"  # in Octavia's words for a quota that is used up
# In a row, of a creation with all parts, until the load balancer is created without them. After
# the first one, whoever wants it may do without what was refused, such as a certificate.
REFUSALS = 2
HEALTHY = ("ONLINE", "NO_MONITOR")  # operating statuses of members that get connections


class LBaaSv2(LBaaSDriver):
    """Driver ``lbaasv2``.

    :param immutable_limit: see :class:`Work`.
    """

    def __init__(self, context: DriverContext, *, immutable_limit: int = IMMUTABLE_LIMIT) -> None:
        super().__init__(context)
        tags = context.conf.neutron_defaults.resource_tags
        if not tags:
            raise errors.ConfigError("[neutron_defaults] resource_tags is not set")
        self._octavia = context.octavia
        self._resource_tags: Sequence[str] = tags
        self._mark = context.neutron.mark
        projects = granted.projects(context.conf)
        self._records = Records(context, tags, self._mark, projects, self.wake)
        self._work = Work(
            context,
            tags,
            self.wake,
            limit=context.conf.octavia_defaults.rebuild_limit,
            longest=context.conf.neutron_defaults.lbaas_activation_timeout,
            immutable_limit=immutable_limit,
        )
        self._attached = Attachments(
            context, self._work, self._records, tags, self._mark, self.wake
        )
        self._vip_ports = VIPPortSweep(context)
        self._stray_parts = StrayPartSweep(context)
        self._refused: Counter[Owner] = Counter()  # creations with all parts, in a row
        self._surveys = first, second = (self._records.survey, self._attached.survey)
        first.beside, second.beside = second, first

    @property
    def _tags(self) -> Sequence[str]:
        """The tags of everything that is created here."""
        return (*self._resource_tags, self._mark.tag)

    def loops(self) -> Sequence[Controller[str]]:
        """Return the surveys, the watch of what is PENDING, and the sweeps of what is left."""
        surveys = (survey.loop for survey in self._surveys)
        sweeps = self._vip_ports.loop, self._stray_parts.loop
        return (*surveys, self._work.pending.loop, *sweeps)

    def checks(self) -> Mapping[str, Callable[[], bool]]:
        """Return the check that no survey keeps Services waiting."""
        return {"load balancers known": lambda: not self._is_surveying()}

    def _is_surveying(self) -> bool:
        return any(survey.is_running for survey in self._surveys)

    def collectors(self) -> Sequence[Collector]:
        """Return the metrics of surveys, of changes that wait, and of parts that stay for ever."""
        admission, surveys = self._work.admission, self._surveys
        return (
            *self._stray_parts.collectors(),
            gauge(
                "kuryr_load_balancer_survey_running",
                "1 while the load balancers of the cluster are listed for the first time",
                self._is_surveying,
            ),
            gauge(
                "kuryr_load_balancer_survey_objects",
                "Load balancers, listeners, pools and monitors that these lists have shown",
                lambda: sum(survey.objects for survey in surveys),
            ),
            gauge(
                "kuryr_load_balancer_changes_limit",
                "Load balancers that may be PENDING at a time",
                lambda: admission.limit,
            ),
            gauge(
                "kuryr_load_balancer_changes_waiting",
                "Load balancers that wait for others before they are changed",
                lambda: admission.waiting,
            ),
        )

    async def ensure(self, owner: Owner, desired: LoadBalancer) -> FoundLoadBalancer:
        desired = ownership.tagged(desired, owner, self._tags)
        view = await self._records.own_view(owner)
        if view is None:
            self._work.nothing_broken(self._records.known(owner))
            raise await self._create(owner, plan.attainable(desired))
        self._work.check_idle(view)
        await self._remove_duplicates(view)
        return await self._bring_in_line(view, desired)

    async def follow(
        self, owner: Owner, wanted: Callable[[FoundLoadBalancer], LoadBalancer]
    ) -> list[FoundLoadBalancer]:
        found = await self._attached.follow(owner, wanted)
        view = await self._records.own_view(owner)
        if view is not None:
            with self._noting_loss(view):
                found.append(await self._work.follow(view, wanted))
        return found

    async def attach(
        self, owner: Owner, load_balancer_id: str, desired: LoadBalancer
    ) -> FoundLoadBalancer:
        desired = ownership.tagged(desired, owner, self._tags, shared=True)
        return await self._attached.ensure(owner, load_balancer_id, desired)

    async def wish(self, owner: Owner, load_balancer_id: str) -> None:
        self._attached.name(owner, load_balancer_id)

    async def release(self, owner: Owner) -> None:
        await self._attached.leave(owner)
        view = await self._records.own_view(owner)
        if view is not None:
            if self._attached.is_used(view.id, owner):
                await self._hold(view)
            ids = (view.id, *view.duplicates)
            for load_balancer_id in ids:
                await self._remove(view, load_balancer_id)
            left = [each for each in ids if view.deletions.get(each) is not Deletion.DONE]
            if left:
                raise self._work.at_work(view, None if self._work.pending.has_all(left) else SOON)
            self._attached.lost(view.id)
            self._work.waiters.notify(*ids, *view.former, by=owner)
        self._records.released(owner)
        self._work.forget(owner)
        self._refused.pop(owner, None)

    async def ids_of(self, owner: Owner) -> frozenset[str]:
        view = await self._records.own_view(owner)
        current = frozenset() if view is None else view.former | {view.id}
        return current | self._records.former_of(owner)

    async def exists(self, owner: Owner) -> bool:
        return await self._records.own_view(owner) is not None

    async def owner_of(self, load_balancer_id: str, asking: Owner) -> Owned | None:
        return await self._records.owner_of(load_balancer_id, asking)

    async def places_of(self, owner: Owner) -> frozenset[str]:
        return self._attached.places_of(owner)

    async def last_seen(self, owner: Owner) -> FoundLoadBalancer | None:
        view = await self._records.own_view(owner)
        return view.seen if view is not None else self._attached.last_seen(owner)

    async def not_online(self, found: FoundLoadBalancer) -> frozenset[str]:
        pools = [each for each in found.pools if each.pool.health_monitor is not None]
        if not pools:
            return frozenset()
        try:
            shown = (await self._octavia.status_tree(found.id)).operating
        except errors.NotFound:
            shown = {}
        healthy = {
            (pool_id, address.value)
            for pool_id, statuses in shown.items()
            for address, status in statuses.items()
            if status in HEALTHY
        }
        return frozenset(
            canonical(member.address)
            for each in pools
            for member in each.pool.members
            if (each.id, member.key.value) not in healthy
        )

    async def is_shared(self, owner: Owner) -> bool:
        view = await self._records.own_view(owner)
        if view is None or not self._attached.is_used(view.id, owner):
            return False
        self._work.waiters.add(view.id, owner)
        return True

    async def list_owned(self) -> list[Owned]:
        owned = [
            Owned(
                owner,
                owner_tags.namespace_of(row["tags"]),
                row["id"],
                clusters_on(row["tags"]),
                elsewhere=not self._records.concerns(row),
            )
            for row in await self._records.list_all()
            if (owner := owner_tags.owner_of(row["tags"])) is not None
        ]
        return owned + await self._attached.list_all()

    def made(self, port: Mapping[str, Any]) -> bool:
        return is_vip_port(port)

    # -- changing

    async def _bring_in_line(self, view: View, desired: LoadBalancer) -> FoundLoadBalancer:
        """Take one step towards the desired state; return only if none is left.

        Ports that attached owners have are left to them: whoever comes later is refused.
        """
        with self._noting_loss(view):
            look = await self._work.look(view)
            check_groups(desired, desired.provider or look.own.provider)
            others = look.others.listeners if look.others else ()
            taken = ownership.find_taken(desired.listeners, others)
            fitting = ownership.without(desired, taken)
            planned = plan.steps(fitting, look.own, view.newest_pool, view.had_turn)
            await self._work.take(view, look, fitting, planned)
        self._work.refuse_taken(view, look.own, taken)
        return look.own

    @contextlib.contextmanager
    def _noting_loss(self, view: View) -> Iterator[None]:
        """Note that a load balancer is gone, with what others had in it, where that shows."""
        try:
            yield
        except Gone:
            self._attached.lost(view.id)
            self._records.doubt(view.owner)
            raise

    async def _create(self, owner: Owner, desired: LoadBalancer) -> errors.Wait | StillPending:
        """Have Octavia begin to create the load balancer; return the error to wait with.

        One call creates it with all that it contains, or Octavia refuses all of it. What is too
        much for one call comes step by step; so do all parts after they were refused together:
        one that cannot be had holds up no other.

        If other owners name one that this owner had before, a tag leads them to the new one.
        """
        named = sorted(filter(self._attached.is_named, self._records.former_of(owner)))
        former = tuple(f"{ownership.FORMERLY_TAG}{each}" for each in named)
        await self._work.capabilities.check(desired)
        choices = await self._work.capabilities.pool_choices()
        urgency = Urgency.SERVING if desired.has_members() else Urgency.USUAL
        with self._work.admission.sending(owner, urgency):
            self._records.doubt(owner)  # until there is an answer
            wanted = dataclasses.replace(desired, tags=desired.tags + former)
            was_refused = self._refused[owner] >= REFUSALS
            body = fitting_body(alone(wanted) if was_refused else wanted, choices)
            try:
                answer = await self._octavia.create_load_balancer(body)
            except errors.CloudError as error:
                if error.status:
                    # the VIP's port may have stayed
                    self._vip_ports.search_after(self._context.patience.refused_vip)
                if isinstance(error, errors.Refused | errors.OverQuota | errors.Conflict):
                    with contextlib.suppress(errors.CloudError):
                        await self._vip_ports.remove_left_by(desired)
                if not was_refused and _is_of_part(error, owner):
                    self._refused[owner] += 1
                    if self._refused[owner] >= REFUSALS:
                        LOG.warning("%s: its load balancer comes step by step: %s", owner, error)
                        raise errors.Wait("the load balancer comes alone", delay=SOON) from error
                raise
            self._refused.pop(owner, None)
            view = self._records.created(owner, answer)
            self._work.pending.watch(view.id, owner, "PENDING_CREATE")
            return self._work.at_work(view)

    # -- removing

    async def _hold(self, view: View) -> None:
        """Remove the owner's parts; keep the load balancer while others have parts in it.

        :raises StillShared: they have.
        :raises errors.Wait: they have not, or nothing can be removed from it any more.
        """
        self._work.check_idle(view)
        view.doubt()
        try:
            look = await self._work.look(view)
        except Gone:
            self._records.doubt(view.owner)
            raise
        others = look.others
        if (
            others is None
            or not (others.listeners or others.pools)
            or look.own.provisioning_status == ERROR
        ):
            self._attached.clear(view.id)
            raise errors.Wait(f"load balancer {view.id} is not shared any more", delay=SOON)
        steps = plan.steps_inside(ownership.NOTHING, look.own)
        await self._work.take(view, look, ownership.NOTHING, steps)
        self._work.waiters.add(view.id, view.owner)
        names = [each.listener.name for each in others.listeners] or [
            each.pool.name for each in others.pools
        ]
        raise StillShared(
            f"load balancer {view.id} is shared and stays until others have left it: "
            + ", ".join(sorted(names))
        )

    async def _remove_duplicates(self, view: View) -> None:
        """Delete what a second creation made.

        :raises errors.Wait: Octavia does not begin to, as it is at work on it.
        """
        for duplicate in view.duplicates - view.deletions.keys():
            LOG.warning("load balancer %s goes: %s has the same owner", duplicate, view.id)
            await self._remove(view, duplicate)
            if duplicate not in view.deletions:
                delay = None if duplicate in self._work.pending else SOON
                raise self._work.at_work(view, delay)

    async def _remove(self, view: View, load_balancer_id: str) -> None:
        """Delete a load balancer, or see whether it is gone by now.

        While it is PENDING, it is watched.

        :raises errors.Wait: parts of it are being made.
        :raises LoadBalancerFailed: it could not be deleted; the next call tries again.
        """
        pending, deletion = self._work.pending, view.deletions.get(load_balancer_id)
        if deletion is Deletion.DONE:
            return
        if load_balancer_id in pending:
            pending.watch(load_balancer_id, view.owner, "")
            return
        if deletion is None:
            urgency = Urgency.NEVER_SERVED if view.seen is None else Urgency.USUAL
            self._work.admission.check(view.owner, urgency)
            if load_balancer_id == view.id:
                await self._work.await_parts(view)
            with self._work.admission.sending(view.owner, urgency):
                if load_balancer_id == view.id:
                    view.begin()
                try:
                    await self._octavia.delete_load_balancer(load_balancer_id)
                except errors.Immutable:
                    pass
                else:
                    view.deletions[load_balancer_id] = Deletion.BEGUN
                    pending.watch(load_balancer_id, view.owner, "PENDING_DELETE")
                    return
        statuses = await self._octavia.statuses({"id": load_balancer_id})
        status = statuses.get(load_balancer_id, DELETED)
        if status == DELETED:
            view.deletions[load_balancer_id] = Deletion.DONE
        elif status.startswith("PENDING"):
            pending.watch(load_balancer_id, view.owner, status)
        else:
            view.deletions.pop(load_balancer_id, None)
            if status == ERROR:
                raise LoadBalancerFailed(
                    f"Octavia could not delete load balancer {load_balancer_id}"
                )


def _is_of_part(error: errors.CloudError, owner: Owner) -> bool:
    """Return whether the load balancer may be had without the parts that were created with it.

    What is in a router's is of many users; what is in a Service's, of one, who is told.
    """
    if error.status == TOO_LARGE:
        return True
    of_whole = isinstance(error, errors.NoAddress) or OF_WHOLE in error.brief
    return owner.role is Role.L7_ROUTER and error.is_of_request and not of_whole
