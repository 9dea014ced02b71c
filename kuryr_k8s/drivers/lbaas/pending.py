"""One watch of all load balancers that Octavia is at work on: a list of those that are PENDING.

It is asked for as long as somebody waits, and less and less often while nothing changes. (Octavia
filters by one status at a time, so it is a list for each kind of work that is waited for. Those of
others do not have our tags: each is asked for by its id.)
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.drivers.base import DriverContext
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.workqueue import WorkQueue

FIRST = 0.1  # seconds until the first look: less is hardly ever enough for Octavia
SLOWER = 1.5
LONGEST = 5.0


@dataclass(slots=True)
class _Waiting:
    status: str
    since: float
    foreign: bool
    wakes: dict[str, Callable[[], None]] = field(default_factory=dict)  # by owner


class PendingLoadBalancers:
    """Looks while ``loop`` runs.

    :param tags: what all load balancers of the cluster have.
    """

    KEY = "pending load balancers"

    def __init__(self, context: DriverContext, octavia: Octavia, tags: Sequence[str]) -> None:
        self.loop = Controller[str](
            "pending-load-balancers",
            self.reconcile,
            queue=WorkQueue(context.clock, cap=context.patience.sweep_retry),
            workers=1,
            observe=context.observe,
        )
        self._octavia = octavia
        self._tags = ",".join(tags)
        self._waiting: dict[str, _Waiting] = {}
        self._interval = FIRST

    def __contains__(self, load_balancer_id: str) -> bool:
        """Whether it was PENDING when last heard of."""
        return load_balancer_id in self._waiting

    def has_all(self, load_balancer_ids: Iterable[str]) -> bool:
        return all(one in self._waiting for one in load_balancer_ids)

    def watch(
        self,
        load_balancer_id: str,
        owner: str,
        status: str,
        wake: Callable[[], None],
        *,
        foreign: bool = False,
    ) -> None:
        """Call ``wake``, once, when it is not (or no more) in this status.

        Of one that is waited for already, only whom to wake is changed: one call for each owner.

        :param foreign: it has not the tags of the cluster.
        """
        if waiting := self._waiting.get(load_balancer_id):
            waiting.wakes[owner] = wake
            return
        waiting = _Waiting(status, self._now(), foreign, {owner: wake})
        self._waiting[load_balancer_id] = waiting
        self._interval = FIRST
        self.loop.queue.add_after(self.KEY, FIRST)

    async def reconcile(self, _key: str) -> float | None:
        """One look; seconds until the next, None while nothing is waited for.

        :raises kuryr_k8s.errors.CloudError: Octavia does not tell; nobody is woken.
        """
        started, interval = self._now(), self._interval
        pending: set[str] = set()
        for status in {one.status for one in self._waiting.values() if not one.foreign}:
            # looked at again: Octavia may be told not to filter
            query = {"tags": self._tags, "provisioning_status": status}
            listed = await self._octavia.statuses(query)
            pending |= {one for one, is_now in listed.items() if is_now == status}
        for foreign in [one for one, waiting in self._waiting.items() if waiting.foreign]:
            listed = await self._octavia.statuses({"id": foreign})
            pending |= {one for one, is_now in listed.items() if is_now.startswith("PENDING")}
        # what was begun meanwhile may be missing in the list
        before = {one for one, waiting in self._waiting.items() if waiting.since < started}
        ended = [self._waiting.pop(one) for one in before - pending]
        for waiting in ended:
            for wake in waiting.wakes.values():
                wake()
        if not self._waiting:
            return None
        if ended or self._interval < interval:
            self._interval = FIRST
        else:
            self._interval = min(interval * SLOWER, LONGEST)
        return self._interval

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
