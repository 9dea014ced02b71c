"""What becomes of a change: PENDING at first, and then done, after a time that tests dial."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from .kinds import LISTENER, POOL
from .store import Store

Json = dict[str, Any]


class Progress:
    """The work that the providers have before them.

    `pending` is the seconds that a change takes: 0 for done as soon as the answer is written, and
    infinite for never, until `finish` is called. With the provider ovn, the load balancer itself
    is done after half of the time, before its parts. With `one_by_one`, changes wait for those
    before them, as with a provider that has one worker. `stalled` tells of which load balancers
    nothing is ever done, whatever `pending` says. `unhealthy` are addresses that answer no health
    monitor: their members stay OFFLINE. `is_lost` tells of references that Octavia cannot read:
    it reads those of all listeners and pools again at each change, and never ends it then.
    """

    def __init__(
        self,
        store: Store,
        discard: Callable[[str], None],
        notify: Callable[[], None],
    ) -> None:
        self.pending = 0.0
        self.one_by_one = False
        self._free_at = 0.0  # when the only worker is free
        self.unhealthy: set[str] = set()
        self.stalled: Callable[[Json], bool] = lambda _load_balancer: False
        self.is_lost: Callable[[str], bool] = lambda _ref: False
        self._store = store
        self._discard = discard
        self._notify = notify

    def begin(self, load_balancer: Json, parts: Iterable[str]) -> None:
        """Have the load balancer and the parts of it with these ids done, in their time."""
        ids = list(parts)
        if self.stalled(load_balancer) or self._names_lost(load_balancer):
            return
        loop = asyncio.get_running_loop()
        if self.pending == 0:
            loop.call_soon(self._done, [load_balancer["id"], *ids])
        elif self.pending < float("inf"):
            begins = max(loop.time(), self._free_at) if self.one_by_one else loop.time()
            self._free_at = begins + self.pending
            own = self.pending / 2 if load_balancer["provider"] == "ovn" else self.pending
            loop.call_at(begins + own, self._done, [load_balancer["id"]])
            loop.call_at(begins + self.pending, self._done, ids)

    def finish(self, load_balancer_id: str) -> None:
        """Have everything of the load balancer done now."""
        self._done([load_balancer_id, *self._store.ids_inside(load_balancer_id)])

    def _done(self, ids: Iterable[str]) -> None:
        self._end(ids)
        self._notify()

    def _names_lost(self, load_balancer: Json) -> bool:
        """Whether it is to stay, and names a secret that cannot be read."""
        if load_balancer["provisioning_status"] == "PENDING_DELETE":
            return False
        listeners = self._store.parts(LISTENER, load_balancer["id"])
        pools = self._store.parts(POOL, load_balancer["id"])
        refs = [each["default_tls_container_ref"] for each in listeners]
        refs += [ref for each in listeners for ref in each["sni_container_refs"]]
        refs += [each["ca_tls_container_ref"] for each in pools]
        return any(self.is_lost(ref) for ref in refs if ref)

    def _end(self, ids: Iterable[str]) -> None:
        for part_id in ids:
            part = self._store.part(part_id)
            if part is None:
                continue
            if part["provisioning_status"] == "PENDING_DELETE":
                self._discard(part_id)
            elif part["provisioning_status"].startswith("PENDING"):
                self._store.set_status(part, "ACTIVE")
                if (
                    part["operating_status"] == "OFFLINE"
                    and part.get("address") not in self.unhealthy
                ):
                    part["operating_status"] = "ONLINE"
