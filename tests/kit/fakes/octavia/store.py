"""All load balancers and what is in them, by kind and id."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from . import errors
from .kinds import (
    HEALTH_MONITOR,
    L7POLICY,
    L7RULE,
    LISTENER,
    LOAD_BALANCER,
    MEMBER,
    POOL,
    Kind,
)

Json = dict[str, Any]
# What tells whose a part is: in the store, not in what is shown.
OWNER = "load_balancer_id"
_INSIDE = (LISTENER, POOL, MEMBER, HEALTH_MONITOR, L7POLICY, L7RULE)
_ABOVE = (OWNER, "pool_id", "listener_id", "l7policy_id")


class Store:
    """Plain dictionaries by id; what is in a load balancer knows its id.

    Add and remove only through the methods, for the indexes' sake.
    """

    def __init__(self) -> None:
        self._by_kind: dict[str, dict[str, Json]] = {
            kind.name: {} for kind in (LOAD_BALANCER, *_INSIDE)
        }
        # by the kind, and the id of the load balancer, pool, listener or policy that they are in
        self._inside: defaultdict[tuple[str, str], dict[str, Json]] = defaultdict(dict)
        self._counts: Counter[tuple[str, str]] = Counter()
        self.quotas: dict[str, dict[str, int]] = {}
        self.flavors: dict[str, str] = {}  # the providers that they are for, by id
        self.zones: set[str] = set()  # names of availability zones
        self.certificates: set[str] = set()  # references to those that tests have made
        self.of_barbican: Callable[[], set[str]] = set  # to those that Barbican has
        self.payload_of: Callable[[str], bytes] = lambda _ref: b""  # what such a one is to
        # load balancers that are gone, and whether Octavia lets nobody delete what was in them
        self.stranded: dict[str, bool] = {}
        self.leaked: list[str] = []  # parts that would be left for ever: see Balancers.delete

    def references(self) -> set[str]:
        """References to all certificates that there are."""
        return self.certificates | self.of_barbican()

    def of(self, kind: Kind) -> dict[str, Json]:
        """The resources of a kind."""
        return self._by_kind[kind.name]

    def get(self, kind: Kind, resource_id: str) -> Json:
        """The resource, or 404."""
        found = self.of(kind).get(resource_id)
        if found is None:
            raise errors.missing(kind.title, resource_id)
        return found

    def part(self, resource_id: str) -> Json | None:
        """The resource with this id, of whatever kind."""
        for resources in self._by_kind.values():
            if resource_id in resources:
                return resources[resource_id]
        return None

    def add(self, kind: Kind, body: Json) -> Json:
        """Give the resource an id, statuses and times, and keep it."""
        unmonitored = kind is MEMBER and self.monitor(body["pool_id"]) is None
        resource = body | {
            "id": str(uuid.uuid4()),
            "provisioning_status": "PENDING_CREATE",
            "operating_status": "NO_MONITOR" if unmonitored else "OFFLINE",
            "created_at": _now(),
            "updated_at": None,
        }
        self.of(kind)[resource["id"]] = resource
        self._counts[kind.name, resource["project_id"]] += 1
        for owner in _owners(resource):
            self._inside[kind.name, owner][resource["id"]] = resource
        return resource

    def change(self, resource: Json, changes: Json) -> None:
        """Change the resource."""
        resource.update(changes)
        resource["updated_at"] = _now()

    def set_status(self, resource: Json, status: str) -> None:
        """Change the provisioning status: that changes the row, as everything does."""
        self.change(resource, {"provisioning_status": status})

    def parts(self, kind: Kind, load_balancer_id: str) -> list[Json]:
        """The load balancer's resources of the kind."""
        return list(self._inside[kind.name, load_balancer_id].values())

    def ids_inside(self, load_balancer_id: str) -> list[str]:
        """Ids of all that is in the load balancer."""
        return [part["id"] for kind in _INSIDE for part in self.parts(kind, load_balancer_id)]

    def members(self, pool_id: str) -> list[Json]:
        """The pool's members."""
        return list(self._inside[MEMBER.name, pool_id].values())

    def monitor(self, pool_id: str) -> Json | None:
        """The pool's health monitor."""
        return next(iter(self._inside[HEALTH_MONITOR.name, pool_id].values()), None)

    def policies(self, listener_id: str) -> list[Json]:
        """The listener's L7 policies."""
        return list(self._inside[L7POLICY.name, listener_id].values())

    def rules(self, policy_id: str) -> list[Json]:
        """The rules of an L7 policy."""
        return list(self._inside[L7RULE.name, policy_id].values())

    def pools_of(self, listener: Json) -> list[Json]:
        """The pools that the listener leads to: by itself, or by policies that are looked at."""
        ids = [listener["default_pool_id"]]
        ids += [
            policy["redirect_pool_id"]
            for policy in self.policies(listener["id"])
            if policy["admin_state_up"] and any(map(_is_enabled, self.rules(policy["id"])))
        ]
        return [self.of(POOL)[pool_id] for pool_id in dict.fromkeys(ids) if pool_id]

    def listeners_of(self, pool: Json) -> list[Json]:
        """The listeners that lead to it."""
        listeners = self.parts(LISTENER, pool[OWNER])
        return [listener for listener in listeners if pool in self.pools_of(listener)]

    def remove(self, resource_id: str) -> None:
        """Forget the resource and all that is in it."""
        pool = self.of(POOL).get(resource_id)
        for listener in self.listeners_of(pool) if pool is not None else ():
            if listener["default_pool_id"] == resource_id:
                listener["default_pool_id"] = None
        monitor = self.monitor(resource_id)
        policies = self.policies(resource_id)
        ruled = [resource_id, *(policy["id"] for policy in policies)]
        below = [*self.members(resource_id), *([monitor] if monitor else []), *policies]
        below += [rule for policy_id in ruled for rule in self.rules(policy_id)]
        ids = [resource_id, *self.ids_inside(resource_id), *(part["id"] for part in below)]
        policy = self.of(L7POLICY).get(resource_id)
        for part_id in ids:
            self._forget(part_id)
        if policy is not None:
            others = sorted(
                self.policies(policy["listener_id"]), key=lambda each: each["position"]
            )
            for number, other in enumerate(others, start=1):
                other["position"] = number

    def strand(self, load_balancer_id: str, *, immutable: bool) -> None:
        """Forget the load balancer, and keep what is in it."""
        load_balancer = self.of(LOAD_BALANCER).pop(load_balancer_id)
        self._counts[LOAD_BALANCER.name, load_balancer["project_id"]] -= 1
        self.stranded[load_balancer_id] = immutable

    def count(self, kind: Kind, project_id: str) -> int:
        """How many resources of the kind the project has."""
        return self._counts[kind.name, project_id]

    def _forget(self, resource_id: str) -> None:
        for name, resources in self._by_kind.items():
            resource = resources.pop(resource_id, None)
            if resource is None:
                continue
            self._counts[name, resource["project_id"]] -= 1
            for owner in _owners(resource):
                self._inside[name, owner].pop(resource_id, None)


def _owners(resource: Json) -> list[str]:
    return [resource[name] for name in _ABOVE if resource.get(name)]


def _is_enabled(rule: Json) -> bool:
    return bool(rule["admin_state_up"])


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
