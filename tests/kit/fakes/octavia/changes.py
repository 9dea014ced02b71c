"""Changes of what is in a load balancer: whether they may begin, and what is PENDING then."""

from __future__ import annotations

from typing import Any

from . import errors
from .kinds import LOAD_BALANCER, POOL, Kind
from .progress import Progress
from .store import OWNER, Store

Json = dict[str, Any]


class Changes:
    """What all changes of listeners, pools, members and health monitors have in common."""

    def __init__(self, store: Store, progress: Progress) -> None:
        self._store = store
        self._progress = progress

    def owner(self, part: Json) -> Json:
        """The load balancer that it is in."""
        return self._store.get(LOAD_BALANCER, part[OWNER])

    def check_mutable(self, load_balancer: Json) -> None:
        """409 where the load balancer is PENDING or in ERROR."""
        if load_balancer["provisioning_status"] != "ACTIVE":
            raise errors.immutable(LOAD_BALANCER.title, load_balancer["id"])

    def check_pool_mutable(self, pool: Json) -> None:
        """409 where the pool or its load balancer is PENDING or in ERROR."""
        if pool["provisioning_status"] != "ACTIVE":
            raise errors.immutable(POOL.title, pool["id"])
        self.check_mutable(self.owner(pool))

    def add(self, kind: Kind, load_balancer: Json, body: Json) -> Json:
        """Make a part of the load balancer."""
        owner = {OWNER: load_balancer["id"], "project_id": load_balancer["project_id"]}
        return self._store.add(kind, body | owner)

    def delete(self, part: Json, touched: list[Json]) -> None:
        """Begin to delete a part.

        :param touched: others that are PENDING meanwhile.
        """
        immutable = self._store.stranded.get(part[OWNER])
        if immutable:
            raise errors.immutable(LOAD_BALANCER.title, part[OWNER])
        if immutable is not None:
            self._store.remove(part["id"])
            return
        load_balancer = self.owner(part)
        self.check_mutable(load_balancer)
        self._store.set_status(part, "PENDING_DELETE")
        self.begin(load_balancer, [part, *touched])

    def begin(self, load_balancer: Json, parts: list[Json]) -> None:
        """Everything that a change concerns is PENDING until it is done."""
        for resource in (load_balancer, *parts):
            if not resource["provisioning_status"].startswith("PENDING"):
                self._store.set_status(resource, "PENDING_UPDATE")
        self._progress.begin(load_balancer, [part["id"] for part in parts])
