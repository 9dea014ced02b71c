"""Listeners, pools and members of a load balancer that is there already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.kit.fakes.faults import Answer

from . import errors, providers
from .changes import Changes
from .kinds import L7POLICY, LISTENER, LOAD_BALANCER, MEMBER, POOL, Kind
from .listening import check_created, check_protocols, check_updated
from .store import OWNER, Store
from .tls import check_pool, chosen_again, with_choices

Json = dict[str, Any]


class Parts:
    """What Octavia does with them; every method is complete before anybody else runs."""

    def __init__(
        self,
        store: Store,
        changes: Changes,
        check_quota: Callable[[Kind, str, int], None],
        subnets: dict[str, Json],
    ) -> None:
        self._store = store
        self._changes = changes
        self._check_quota = check_quota
        self._subnets = subnets

    def create_listener(self, body: Json, check: Callable[[str], None]) -> Json:
        """A listener, with a pool that is there already or none.

        :param check: refuses who may not do it in the project of the load balancer.
        """
        body = LISTENER.check_create(body)
        load_balancer = self._store.get(LOAD_BALANCER, body.pop("loadbalancer_id"))
        check(load_balancer["project_id"])
        self._check_quota(LISTENER, load_balancer["project_id"], 1)
        self._check_pool_of(load_balancer, body["default_pool_id"], body["protocol"])
        self._changes.check_mutable(load_balancer)
        others = self._store.parts(LISTENER, load_balancer["id"])
        check_created(load_balancer, others, body, self._store.references())
        if body.pop("default_pool", None) is not None:
            raise Answer(500, message="'dict' object has no attribute '_sa_instance_state'")
        providers.check_listener(load_balancer["provider"], body)
        listener = self._changes.add(LISTENER, load_balancer, with_choices(body))
        self._changes.begin(load_balancer, [listener])
        return listener

    def update_listener(self, listener: Json, changes: Json) -> None:
        """Change what was given."""
        changes = LISTENER.check_update(chosen_again(changes))
        load_balancer = self._changes.owner(listener)
        if changes.get("default_pool_id"):
            self._check_pool_of(load_balancer, changes["default_pool_id"], listener["protocol"])
        check_updated(load_balancer, listener, changes, self._store.references())
        self._changes.check_mutable(load_balancer)
        providers.check_listener(load_balancer["provider"], changes)
        self._store.change(listener, changes)
        self._changes.begin(load_balancer, [listener])

    def delete_listener(self, listener: Json) -> None:
        """Begin to delete; its pool stays."""
        self._changes.delete(listener, [])

    def create_pool(self, body: Json, check: Callable[[str], None]) -> Json:
        """A pool of a listener, whose default pool it becomes, or of a load balancer."""
        body = POOL.check_create(body)
        owner, listener_id = body.pop("loadbalancer_id", None), body.pop("listener_id", None)
        if owner is None and listener_id is None:
            raise errors.invalid("Must provide at least one of: loadbalancer_id, listener_id")
        listener = self._store.get(LISTENER, listener_id) if listener_id else None
        load_balancer = self._store.get(LOAD_BALANCER, owner or str(listener and listener[OWNER]))
        check(load_balancer["project_id"])
        if listener is not None:
            check_protocols(listener["protocol"], body["protocol"])
        _check_persistence(body["protocol"], body)
        check_pool({}, body, self._store)
        self._check_quota(POOL, load_balancer["project_id"], 1)
        if listener is not None and listener["default_pool_id"]:
            raise Answer(409, message="This listener already has a default pool")
        self._changes.check_mutable(load_balancer)
        body.pop("members", None)
        providers.check_pool(load_balancer["provider"], body)
        pool = self._changes.add(POOL, load_balancer, body)
        if listener is not None:
            listener["default_pool_id"] = pool["id"]
        self._changes.begin(load_balancer, [pool, *self._store.listeners_of(pool)])
        return pool

    def update_pool(self, pool: Json, changes: Json) -> None:
        """Change what was given."""
        changes = POOL.check_update(changes)
        _check_persistence(pool["protocol"], changes)
        check_pool(pool, changes, self._store)
        load_balancer = self._changes.owner(pool)
        self._changes.check_mutable(load_balancer)
        providers.check_pool(load_balancer["provider"], changes)
        self._store.change(pool, changes)
        self._changes.begin(load_balancer, [pool, *self._store.listeners_of(pool)])

    def delete_pool(self, pool: Json) -> None:
        """Begin to delete, with its members."""
        for policy in self._store.parts(L7POLICY, pool[OWNER]):
            if policy["redirect_pool_id"] == pool["id"]:
                text = f"Pool {pool['id']} is in use by L7 policy {policy['id']}"
                raise Answer(409, message=text)
        self._changes.delete(pool, self._store.listeners_of(pool))

    def set_members(self, pool: Json, bodies: list[Json], *, additive: bool) -> None:
        """Have these members, and without `additive` no others."""
        wanted = [MEMBER.check_create(body) for body in bodies]
        load_balancer = self._changes.owner(pool)
        self._changes.check_pool_mutable(pool)
        present = {_key(member): member for member in self._store.members(pool["id"])}
        new = [body for body in wanted if _key(body) not in present]
        kept = [body for body in wanted if _key(body) in present]
        if len({_key(body) for body in kept}) < len(kept):
            raise errors.invalid("Member must be updated only once in the same request.")
        stay = set(present if additive else map(_key, wanted))
        going = [member for key, member in present.items() if key not in stay]
        if not (new or kept or going):
            return
        if len(new) > len(going):
            self._check_quota(MEMBER, load_balancer["project_id"], len(new) - len(going))
        self._check_new(new)
        subnet = self._subnets.get(load_balancer["vip_subnet_id"])
        providers.check_members(load_balancer, subnet, wanted)
        changed = [
            self._changes.add(MEMBER, load_balancer, body | {"pool_id": pool["id"]})
            for body in new
        ]
        given = {(body["address"], body["protocol_port"]): body for body in bodies}
        for body in kept:
            member = present[_key(body)]
            self._store.change(member, given[_key(body)] | {"weight": body["weight"]})
            changed.append(member)
        for old in going:
            self._store.set_status(old, "PENDING_DELETE")
        listeners = self._store.listeners_of(pool)
        self._changes.begin(load_balancer, [pool, *listeners, *changed, *going])

    def create_member(self, pool: Json, body: Json) -> Json:
        """Make one more."""
        wanted = MEMBER.check_create(body)
        self._check_new([*self._store.members(pool["id"]), wanted])
        self.set_members(pool, [body], additive=True)
        members = self._store.members(pool["id"])
        return next(member for member in members if _key(member) == _key(wanted))

    def delete_member(self, member: Json) -> None:
        """Begin to delete one."""
        pool = self._store.get(POOL, member["pool_id"])
        self._changes.check_pool_mutable(pool)
        self._changes.delete(member, [pool, *self._store.listeners_of(pool)])

    def _check_new(self, members: list[Json]) -> None:
        seen = set()
        for member in members:
            if _key(member) in seen:
                text = (
                    f"Another member on this pool is already using ip {member['address']} on"
                    f" protocol_port {member['protocol_port']}"
                )
                raise Answer(409, message=text)
            seen.add(_key(member))
            if member["subnet_id"] is not None and member["subnet_id"] not in self._subnets:
                raise Answer(400, message=f"Subnet {member['subnet_id']} not found.")

    def _check_pool_of(self, load_balancer: Json, pool_id: str | None, protocol: str) -> None:
        if pool_id is None:
            return
        pool = self._store.of(POOL).get(pool_id)
        if pool is None or pool[OWNER] != load_balancer["id"]:
            raise errors.missing(POOL.title, pool_id)
        check_protocols(protocol, pool["protocol"])


def _check_persistence(protocol: str, pool: Json) -> None:
    persistence = pool.get("session_persistence") or {}
    timed = persistence.get("persistence_timeout") or persistence.get("persistence_granularity")
    if timed and protocol not in ("UDP", "SCTP"):
        raise errors.invalid(
            "persistence_timeout and persistence_granularity is only for UDP and SCTP protocol"
            " pools."
        )


def _key(member: Json) -> tuple[str, int]:
    return member["address"], member["protocol_port"]
