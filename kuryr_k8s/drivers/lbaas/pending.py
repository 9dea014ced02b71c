"""Waiting for Octavia, and for other owners of a shared load balancer.

One watch lists all load balancers at which Octavia is at work: as long as somebody waits, and less
and less often while nothing changes. Octavia filters by one status at a time, so each kind of work
needs its own list. Load balancers of others do not have our tags: each is asked for by its id.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kuryr_k8s.drivers.base import DriverContext
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.limit import Priority, prioritized
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.model.owner import Owner

SLOWER = 1.5
LONGEST = 5.0


@dataclass(slots=True)
class _Watched:
    status: str
    since: float
    foreign: bool
    owners: dict[Owner, None] = field(default_factory=dict)  # an ordered set


class PendingLoadBalancers:
    """Load balancers that were PENDING when last heard of, and the owners that wait for them.

    :param tags: the tags that all load balancers of the cluster have.
    :param wake: called for an owner when its load balancer has left the status.
    :param ended: called with the seconds that changes have taken that have ended.
    """

    KEY = "pending load balancers"

    def __init__(
        self,
        context: DriverContext,
        tags: Sequence[str],
        wake: Callable[[Owner], None],
        ended: Callable[[list[float]], None],
    ) -> None:
        self._octavia = context.octavia
        self._clock = context.clock
        self._tags = ",".join(tags)
        self._wake = wake
        self._ended = ended
        self._watched: dict[str, _Watched] = {}
        self._woken: dict[str, dict[Owner, None]] = {}  # several owners that waited for one
        self._first = self._interval = context.patience.first_pending_look
        self.loop = Controller[str](
            "pending-load-balancers",
            self.reconcile,
            queue=WorkQueue(context.clock, cap=context.patience.sweep_retry),
            workers=1,
            observe=context.observe,
            patience=context.patience,
        )

    def count(self, seconds: float) -> int:
        """Return how many are being watched, and have been for no longer than that."""
        now = self._clock.now()
        return sum(now - each.since <= seconds for each in self._watched.values())

    def __contains__(self, load_balancer_id: str) -> bool:
        return load_balancer_id in self._watched

    def has_all(self, load_balancer_ids: Iterable[str]) -> bool:
        """Return whether all of these are being watched."""
        return all(each in self._watched for each in load_balancer_ids)

    def others_waited(self, load_balancer_id: str, owner: Owner) -> bool:
        """Return whether others waited as well for the last change, and none has begun since."""
        return any(each != owner for each in self._woken.get(load_balancer_id, ()))

    def watch(
        self, load_balancer_id: str, owner: Owner, status: str, *, foreign: bool = False
    ) -> None:
        """Wake the owner once, when the load balancer is not in this status any more.

        If it is already watched, only add the owner.

        :param foreign: it does not have the tags of the cluster.
        """
        if watched := self._watched.get(load_balancer_id):
            watched.owners[owner] = None
            return
        self._woken.pop(load_balancer_id, None)
        watched = _Watched(status, self._clock.now(), foreign, {owner: None})
        self._watched[load_balancer_id] = watched
        self._interval = self._first
        self.loop.queue.add_after(self.KEY, self._first)

    async def reconcile(self, _key: str) -> float | None:
        """Look once at everything that is watched, before any other call: many wait for it.

        A look that waited for calls of ours would find Octavia slower than it is.

        :returns: seconds until the next look; None if nothing is watched any more.
        :raises kuryr_k8s.errors.CloudError: Octavia does not answer; nobody is woken.
        """
        started, interval = self._clock.now(), self._interval
        with prioritized(Priority.WATCH):
            pending = await self._still_pending()
        # what was begun since then may be missing from the lists
        before = {lb_id for lb_id, each in self._watched.items() if each.since < started}
        done = {lb_id: self._watched.pop(lb_id) for lb_id in before - pending}
        self._woken |= {
            lb_id: each.owners
            for lb_id, each in done.items()
            if len(each.owners) > 1 and each.status != "PENDING_DELETE"
        }
        ended = list(done.values())
        now = self._clock.now()
        self._ended([now - watched.since for watched in ended if watched.status])
        for watched in ended:
            for owner in watched.owners:
                self._wake(owner)
        if not self._watched:
            return None
        if ended or self._interval < interval:
            self._interval = self._first
        else:
            self._interval = min(interval * SLOWER, LONGEST)
        return self._interval

    async def _still_pending(self) -> set[str]:
        """Return the ids of those that are still in the status for which they are watched."""
        pending: set[str] = set()
        for status in {each.status for each in self._watched.values() if not each.foreign}:
            # compared again: Octavia may be configured not to filter
            query = {"tags": self._tags, "provisioning_status": status}
            listed = await self._octavia.statuses(query)
            pending |= {lb_id for lb_id, current in listed.items() if current == status}
        for foreign in [lb_id for lb_id, each in self._watched.items() if each.foreign]:
            listed = await self._octavia.statuses({"id": foreign})
            pending |= {
                lb_id for lb_id, current in listed.items() if current.startswith("PENDING")
            }
        return pending


class Waiters:
    """Owners that wait for what another owner does with a load balancer.

    They wait for a port to become free, for the load balancer to be made anew, or for the last of
    the others to leave.

    :param wake: called for an owner when another one has changed the load balancer.
    """

    def __init__(self, wake: Callable[[Owner], None]) -> None:
        self._wake = wake
        self._waiting: dict[str, dict[Owner, None]] = {}  # ordered sets, by load balancer

    def add(self, load_balancer_id: str, owner: Owner) -> None:
        """Wake the owner once, when another owner has changed the load balancer."""
        self._waiting.setdefault(load_balancer_id, {})[owner] = None

    def forget(self, owner: Owner) -> None:
        """Let the owner wait for nothing."""
        for load_balancer_id, owners in list(self._waiting.items()):
            owners.pop(owner, None)
            if not owners:
                del self._waiting[load_balancer_id]

    def notify(self, *load_balancer_ids: str, by: Owner) -> None:
        """Wake all that wait for these load balancers, but not the owner that changed them."""
        for load_balancer_id in load_balancer_ids:
            waiting = self._waiting.pop(load_balancer_id, {})
            if by in waiting:
                del waiting[by]
                self._waiting[load_balancer_id] = {by: None}
            for owner in waiting:
                self._wake(owner)
