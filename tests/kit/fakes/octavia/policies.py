"""L7 policies of listeners, and their rules."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.kit.fakes.faults import Answer

from . import errors
from .changes import Changes
from .kinds import L7POLICY, L7RULE, LISTENER, POOL, Kind
from .listening import check_protocols
from .store import OWNER, Store

Json = dict[str, Any]
MOST_RULES = 50
_PREFIX, _TO_POOL = "REDIRECT_PREFIX", "REDIRECT_TO_POOL"
_TARGETS = ("redirect_pool_id", "redirect_url", "redirect_prefix", "redirect_http_code")
_OF_RULE = {"HOST_NAME", "PATH", "FILE_TYPE", "HEADER", "COOKIE"}
_HEADER_VALUE = re.compile(r"[a-zA-Z0-9!#$%&'()*+\-./:;<=>?@[\]^_`{|}~\\]+")


class Policies:
    """What Octavia does with them; every method is complete before anybody else runs."""

    def __init__(
        self, store: Store, changes: Changes, check_quota: Callable[[Kind, str, int], None]
    ) -> None:
        self._store = store
        self._changes = changes
        self._check_quota = check_quota

    def create(self, body: Json, check: Callable[[str], None]) -> Json:
        """A policy of a listener; those at its position and after it move on.

        :param check: refuses who may not do it in the project of the load balancer.
        """
        body = L7POLICY.check_create(body)
        listener = self._store.get(LISTENER, body["listener_id"])
        load_balancer = self._changes.owner(listener)
        check(load_balancer["project_id"])
        self._check_pool(listener, body["redirect_pool_id"])
        _check_provider(load_balancer)
        self._check_quota(L7POLICY, load_balancer["project_id"], 1)
        self._changes.check_mutable(load_balancer)
        if body.pop("rules", None):
            raise Answer(500, message="'dict' object has no attribute '_sa_instance_state'")
        position = body.pop("position")
        policy = self._changes.add(L7POLICY, load_balancer, complete(body))
        place(self._store, policy, position)
        self._changes.begin(load_balancer, [policy, listener])
        return policy

    def update(self, policy: Json, changes: Json) -> None:
        """Change what was given."""
        changes = L7POLICY.check_update(changes)
        listener, load_balancer = self._above(policy)
        self._check_pool(listener, changes.get("redirect_pool_id"))
        self._changes.check_mutable(load_balancer)
        position = changes.pop("position", None)
        if set(changes) & {"action", *_TARGETS}:
            own = {name: policy[name] for name in ("action", *_TARGETS)}
            changes |= complete(own | changes)
        self._store.change(policy, changes)
        if position is not None:
            place(self._store, policy, position)
        self._changes.begin(load_balancer, [policy, listener])

    def delete(self, policy: Json) -> None:
        """Begin to delete, with its rules."""
        listener, _load_balancer = self._above(policy)
        self._changes.delete(policy, [listener])

    def create_rule(self, policy: Json, body: Json) -> Json:
        """One more rule of a policy."""
        body = L7RULE.check_create(body)
        listener, load_balancer = self._above(policy)
        check_rule(body)
        if len(self._store.rules(policy["id"])) >= MOST_RULES:
            raise Answer(409, message=f"Too many rules on L7 policy {policy['id']}")
        self._check_quota(L7RULE, load_balancer["project_id"], 1)
        if policy["provisioning_status"] != "ACTIVE":
            raise errors.immutable("L7Policy", policy["id"])
        self._changes.check_mutable(load_balancer)
        rule = self._changes.add(L7RULE, load_balancer, body | {"l7policy_id": policy["id"]})
        self._changes.begin(load_balancer, [rule, policy, listener])
        return rule

    def update_rule(self, rule: Json, changes: Json) -> None:
        """Change what was given."""
        changes = L7RULE.check_update(changes)
        check_rule(rule | changes)
        policy = self._store.get(L7POLICY, rule["l7policy_id"])
        listener, load_balancer = self._above(policy)
        self._changes.check_mutable(load_balancer)
        self._store.change(rule, changes)
        self._changes.begin(load_balancer, [rule, policy, listener])

    def delete_rule(self, rule: Json) -> None:
        """Begin to delete one."""
        policy = self._store.get(L7POLICY, rule["l7policy_id"])
        listener, _load_balancer = self._above(policy)
        self._changes.delete(rule, [policy, listener])

    def _above(self, policy: Json) -> tuple[Json, Json]:
        listener = self._store.get(LISTENER, policy["listener_id"])
        return listener, self._changes.owner(listener)

    def _check_pool(self, listener: Json, pool_id: str | None) -> None:
        if pool_id is None:
            return
        pool = self._store.of(POOL).get(pool_id)
        if pool is None or pool[OWNER] != listener[OWNER]:
            raise errors.missing(POOL.title, pool_id)
        check_protocols(listener["protocol"], pool["protocol"])


def place(store: Store, policy: Json, position: int) -> None:
    """Give the policy its position among those of its listener, and all of them theirs."""
    others = [each for each in store.policies(policy["listener_id"]) if each is not policy]
    others.sort(key=lambda each: int(each["position"]))
    others.insert(position - 1, policy)
    for number, each in enumerate(others, start=1):
        each["position"] = number


def complete(body: Json) -> Json:
    """The body of a policy: of what does not belong to its action, nothing is left."""
    action = body["action"]
    wanted = {_PREFIX: "redirect_prefix", _TO_POOL: "redirect_pool_id"}.get(action)
    if wanted and not body.get(wanted):
        raise Answer(400, message=f"Invalid L7 policy arguments: {wanted} must not be None")
    if wanted == "redirect_pool_id" and (body.get("redirect_url") or body.get("redirect_prefix")):
        text = "Cannot specify redirect_pool_id and redirect_url or redirect_prefix at the same"
        raise Answer(400, message=f"{text} time")
    kept = {wanted, "redirect_http_code"} if wanted == "redirect_prefix" else {wanted}
    result = body | {name: None for name in _TARGETS if name not in kept}
    if wanted == "redirect_prefix":
        result["redirect_http_code"] = body.get("redirect_http_code") or 302
    return result


def check_rule(rule: Json) -> None:
    """400 for what no haproxy could evaluate."""
    if not rule["value"]:
        raise errors.invalid("L7 rule type requires a value")
    if rule["compare_type"] == "REGEX":
        try:
            re.compile(rule["value"])
        except re.error as error:
            raise errors.invalid(f"Unable to parse regular expression: {error}") from None
    elif rule["type"] in _OF_RULE and not _HEADER_VALUE.fullmatch(rule["value"]):
        raise errors.invalid("Invalid characters in comparison value")


def _check_provider(load_balancer: Json) -> None:
    if load_balancer["provider"] == "ovn":
        raise errors.unsupported("ovn", "This provider does not support creating l7policies.")
