"""What is an owner's of a load balancer, all of it or a part, is looked at and changed here.

Nobody waits here: a call begins Octavia's work, the watch of all load balancers that are PENDING
tells of its end. Whatever is answered otherwise than expected is forgotten, and read anew.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.drivers.base import OthersAtWork
from kuryr_k8s.drivers.lbaas import changes as lb_changes
from kuryr_k8s.drivers.lbaas import parts as lb_parts
from kuryr_k8s.drivers.lbaas.limits import Limits
from kuryr_k8s.drivers.lbaas.memory import Known
from kuryr_k8s.drivers.lbaas.pending import PendingLoadBalancers
from kuryr_k8s.drivers.lbaas.repairs import Repairs
from kuryr_k8s.drivers.lbaas.steps import as_active, take
from kuryr_k8s.drivers.lbaas.waiters import Waiters
from kuryr_k8s.model.load_balancer import ACTIVE, DELETED, ERROR, FoundLoadBalancer, LoadBalancer

Json = dict[str, Any]
Wake = Callable[[], None]
PATIENCE = 60.0  # seconds; the watch wakes sooner
SOON = 0.1  # seconds until a look at what is other than was thought
SETTLES, LATER = 3.0, 0.5  # seconds: of replaced members ovn says nothing while they go
PARTS_FIRST, PARTS_LONGEST = 0.1, 5.0  # seconds between two looks at parts that are PENDING
IMMUTABLE_LIMIT = 3  # refusals in a row to change what does not look PENDING


class StillPending(errors.Refused):
    """Octavia has been at work for much longer than that takes."""

    reason = "KuryrLoadBalancerPending"


class NotTaken(errors.Refused):
    """Octavia accepted a change, and nothing of it is to be seen."""

    reason = "KuryrLoadBalancerUnchanged"


class Gone(errors.Wait):
    """The load balancer is not there any more."""

    def __init__(self, load_balancer_id: str) -> None:
        super().__init__(f"load balancer {load_balancer_id} is gone", delay=SOON)


class Work:
    """:param limit: how often what is in ERROR is made anew.
    :param longest: seconds that Octavia may be at work before somebody is told.
    """

    def __init__(
        self,
        octavia: Octavia,
        pending: PendingLoadBalancers,
        limits: Limits,
        *,
        limit: int,
        longest: float,
    ) -> None:
        self._octavia = octavia
        self._pending = pending
        self._limits = limits
        self._limit = limit
        self._longest = longest
        self._changing: set[str] = set()  # ids of those of which a change is being asked
        self._repairs: dict[str, Repairs] = {}
        self.waiters = Waiters()

    # -- looking

    def check_idle(self, owner: str, known: Known, wake: Wake) -> None:
        """:raises errors.Wait: Octavia was at work on it when last heard of."""
        if known.id in self._pending:
            self._pending.watch(known.id, owner, "", wake, foreign=known.foreign)
            raise self.at_work(known)

    async def look(self, owner: str, known: Known) -> FoundLoadBalancer:
        """What is the owner's of it; by Octavia's word, where it is not remembered.

        :raises Gone: it is not there.
        :raises errors.Wait: parts of it are still PENDING.
        """
        if known.tree is not None:
            known.fresh = False
            return known.tree
        known.fresh = True
        try:
            if known.made is not None or known.parts_since is not None:
                statuses = await self._octavia.tree_statuses(known.id)
                if any(status.startswith("PENDING") for status in statuses):
                    raise self._parts_pending(known)
                if known.made is not None and statuses == {ACTIVE}:
                    return as_active(known.made)
                known.made = None
            whole = await self._listed(known) or await self._read(owner, known.id)
        except errors.NotFound:
            raise Gone(known.id) from None
        if whole.provisioning_status == DELETED:
            raise Gone(known.id)
        part, known.rest = lb_parts.divide(whole, owner)
        return part

    async def _read(self, owner: str, load_balancer_id: str) -> FoundLoadBalancer:
        """Of others' pools, members do not matter."""

        def is_mine(whole: Json, pool: Json) -> bool:
            return lb_parts.is_of(owner, whole["tags"], pool["tags"])

        return await self._octavia.read(load_balancer_id, is_mine)

    async def _listed(self, known: Known) -> FoundLoadBalancer | None:
        """As the lists of the start tell; None: they do not, or it was not all ACTIVE then."""
        if known.parts is None:
            return None
        parts, known.parts = known.parts, None
        found = await self._octavia.complete(parts)
        if found.statuses() != {ACTIVE}:
            return None
        known.fresh = False
        return found

    def at_work(self, known: Known, delay: float | None = None) -> errors.Wait | StillPending:
        """What is to be said while Octavia works."""
        now = self._now()
        if known.since is None:
            known.since = now
        if now - known.since < self._longest:
            kind = errors.Wait if known.changed else OthersAtWork
            return kind(f"Octavia is at work on load balancer {known.id}", delay=delay or PATIENCE)
        return StillPending(
            f"load balancer {known.id} has been PENDING for more than {self._longest:.0f} seconds"
        )

    def _waits(
        self, owner: str, known: Known, found: FoundLoadBalancer, wake: Wake
    ) -> errors.Wait | StillPending:
        status = found.provisioning_status
        if not status.startswith("PENDING"):
            return self._parts_pending(known)
        self._pending.watch(known.id, owner, status, wake, foreign=known.foreign)
        return self.at_work(known)

    def _parts_pending(self, known: Known) -> errors.Wait | StillPending:
        """No list tells when parts are ACTIVE: they are looked at, less and less often."""
        now = self._now()
        if known.parts_since is None:
            known.parts_since = now
        delay = min(max((now - known.parts_since) / 2, PARTS_FIRST), PARTS_LONGEST)
        return self.at_work(known, delay)

    # -- changing

    async def take(
        self,
        owner: str,
        known: Known,
        found: FoundLoadBalancer,
        desired: LoadBalancer,
        step: lb_changes.Step | None,
        wake: Wake,
    ) -> None:
        """Have the step begun. On return there was none: it is as it is to be.

        :param found: what :meth:`look` has given.
        :param desired: to what the step leads.
        :raises Gone: it is not there.
        :raises errors.Wait: Octavia is at work on it.
        :raises errors.Refused: it does not become ACTIVE, or not as it is to be.
        """
        if isinstance(step, lb_changes.CreateLoadBalancer):
            raise Gone(known.id)
        if step is None:
            self._settled(owner, known, found)
            return
        at_work = known.fresh and known.rest is not None and known.rest.is_pending()
        goes = isinstance(step, lb_changes.DeleteLoadBalancer)
        if isinstance(step, lb_changes.Pending) or (at_work and not goes):
            raise self._waits(owner, known, found, wake)
        self.consider(owner, known, found)
        if step == known.last:
            if known.since is not None and self._now() - known.since < SETTLES:
                raise errors.Wait("the change is not to be seen yet", delay=LATER)
            known.last = None
            raise NotTaken(f"Octavia accepts {type(step).__name__} and does not do it")
        await self._limits.check(desired)
        await self._change(owner, known, step, wake)
        raise self.at_work(known)

    def _settled(self, owner: str, known: Known, found: FoundLoadBalancer) -> None:
        changed = known.changed
        known.settled(found)
        self._repairs.pop(owner, None)
        if changed:
            self.waiters.wake(known.id, *known.former, but=owner)

    def consider(self, owner: str, known: Known | None, found: FoundLoadBalancer | None) -> None:
        """:raises LoadBalancerFailed: something is in ERROR, and not to be made anew now."""
        if known is not None and found is not None and ERROR in found.statuses():
            known.tree = None  # people may mend it
            repairs = self._repairs.setdefault(owner, Repairs(self._limit))
            repairs.begin(found.id, self._now())
        elif owner in self._repairs:
            self._repairs[owner].seen_without_error()

    def refuse_taken(
        self,
        owner: str,
        known: Known,
        found: FoundLoadBalancer,
        taken: Sequence[lb_parts.Taken],
        wake: Wake,
    ) -> None:
        """:raises PortTaken: others have ports that are wanted; ``wake`` is called when somebody
        has changed the load balancer."""
        if taken:
            known.tree = None
            self.waiters.add(known.id, owner, wake)
            raise lb_parts.port_taken(found, taken)

    def forget(self, owner: str) -> None:
        """Its troubles are over, and it waits for nothing."""
        self._repairs.pop(owner, None)
        self.waiters.forget(owner)

    async def _change(self, owner: str, known: Known, step: lb_changes.Change, wake: Wake) -> None:
        """:raises errors.Wait: it was not as was thought, or it is PENDING."""
        self.check_idle(owner, known, wake)  # another owner may have been faster
        if known.id in self._changing:
            raise OthersAtWork(f"load balancer {known.id} is being changed", delay=SOON)
        known.begin()
        known.changed = True
        self._changing.add(known.id)
        try:
            await take(self._octavia, step)
        except (errors.NotFound, errors.Conflict) as error:
            if not known.fresh:
                raise errors.Wait("it is not what it was: look again", delay=SOON) from error
            known.immutable += 1
            if not isinstance(error, errors.Immutable) or known.immutable >= IMMUTABLE_LIMIT:
                raise
            self._pending.watch(known.id, owner, "PENDING_UPDATE", wake, foreign=known.foreign)
            raise self.at_work(known) from error
        finally:
            self._changing.discard(known.id)
        known.last, known.immutable = step, 0
        deletes = isinstance(step, lb_changes.DeleteLoadBalancer)
        status = "PENDING_DELETE" if deletes else "PENDING_UPDATE"
        self._pending.watch(known.id, owner, status, wake, foreign=known.foreign)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
