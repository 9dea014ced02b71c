"""Load balancers of Octavia: what is found there is brought, call by call, to what is wanted.

The truth is Octavia, and is found again by tags. It is remembered: so what is unchanged asks
nothing, and a change is its one write. What a call does, and when it has come to its end, is the
business of :mod:`kuryr_k8s.drivers.lbaas.work`; what is in the load balancers of others, that of
:mod:`kuryr_k8s.drivers.lbaas.attached`.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Sequence

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia import bodies as octavia_bodies
from kuryr_k8s.drivers.base import DriverContext, LBaaSDriver, Owned
from kuryr_k8s.drivers.lbaas import parts as lb_parts
from kuryr_k8s.drivers.lbaas import plan as lb_plan
from kuryr_k8s.drivers.lbaas import tags as lb_tags
from kuryr_k8s.drivers.lbaas.attached import Attachments
from kuryr_k8s.drivers.lbaas.leftovers import Leftovers
from kuryr_k8s.drivers.lbaas.limits import Limits
from kuryr_k8s.drivers.lbaas.memory import Known, Memory
from kuryr_k8s.drivers.lbaas.pending import PendingLoadBalancers
from kuryr_k8s.drivers.lbaas.repairs import LoadBalancerFailed
from kuryr_k8s.drivers.lbaas.vip_ports import VIPPortSweep
from kuryr_k8s.drivers.lbaas.work import SOON, Gone, StillPending, Wake, Work
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.model.load_balancer import DELETED, ERROR, FoundLoadBalancer, LoadBalancer

LOG = logging.getLogger(__name__)


class LBaaSv2(LBaaSDriver):
    """Load balancers of Octavia, told apart by their tags."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        tags = context.conf.neutron_defaults.resource_tags
        if not tags:
            raise errors.ConfigError("[neutron_defaults] resource_tags is not set")
        self._octavia = context.octavia
        self._limits = Limits(self._octavia)
        self._leftovers = Leftovers(context.neutron, self._octavia)
        self._memory = Memory(self._octavia, tags)
        self.pending = PendingLoadBalancers(context, self._octavia, tags)
        self._work = Work(
            self._octavia,
            self.pending,
            self._limits,
            limit=context.conf.octavia_defaults.rebuild_limit,
            longest=context.conf.neutron_defaults.lbaas_activation_timeout,
        )
        self._attached = Attachments(self._octavia, self._work, tags)
        self._vip_ports = VIPPortSweep(context)

    def loops(self) -> Sequence[Controller[str]]:
        """Return the watch of what is PENDING, and the sweep of VIPs' ports."""
        return (self.pending.loop, self._vip_ports.loop)

    async def ensure(self, owner: str, desired: LoadBalancer, wake: Wake) -> FoundLoadBalancer:
        known = await self._memory.of(owner)
        if known is None:
            self._work.consider(owner, None, None)
            raise await self._create(owner, lb_plan.attainable(desired), wake)
        self._work.check_idle(owner, known, wake)
        await self._remove_surplus(owner, known, wake)
        return await self._bring(owner, known, desired, wake)

    async def release(self, owner: str, wake: Wake) -> None:
        await self._attached.leave(owner, wake)
        known = await self._memory.of(owner)
        if known is not None:
            if await self._attached.is_used(known.id):
                await self._hold(owner, known, wake)
            ids = (known.id, *known.surplus)
            for one in ids:
                await self._remove(owner, known, one, wake)
            left = [one for one in ids if one not in known.gone]
            if left:
                raise self._work.at_work(known, None if self.pending.has_all(left) else SOON)
            self._attached.lost(known.id)
            self._work.waiters.wake(*ids, *known.former, but=owner)
        self._memory.forget(owner)
        self._work.forget(owner)

    async def attach(
        self, owner: str, load_balancer_id: str, desired: LoadBalancer, wake: Wake
    ) -> FoundLoadBalancer:
        return await self._attached.ensure(owner, load_balancer_id, desired, wake)

    async def ids_of(self, owner: str) -> frozenset[str]:
        known = await self._memory.of(owner)
        now = frozenset() if known is None else known.former | {known.id}
        return now | self._memory.former_of(owner)

    async def is_shared(self, owner: str, wake: Wake) -> bool:
        known = await self._memory.of(owner)
        if known is None or not await self._attached.is_used(known.id):
            return False
        self._work.waiters.add(known.id, owner, wake)
        return True

    async def list_owned(self) -> list[Owned]:
        rows = await self._memory.list_all()
        made = [
            Owned(lb_tags.owner_of(row["tags"]), lb_tags.namespace_of(row["tags"]), row["id"])
            for row in rows
        ]
        return made + await self._attached.list_all()

    # -- changing

    async def _bring(
        self, owner: str, known: Known, desired: LoadBalancer, wake: Wake
    ) -> FoundLoadBalancer:
        """One step nearer to what is wanted; on return it is so.

        Ports that those who are attached have are not had: whoever comes later is refused.
        """
        try:
            found = await self._work.look(owner, known)
            taken = lb_parts.taken_of(
                desired.listeners, known.rest.listeners if known.rest else ()
            )
            fitting = lb_parts.without(desired, taken)
            step = lb_plan.next_step(fitting, found)
            await self._work.take(owner, known, found, fitting, step, wake)
        except Gone:
            self._attached.lost(known.id)
            self._memory.doubt(owner)
            raise
        self._work.refuse_taken(owner, known, found, taken, wake)
        return found

    async def _create(
        self, owner: str, desired: LoadBalancer, wake: Wake
    ) -> errors.Wait | StillPending:
        """Where others name one that was there before, they find this one by its tags."""
        named = sorted(filter(self._attached.is_named, self._memory.former_of(owner)))
        former = tuple(f"{lb_tags.FORMERLY_TAG}{one}" for one in named)
        await self._limits.check(desired)
        self._memory.doubt(owner)  # until there is an answer
        wanted = dataclasses.replace(desired, tags=desired.tags + former)
        try:
            made = await self._octavia.create_load_balancer(octavia_bodies.create_body(wanted))
        except errors.CloudError as error:
            if error.status:
                # the VIP's port may have stayed
                self._vip_ports.search_after(self._context.patience.refused_vip)
            if isinstance(error, errors.Refused | errors.OverQuota):
                with contextlib.suppress(errors.CloudError):
                    await self._leftovers.remove(desired)
            raise
        known = self._memory.created(owner, made)
        self.pending.watch(made.id, owner, "PENDING_CREATE", wake)
        return self._work.at_work(known)

    # -- removing

    async def _hold(self, owner: str, known: Known, wake: Wake) -> None:
        """What is the owner's in it goes, and it stays while others have something in it.

        :raises lb_parts.StillShared: they do.
        :raises errors.Wait: they do not, or nothing can be taken out of it any more.
        """
        self._work.check_idle(owner, known, wake)
        known.tree = None
        try:
            found = await self._work.look(owner, known)
        except Gone:
            self._memory.doubt(owner)
            raise
        rest = known.rest
        if (
            rest is None
            or not (rest.listeners or rest.pools)
            or found.provisioning_status == ERROR
        ):
            self._attached.clear(known.id)
            raise errors.Wait(f"load balancer {known.id} is not shared any more", delay=SOON)
        nothing = lb_plan.next_step_inside(lb_parts.NOTHING, found)
        await self._work.take(owner, known, found, lb_parts.NOTHING, nothing, wake)
        self._work.waiters.add(known.id, owner, wake)
        names = [one.listener.name for one in rest.listeners] or [
            one.pool.name for one in rest.pools
        ]
        raise lb_parts.StillShared(
            f"load balancer {known.id} is shared and stays until others have left it: "
            + ", ".join(sorted(names))
        )

    async def _remove_surplus(self, owner: str, known: Known, wake: Wake) -> None:
        """Delete what a second creation made.

        :raises errors.Wait: Octavia does not begin to, as it is at work on it.
        """
        for one in known.surplus - known.leaving - known.gone:
            LOG.warning("load balancer %s goes: %s has the same owner", one, known.id)
            await self._remove(owner, known, one, wake)
            if one not in known.leaving | known.gone:
                raise self._work.at_work(known, None if one in self.pending else SOON)

    async def _remove(self, owner: str, known: Known, one: str, wake: Wake) -> None:
        """Delete it, or see whether it is gone by now; it is in ``pending`` while it is PENDING.

        :raises LoadBalancerFailed: it could not be deleted; the next time it is tried again.
        """
        if one in known.gone:
            return
        if one in self.pending:
            self.pending.watch(one, owner, "", wake)
            return
        if one not in known.leaving:
            if one == known.id:
                known.begin()
            try:
                await self._octavia.delete_load_balancer(one)
            except errors.Immutable:
                pass
            else:
                known.leaving.add(one)
                self.pending.watch(one, owner, "PENDING_DELETE", wake)
                return
        status = (await self._octavia.statuses({"id": one})).get(one, DELETED)
        if status == DELETED:
            known.gone.add(one)
        elif status.startswith("PENDING"):
            self.pending.watch(one, owner, status, wake)
        else:
            known.leaving.discard(one)
            if status == ERROR:
                raise LoadBalancerFailed(f"Octavia could not delete load balancer {one}")
