"""Health monitors of pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.kit.fakes.faults import Answer

from . import errors, providers
from .changes import Changes
from .kinds import HEALTH_MONITOR, POOL, Kind
from .store import Store

Json = dict[str, Any]
_DATAGRAMS = ("UDP", "SCTP")
_OF_REQUESTS = ("HTTP", "HTTPS")
_FOR_DATAGRAMS = ("UDP-CONNECT", "SCTP", "TCP", "HTTP")
_SHORTEST_UDP = 3  # seconds, as Octavia is configured where it is not told


class Monitors:
    """What Octavia does with them; every method is complete before anybody else runs."""

    def __init__(
        self, store: Store, changes: Changes, check_quota: Callable[[Kind, str, int], None]
    ) -> None:
        self._store = store
        self._changes = changes
        self._check_quota = check_quota

    def create(self, body: Json, check: Callable[[str], None]) -> Json:
        """The monitor of a pool that has none.

        :param check: refuses who may not do it in the project of the load balancer.
        """
        body = HEALTH_MONITOR.check_create(body)
        pool = self._store.get(POOL, body["pool_id"])
        load_balancer = self._changes.owner(pool)
        check(load_balancer["project_id"])
        check_type(pool["protocol"], body)
        self._check_quota(HEALTH_MONITOR, load_balancer["project_id"], 1)
        self._changes.check_pool_mutable(pool)
        check_requests(body["type"], body)
        if self._store.monitor(pool["id"]) is not None:
            raise Answer(409, message="This pool already has a health monitor")
        providers.check_monitor(load_balancer["provider"], body)
        monitor = self._changes.add(HEALTH_MONITOR, load_balancer, with_defaults(body))
        parts = [monitor, pool, *self._store.listeners_of(pool)]
        self._changes.begin(load_balancer, parts)
        return monitor

    def update(self, monitor: Json, changes: Json) -> None:
        """Change what was given. Of the end of it, ovn does not tell Octavia for the listeners."""
        check_requests(monitor["type"], changes, given=True)
        changes = HEALTH_MONITOR.check_update(changes)
        pool = self._store.get(POOL, monitor["pool_id"])
        if pool["protocol"] in _DATAGRAMS:
            check_type(pool["protocol"], monitor | changes)
        self._changes.check_pool_mutable(pool)
        self._store.change(monitor, changes)
        load_balancer, listeners = self._changes.owner(pool), self._store.listeners_of(pool)
        told = listeners if load_balancer["provider"] != "ovn" else []
        self._changes.begin(load_balancer, [monitor, pool, *told])
        for listener in listeners:
            self._store.set_status(listener, "PENDING_UPDATE")

    def delete(self, monitor: Json) -> None:
        """Begin to delete."""
        pool = self._store.get(POOL, monitor["pool_id"])
        self._changes.check_pool_mutable(pool)
        self._changes.delete(monitor, [pool, *self._store.listeners_of(pool)])


def with_defaults(monitor: Json) -> Json:
    """HTTP has some."""
    if monitor["type"] not in _OF_REQUESTS:
        return monitor
    defaults = {"http_method": "GET", "url_path": "/", "expected_codes": "200"}
    return monitor | {name: monitor[name] or value for name, value in defaults.items()}


def check_requests(kind: str, body: Json, *, given: bool = False) -> None:
    """400 where a monitor that sends no requests is to have what they are like.

    :param given: null counts as well.
    """
    for name in () if kind in _OF_REQUESTS else ("http_method", "url_path", "expected_codes"):
        if body.get(name) is not None or (given and name in body):
            text = f"{name} is not a valid option for health monitors of type {kind}"
            raise Answer(400, message=text)


def check_type(protocol: str, monitor: Json) -> None:
    """400 where a pool of this protocol cannot have it."""
    kind = monitor["type"]
    if protocol not in _DATAGRAMS:
        if kind in ("UDP-CONNECT", "SCTP"):
            text = f"The {kind} type is only supported for pools of type UDP/SCTP."
            raise errors.invalid(text)
        return
    if kind not in _FOR_DATAGRAMS:
        raise errors.invalid(
            f"The associated pool protocol is {protocol}, so only a {'/'.join(_FOR_DATAGRAMS)}"
            " health monitor is supported."
        )
    if kind == "UDP-CONNECT" and monitor["delay"] < _SHORTEST_UDP:
        raise errors.invalid(
            f"The request delay value {monitor['delay']} should be larger than {_SHORTEST_UDP}"
            f" for {kind} health monitor type."
        )
