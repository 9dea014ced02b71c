"""Looks at an owner's parts of a load balancer, and steps that change them.

Nobody waits here: a call begins Octavia's work, and the watch of all PENDING load balancers tells
when it has ended. Whatever is answered otherwise than expected is forgotten, and read anew.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import DriverContext, OthersAtWork
from kuryr_k8s.drivers.lbaas import ownership, steps
from kuryr_k8s.drivers.lbaas.admission import Admission, Urgency
from kuryr_k8s.drivers.lbaas.capabilities import Capabilities, check_replacement
from kuryr_k8s.drivers.lbaas.compare import only_loses_drained
from kuryr_k8s.drivers.lbaas.outcomes import as_active, is_told, outcome_of
from kuryr_k8s.drivers.lbaas.pending import PendingLoadBalancers, Waiters
from kuryr_k8s.drivers.lbaas.plan import attainable, steps_of_members
from kuryr_k8s.drivers.lbaas.record import (
    Created,
    Known,
    Listed,
    Look,
    Record,
    Stepped,
    Unread,
    View,
)
from kuryr_k8s.drivers.lbaas.repairs import (
    WHOLE,
    LoadBalancerFailed,
    Repairs,
    broken_parts,
    check_forwards_nothing,
    part_mended,
)
from kuryr_k8s.drivers.lbaas.turns import Turns
from kuryr_k8s.model.load_balancer import (
    ACTIVE,
    DELETED,
    ERROR,
    FoundLoadBalancer,
    LoadBalancer,
)
from kuryr_k8s.model.owner import Owner, Role

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
POLITE = 1.0  # seconds without a change by others on a load balancer
SOON = 0.1  # seconds until a look at what is not as it was thought to be
PARTS_FIRST, PARTS_LONGEST = 0.1, 5.0  # seconds between two looks at parts that are PENDING
IMMUTABLE_LIMIT = 3
# HTTP statuses that say nothing of the call itself; 0: no answer
PASSING = (0, 401, 409, 429, 503)


class StillPending(errors.Refused):
    """Octavia has been at work for much longer than that takes."""

    reason = "KuryrLoadBalancerPending"


class NotTaken(errors.Refused):
    """Octavia accepted a change and did not carry it out."""

    reason = "KuryrLoadBalancerUnchanged"


class Gone(errors.Wait):
    """The load balancer does not exist any more."""

    def __init__(self, load_balancer_id: str) -> None:
        super().__init__(f"load balancer {load_balancer_id} is gone", delay=SOON)


class Work:
    """Looks and steps.

    :param wake: called for an owner that can go on.
    :param limit: how often what is in ERROR is made anew.
    :param longest: seconds that Octavia may be at work before users are told.
    :param immutable_limit: refusals in a row to change what does not look PENDING, after which
        users are told.
    """

    def __init__(
        self,
        context: DriverContext,
        tags: Sequence[str],
        wake: Callable[[Owner], None],
        *,
        limit: int,
        longest: float,
        immutable_limit: int = IMMUTABLE_LIMIT,
    ) -> None:
        self._octavia = context.octavia
        self._clock = context.clock
        self._patience = context.patience
        self._limit = limit
        self._longest = longest
        self._immutable_limit = immutable_limit
        self._changing: set[str] = set()  # ids of load balancers that are being changed
        self.capabilities = Capabilities(context.octavia)
        self.admission = Admission(context.clock, self._count_pending, wake)
        self.pending = PendingLoadBalancers(context, tags, wake, self.admission.ended)
        self.waiters = Waiters(wake)
        self._turns = Turns(context.clock, longest)

    # -- looking

    def check_idle(self, view: View) -> None:
        """Make sure that Octavia was not at work on the load balancer when last heard of.

        :raises errors.Wait: it was.
        """
        if view.id in self.pending:
            view.polite_since = None
            self.pending.watch(view.id, view.owner, "", foreign=view.foreign)
            raise self.at_work(view)

    async def look(self, view: View) -> Look:
        """Return the owner's parts; ask Octavia about what is not known.

        :raises Gone: the load balancer does not exist.
        :raises errors.Wait: parts of it are still PENDING.
        """
        if isinstance(view.phase, Known):
            return Look(view.phase.own, view.phase.others, fresh=False)
        try:
            expected = isinstance(view.phase, Created | Stepped)
            if expected or view.parts_pending_since is not None:
                if (look := await self._look_at_tree(view)) is not None:
                    view.seen = look.own
                    return look
                view.phase = Unread()
            listed = await self._listed(view)
            whole = listed or await self._read(view)
        except errors.NotFound:
            raise Gone(view.id) from None
        if whole.provisioning_status == DELETED:
            raise Gone(view.id)
        own, others = ownership.divide(whole, view.owner)
        view.seen = own
        return Look(own, others, fresh=listed is None)

    async def _look_at_tree(self, view: View) -> Look | None:
        """Return what the last change has made of the load balancer, by one call.

        :returns: None if it is not known what it was to become, or if it is not as expected.
        :raises errors.Wait: parts of it are still PENDING.
        """
        tree = await self._octavia.status_tree(view.id)
        if any(status.startswith("PENDING") for status in tree.statuses):
            raise self._parts_pending(view)
        if tree.statuses != {ACTIVE}:
            return None
        match view.phase:
            case Created(answer):
                return Look(as_active(answer), None, fresh=True)
            case Stepped(before, step, made):
                own = await outcome_of(self._octavia, before.own, step, made, tree)
                if own is None or own.statuses() != {ACTIVE}:
                    return None
                return Look(own, before.others, fresh=True)
        return None

    async def _read(self, view: View) -> FoundLoadBalancer:
        """Read the load balancer; members of others' pools do not matter."""

        def is_own(whole: Json, pool: Json) -> bool:
            return ownership.owns(view.owner, whole["tags"], pool["tags"])

        return await self._octavia.read(view.id, is_own)

    async def _listed(self, view: View) -> FoundLoadBalancer | None:
        """Return what the lists of the start tell.

        :returns: None if they tell nothing any more, or not everything was ACTIVE then.
        """
        if not isinstance(view.phase, Listed):
            return None
        parts, view.phase = view.phase.parts, Unread()
        try:
            found = await self._octavia.complete(parts)
        except errors.NotFound:
            return None  # a part is gone, and perhaps no more than that
        return found if found.statuses() == {ACTIVE} else None

    def at_work(self, view: View, delay: float | None = None) -> errors.Wait | StillPending:
        """Return the error that says that Octavia is at work."""
        now = self._clock.now()
        if view.pending_since is None:
            view.pending_since = now
        if now - view.pending_since < self._longest:
            kind = errors.Wait if view.changed else OthersAtWork
            delay = delay or self._patience.pending_load_balancer
            return kind(f"Octavia is at work on load balancer {view.id}", delay=delay)
        return StillPending(
            f"load balancer {view.id} has been PENDING for more than {self._longest:.0f} seconds"
        )

    def _wait(self, view: View, found: FoundLoadBalancer) -> errors.Wait | StillPending:
        status = found.provisioning_status
        if not status.startswith("PENDING"):
            return self._parts_pending(view)
        self.pending.watch(view.id, view.owner, status, foreign=view.foreign)
        return self.at_work(view)

    def _parts_pending(self, view: View) -> errors.Wait | StillPending:
        """Return the error to wait with; no list tells when parts are ACTIVE.

        So they are looked at, less and less often.
        """
        now = self._clock.now()
        if view.parts_pending_since is None:
            view.parts_pending_since = now
        delay = min(max((now - view.parts_pending_since) / 2, PARTS_FIRST), PARTS_LONGEST)
        return self.at_work(view, delay)

    async def await_parts(self, view: View) -> None:
        """Wait before a deletion until Octavia has made all that it is making in it.

        With ovn the load balancer is ACTIVE before its parts. If it goes before them, the provider
        never ends their creation: listeners and pools are left that nobody can delete, and that
        count against the quota. The owner gives up its turn meanwhile.

        :raises errors.Wait: parts are being made.
        """
        if isinstance(view.phase, Known):
            return
        try:
            tree = await self._octavia.status_tree(view.id)
        except errors.NotFound:
            return
        if "PENDING_CREATE" not in tree.statuses:
            return
        problem = self._parts_pending(view)
        if isinstance(problem, errors.Wait):
            self.admission.forget(view.owner)
            raise problem
        LOG.warning("load balancer %s goes although parts of it are PENDING_CREATE", view.id)

    # -- changing

    async def follow(
        self, view: View, wanted: Callable[[FoundLoadBalancer], LoadBalancer]
    ) -> FoundLoadBalancer:
        """Bring the members of the owner's parts in line; see :meth:`LBaaSDriver.follow`.

        :raises Gone: the load balancer does not exist.
        """
        self.check_idle(view)
        look = await self.look(view)
        if look.own.provisioning_status == ERROR:
            raise LoadBalancerFailed(
                f"load balancer {view.id} is in ERROR: its members cannot be changed"
            )
        planned = steps_of_members(wanted(look.own), look.own)
        await self.take(view, look, ownership.NOTHING, planned)
        return look.own

    async def take(
        self, view: View, look: Look, desired: LoadBalancer, planned: Iterable[steps.Step]
    ) -> None:
        """Begin the first step that can be taken.

        Return only if there is none, as everything matches the desired state.

        :param look: what :meth:`look` has returned.
        :param desired: where the steps lead.
        :raises Gone: the load balancer does not exist.
        :raises errors.Wait: Octavia is at work on it.
        :raises errors.Refused: it does not become ACTIVE, or does not become as desired; nothing
            else is left to do.
        """
        problem: errors.KuryrError | None = None
        exhausted: set[type[steps.Step]] = set()  # kinds of which the quota is used up
        is_known = look.own.statuses() == {ACTIVE}
        broken = broken_parts(look.own)
        self.nothing_broken(view.record, but=broken.values())
        others_pending = look.fresh and look.others is not None and look.others.is_pending()
        for step in planned:
            if isinstance(step, steps.CreateLoadBalancer):
                raise Gone(view.id)
            deletes = isinstance(step, steps.DeleteLoadBalancer)
            if isinstance(step, steps.Pending) or (others_pending and not deletes):
                raise self._wait(view, look.own)
            await self.capabilities.check(desired)
            if type(step) in exhausted:
                continue
            _, before = view.failed.get(step, (0.0, None))
            try:
                failure = await self._attempt(
                    view, look, desired, step, part_mended(step, look.own, broken)
                )
            except errors.Wait as wait:
                if problem is not None and wait.__cause__ is None:
                    raise wait from problem  # who asks for the parts may know a way around it
                raise
            problem = problem or failure  # the next one may be of another part, or another user
            is_known = is_known and (failure is before or _is_without_effect(failure))
            if isinstance(failure, errors.OverQuota) and isinstance(step, steps.CREATING):
                exhausted.add(type(step))
        if problem is None:
            self._settle(view, look)
            return
        if is_known:
            view.record.repairs = None
            # in others' load balancers, somebody may have come meanwhile
            if view.owner.role is Role.L7_ROUTER:
                view.phase = Known(look.own, look.others)
        raise problem

    async def _attempt(
        self,
        view: View,
        look: Look,
        desired: LoadBalancer,
        step: steps.Change,
        part: str | None,
    ) -> errors.KuryrError:
        """Begin a step, unless it failed just now; return why it cannot be taken.

        What may pass soon is raised when it fails for the first time, and returned after that.

        :param part: the part in ERROR that it mends, if it does.
        :raises errors.Wait: it was begun.
        """
        until, failure = view.failed.get(step, (0.0, None))
        if failure is not None and self._clock.now() < until:
            return failure
        try:
            self._allow(view, look.own, desired, step, part)
            await self._change(view, look, desired, step, part)
        except (LoadBalancerFailed, NotTaken) as error:
            return error
        except errors.CloudError as error:
            until, _ = view.failed.get(step, (0.0, None))
            if error.is_of_request or self._clock.now() < until:
                return error
            raise
        raise self.at_work(view)

    def _allow(
        self,
        view: View,
        found: FoundLoadBalancer,
        desired: LoadBalancer,
        step: steps.Change,
        part: str | None,
    ) -> None:
        """Allow a step, unless it must not be taken now.

        :param part: the part in ERROR that it mends, if it does.
        :raises LoadBalancerFailed: what is in ERROR is left as it is for now.
        :raises NotTaken: Octavia has accepted the step not long ago, and has not done it.
        :raises errors.Wait: it has accepted it just now.
        """
        if part is not None:
            view.doubt()  # people may repair it
            try:
                if part == WHOLE:
                    check_forwards_nothing(desired, found)
                self._repairs(view.record).check(
                    part,
                    view.id,
                    self._clock.now(),
                    is_update=isinstance(step, steps.UpdateListener),
                )
            except LoadBalancerFailed:
                self._turns.end(view.owner)
                raise
        elif isinstance(step, steps.DeleteLoadBalancer):
            check_replacement(attainable(desired))
        now, patience = self._clock.now(), self._patience
        if part is None and step == view.last:
            since = view.pending_since
            if since is not None and now - since < patience.unseen_change:
                raise errors.Wait(
                    "the change cannot be seen yet", delay=patience.unseen_change_look
                )
            view.last = None
            view.untaken[step] = now + patience.first_refused
        if now < view.untaken.get(step, now):
            view.doubt()
            raise NotTaken(f"Octavia accepts {type(step).__name__} and does not do it")

    def _settle(self, view: View, look: Look) -> None:
        self._turns.end(view.owner)
        changed = view.changed
        view.settle(look.own, look.others)
        view.record.repairs = None
        if changed:
            self.waiters.notify(view.id, *view.former, by=view.owner)

    def _repairs(self, record: Record) -> Repairs:
        if record.repairs is None:
            record.repairs = Repairs(self._limit, self._patience.first_repair)
        return record.repairs

    def forget(self, owner: Owner) -> None:
        """Let the owner wait for nothing any more: it has nothing left."""
        self.waiters.forget(owner)
        self.admission.forget(owner)
        self._turns.end(owner)

    @staticmethod
    def nothing_broken(record: Record | None, but: Collection[str] = ()) -> None:
        """Note that nothing of the owner's is in ERROR but these parts."""
        if record is not None and record.repairs is not None:
            record.repairs.cleared(but)

    def refuse_taken(
        self, view: View, found: FoundLoadBalancer, taken: Sequence[ownership.Taken]
    ) -> None:
        """Refuse the ports that others have; the owner waits for a change of the load balancer.

        :raises PortTaken: there are any.
        """
        if taken:
            view.doubt()
            self.waiters.add(view.id, view.owner)
            raise ownership.port_taken(found, taken)

    async def _change(
        self,
        view: View,
        look: Look,
        desired: LoadBalancer,
        step: steps.Change,
        part: str | None,
    ) -> None:
        """Have Octavia begin the step.

        :param part: the part in ERROR that it mends, if it does.
        :raises errors.Wait: the load balancer was not as it was thought to be, or is PENDING; or
            it is not the owner's turn.
        """
        self.check_idle(view)  # another owner may have been faster
        if view.id in self._changing:
            raise OthersAtWork(f"load balancer {view.id} is being changed", delay=SOON)
        if self.pending.others_waited(view.id, view.owner) and _can_wait(step, look.own):
            self._let_others_pass(view)
        urgency = Urgency.SERVING if desired.has_members() else Urgency.USUAL
        with self.admission.sending(view.owner, urgency):
            if isinstance(step, steps.DeleteLoadBalancer):
                self._turns.take(view.owner)
            await self._send(view, look, step)
        if part is not None:
            self._repairs(view.record).begun(part)

    def _let_others_pass(self, view: View) -> None:
        """Let others that waited for the load balancer go first, until none has for a moment.

        Octavia takes one change of it after the other. Members that get no connections any more
        may stay for a while; what others wait for may be Pods that serve no longer.

        :raises OthersAtWork: the moment is not over.
        """
        now = self._clock.now()
        if view.polite_since is None:
            view.polite_since = now
        if (left := view.polite_since + POLITE - now) > 0:
            raise OthersAtWork(f"others on load balancer {view.id} come first", delay=left)

    async def _send(self, view: View, look: Look, step: steps.Change) -> None:
        """Send the step, and watch what becomes PENDING by it.

        :raises errors.Wait: the load balancer was not as it was thought to be, or is PENDING.
        """
        view.begin()
        view.changed, view.polite_since = True, None
        self._changing.add(view.id)
        try:
            created = await steps.take(self._octavia, step)
            if isinstance(step, steps.CreatePool):
                view.newest_pool = created or view.newest_pool
        except errors.CloudError as error:
            concerns_it = error.is_of_request or _is_of_one_user(step, view.owner)
            if concerns_it and error.status not in PASSING:
                self._note_failure(view, step, error)
            if not isinstance(error, errors.NotFound | errors.Conflict):
                raise
            if not look.fresh:
                raise errors.Wait(
                    f"load balancer {view.id} has changed: look again", delay=SOON
                ) from error
            view.immutable += 1
            if not isinstance(error, errors.Immutable) or view.immutable >= self._immutable_limit:
                raise
            self.pending.watch(view.id, view.owner, "PENDING_UPDATE", foreign=view.foreign)
            raise self.at_work(view) from error
        finally:
            self._changing.discard(view.id)
        view.last, view.immutable = step, 0
        view.failed.pop(step, None)
        known, is_router = is_told(step), view.owner.role is Role.L7_ROUTER
        if isinstance(step, steps.SetMembers | steps.AddMembers):
            if is_router:
                view.had_turn.add(step.pool_id)
        else:
            view.had_turn.clear()
            # in others' load balancers, but for a router's, somebody may have come meanwhile
            known = known and is_router
        if known and look.own.statuses() == {ACTIVE}:
            view.phase = Stepped(look, step, created or "")
        deletes = isinstance(step, steps.DeleteLoadBalancer)
        status = "PENDING_DELETE" if deletes else "PENDING_UPDATE"
        self.pending.watch(view.id, view.owner, status, foreign=view.foreign)

    def _note_failure(self, view: View, step: steps.Change, error: errors.CloudError) -> None:
        """Note that Octavia has answered a step with an error.

        What fails once may be Octavia's bad moment; what fails twice is not tried for a while.
        """
        now, pause = self._clock.now(), self._patience.refused
        held = pause if step in view.failed else 0.0
        # others have long been forgotten: what was wanted then is not wanted any more
        view.failed = {
            each: failure for each, failure in view.failed.items() if failure[0] + pause > now
        }
        view.failed[step] = now + held, error

    def _count_pending(self, seconds: float) -> int:
        return self.pending.count(seconds)


def _is_without_effect(failure: errors.KuryrError) -> bool:
    """Return whether Octavia has done nothing of what it did not accept."""
    return isinstance(failure, errors.CloudError) and failure.is_of_request


def _is_of_one_user(step: steps.Change, owner: Owner) -> bool:
    """Return whether others on the load balancer can go on if Octavia cannot take a step.

    Not without certificates, nor the CAs of a pool: see ``plan.py``.
    """
    of_pools = (steps.CreatePool, steps.DeletePool, steps.SetMembers, steps.AddMembers)
    return isinstance(step, steps.OF_POLICIES) or (
        owner.role is Role.L7_ROUTER and isinstance(step, of_pools)
    )


def _can_wait(step: steps.Change, found: FoundLoadBalancer) -> bool:
    """Return whether a step only removes members that get no new connections."""
    if not isinstance(step, steps.SetMembers):
        return False
    pools = [each for each in found.pools if each.id == step.pool_id]
    return all(only_loses_drained(step.members, pool) for pool in pools)
