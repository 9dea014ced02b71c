"""What is shown of the resources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .kinds import (
    HEALTH_MONITOR,
    L7POLICY,
    LISTENER,
    LOAD_BALANCER,
    MEMBER,
    POOL,
    Kind,
)
from .store import OWNER, Store

Json = dict[str, Any]
_OF_STATUS = ("id", "name", "provisioning_status", "operating_status")
_OF_BALANCER = (
    "name", "project_id", "provider", "vip_address", "vip_subnet_id", "flavor_id",
    "availability_zone", "vip_sg_ids", "additional_vips",
)  # fmt: skip
_OF_LISTENER = (
    "name", "protocol", "protocol_port", "allowed_cidrs", "timeout_client_data",
    "timeout_member_data", "timeout_member_connect", "timeout_tcp_inspect", "connection_limit",
    "insert_headers", "default_tls_container_ref", "sni_container_refs", "tls_versions",
    "tls_ciphers", "client_authentication", "client_ca_tls_container_ref",
    "client_crl_container_ref",
)  # fmt: skip
_OF_MONITOR = (
    "type", "delay", "timeout", "max_retries", "max_retries_down", "http_method", "url_path",
    "expected_codes",
)  # fmt: skip
_OF_POLICY = ("name", "action", "admin_state_up", "redirect_prefix", "redirect_http_code")
_OF_RULE = ("type", "compare_type", "value", "invert", "admin_state_up")
_HIDDEN = (OWNER, "pool_id", "l7policy_id")


class Views:
    """One state of the cloud, as the API shows it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def show(self, kind: Kind, resource: Json) -> Json:
        """A resource with the ids of what is in it."""
        shown = {name: value for name, value in resource.items() if name not in _HIDDEN}
        shown["tenant_id"] = shown["project_id"]
        if kind is LOAD_BALANCER:
            for inner in (LISTENER, POOL):
                shown[inner.plural] = _ids(self._store.parts(inner, resource["id"]))
        elif kind in (LISTENER, POOL):
            shown["loadbalancers"] = [{"id": resource[OWNER]}]
        if kind is LISTENER:
            shown["allowed_cidrs"] = resource["allowed_cidrs"] or None
            shown["l7policies"] = _ids(self._store.policies(resource["id"]))
        elif kind is POOL:
            shown["listeners"] = _ids(self._store.listeners_of(resource))
            shown["members"] = _ids(self._store.members(resource["id"]))
            shown["session_persistence"] = _persistence(resource["session_persistence"])
            if monitor := self._store.monitor(resource["id"]):
                shown["healthmonitor_id"] = monitor["id"]
        elif kind is L7POLICY:
            shown["rules"] = _ids(self._store.rules(resource["id"]))
        elif kind is HEALTH_MONITOR:
            shown["pools"] = [{"id": resource["pool_id"]}]
        return shown

    def full(self, load_balancer: Json) -> Json:
        """A load balancer with all that is in it: what a create answers."""
        shown = self.show(LOAD_BALANCER, load_balancer)
        shown["listeners"] = [
            _without(self.show(LISTENER, listener), "loadbalancers")
            | {"l7policies": [*map(self._full_policy, self._store.policies(listener["id"]))]}
            for listener in self._store.parts(LISTENER, load_balancer["id"])
        ]
        shown["pools"] = [
            self._full_pool(pool) for pool in self._store.parts(POOL, load_balancer["id"])
        ]
        return shown

    def _full_policy(self, policy: Json) -> Json:
        return self.show(L7POLICY, policy) | {"rules": self._store.rules(policy["id"])}

    def _full_pool(self, pool: Json) -> Json:
        shown = _without(self.show(POOL, pool), "loadbalancers", "healthmonitor_id")
        shown["members"] = [
            self.show(MEMBER, member) for member in self._store.members(pool["id"])
        ]
        if monitor := self._store.monitor(pool["id"]):
            shown["healthmonitor"] = _without(self.show(HEALTH_MONITOR, monitor), "pools")
        return shown

    def statuses(self, load_balancer: Json) -> Json:
        """The status tree, in which a pool without a listener is not, nor any L7 policy."""
        listeners = []
        for listener in self._store.parts(LISTENER, load_balancer["id"]):
            pools = [
                _status(each) | self._in_pool(each) for each in self._store.pools_of(listener)
            ]
            listeners.append(_status(listener) | {"pools": pools})
        return _status(load_balancer) | {"listeners": listeners}

    def tree(self, load_balancer: Json) -> Json:
        """What there is, without ids, times and statuses: two of the same are equal."""
        pools = {pool["id"]: pool for pool in self._store.parts(POOL, load_balancer["id"])}
        owned = {pool["id"] for pool in pools.values() if self._store.listeners_of(pool)}
        listeners = [
            {name: listener[name] for name in _OF_LISTENER}
            | {"tags": sorted(listener["tags"])}
            | {"pool": self._pool_tree(pools.get(listener["default_pool_id"] or ""))}
            | {"policies": [*self._policy_trees(listener)]}
            for listener in self._store.parts(LISTENER, load_balancer["id"])
        ]
        loose = [self._pool_tree(pool) for pool in pools.values() if pool["id"] not in owned]
        return {name: load_balancer[name] for name in _OF_BALANCER} | {
            "tags": sorted(load_balancer["tags"]),
            "listeners": sorted(
                listeners, key=lambda listener: (listener["protocol_port"], listener["protocol"])
            ),
            "loose_pools": sorted(loose, key=lambda pool: str(pool and pool["name"])),
        }

    def _pool_tree(self, pool: Json | None) -> Json | None:
        if pool is None:
            return None
        named = ("name", "address", "protocol_port", "subnet_id", "weight")
        members = [
            {name: member[name] for name in named} for member in self._store.members(pool["id"])
        ]
        monitor = self._store.monitor(pool["id"])
        return {
            "name": pool["name"],
            "protocol": pool["protocol"],
            "lb_algorithm": pool["lb_algorithm"],
            "session_persistence": pool["session_persistence"],
            "tls_enabled": pool["tls_enabled"],
            "ca_tls_container_ref": pool["ca_tls_container_ref"],
            "tags": sorted(pool["tags"]),
            "health_monitor": monitor and {name: monitor[name] for name in _OF_MONITOR},
            "members": sorted(
                members, key=lambda member: (member["address"], member["protocol_port"])
            ),
        }

    def _policy_trees(self, listener: Json) -> Iterable[Json]:
        """What each policy does, by its position."""
        policies = self._store.policies(listener["id"])
        for policy in sorted(policies, key=lambda each: int(each["position"])):
            pool = self._store.of(POOL).get(policy["redirect_pool_id"] or "")
            rules = self._store.rules(policy["id"])
            yield {name: policy[name] for name in _OF_POLICY} | {
                "pool": self._pool_tree(pool),
                "rules": sorted(
                    ({name: rule[name] for name in _OF_RULE} for rule in rules), key=str
                ),
            }

    def _in_pool(self, pool: Json) -> Json:
        """What the status tree has below a pool."""
        monitor = self._store.monitor(pool["id"])
        members = [
            _status(member)
            | {"address": member["address"], "protocol_port": member["protocol_port"]}
            for member in self._store.members(pool["id"])
        ]
        shown = _status(monitor) | {"type": monitor["type"]} if monitor else None
        return {"health_monitor": shown, "members": members}


def _ids(resources: Iterable[Json]) -> list[Json]:
    return [{"id": resource["id"]} for resource in resources]


def _status(resource: Json) -> Json:
    return {name: resource[name] for name in _OF_STATUS}


def _without(shown: Json, *names: str) -> Json:
    return {name: value for name, value in shown.items() if name not in names}


def _persistence(given: Json | None) -> Json | None:
    if not given:
        return None
    names = ("type", "cookie_name", "persistence_timeout", "persistence_granularity")
    return {name: given.get(name) for name in names}
