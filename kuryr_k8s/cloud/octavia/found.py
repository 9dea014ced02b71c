"""Load balancers from the JSON of the Octavia API v2.

https://docs.openstack.org/api-ref/load-balancer/v2/
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from kuryr_k8s.model.load_balancer import (
    CLIENT_CERTIFICATES,
    AdditionalVIP,
    Address,
    FoundL7Policy,
    FoundListener,
    FoundLoadBalancer,
    FoundPool,
    HealthMonitor,
    L7Policy,
    L7Rule,
    Listener,
    Member,
    Pool,
)

Json = dict[str, Any]


class Parts(NamedTuple):
    """A load balancer and what it contains, as lists show it: of members, only the ids.

    :param monitors: the monitors that are known, by the ids of their pools.
    :param policies: L7 policies, of which only the ids of their rules are known.
    """

    load_balancer: Json
    listeners: list[Json]
    pools: list[Json]
    monitors: dict[str, Json]
    policies: Sequence[Json] = ()

    def mark(self) -> bytes:
        """Return a digest that differs after any change, but for operating statuses.

        It covers ``updated_at``, which tells, in whole seconds, of changes of members too.
        """
        rows = [
            self.load_balancer,
            *self.listeners,
            *self.pools,
            *self.monitors.values(),
            *self.policies,
        ]
        shown = [{**row, "operating_status": None} for row in rows]
        shown.sort(key=lambda row: str(row["id"]))
        return hashlib.blake2b(json.dumps(shown, sort_keys=True).encode()).digest()


class StatusTree(NamedTuple):
    """A load balancer as its status tree shows it: without pools that no listener leads to.

    :param statuses: the provisioning statuses of everything in it.
    :param members: ids of members by their addresses, by the ids of their pools.
    :param operating: operating statuses of members, in the same way.
    """

    statuses: frozenset[str]
    members: dict[str, dict[Address, str]]
    operating: dict[str, dict[Address, str]]


def status_tree(shown: Json) -> StatusTree:
    """Return a status tree from what Octavia shows."""
    pools = {pool["id"]: pool for each in shown["listeners"] for pool in each["pools"]}
    members = [member for pool in pools.values() for member in pool["members"]]
    monitors = [monitor for pool in pools.values() if (monitor := pool.get("health_monitor"))]
    every = [shown, *shown["listeners"], *pools.values(), *members, *monitors]
    return StatusTree(
        frozenset(each["provisioning_status"] for each in every),
        {pool_id: _by_address(pool, "id") for pool_id, pool in pools.items()},
        {pool_id: _by_address(pool, "operating_status") for pool_id, pool in pools.items()},
    )


def _by_address(pool: Json, name: str) -> dict[Address, str]:
    """Return an attribute of a pool's members by their addresses."""
    return {
        Address(member["address"], member["protocol_port"]): member[name]
        for member in pool["members"]
    }


def found(
    parts: Parts,
    members: Mapping[str, Sequence[Json]],
    rules: Mapping[str, Sequence[Json]],
) -> FoundLoadBalancer:
    """Return a load balancer from what Octavia shows of its parts.

    :param parts: with all of its monitors.
    :param members: by the ids of their pools.
    :param rules: by the ids of their policies.
    """
    load_balancer, pools = parts.load_balancer, parts.pools
    names = {pool["id"]: pool["name"] for pool in pools}
    policies = sorted(parts.policies, key=lambda policy: int(policy["position"]))
    return FoundLoadBalancer(
        id=load_balancer["id"],
        name=load_balancer["name"],
        project_id=load_balancer["project_id"],
        provider=load_balancer["provider"],
        vip_address=load_balancer["vip_address"],
        vip_subnet_id=load_balancer["vip_subnet_id"],
        vip_port_id=load_balancer["vip_port_id"],
        provisioning_status=load_balancer["provisioning_status"],
        operating_status=load_balancer["operating_status"],
        tags=tuple(load_balancer["tags"]),
        listeners=tuple(
            found_listener(
                shown,
                names,
                [
                    found_policy(policy, rules.get(policy["id"], ()), names)
                    for policy in policies
                    if policy["listener_id"] == shown["id"]
                ],
            )
            for shown in parts.listeners
        ),
        pools=tuple(
            found_pool(shown, members.get(shown["id"], ()), parts.monitors.get(shown["id"]))
            for shown in pools
        ),
        vip_network_id=load_balancer["vip_network_id"],
        additional_vips=tuple(
            AdditionalVIP(each["subnet_id"], each["ip_address"])
            for each in load_balancer.get("additional_vips") or ()  # API 2.26
        ),
        vip_sg_ids=tuple(sorted(load_balancer.get("vip_sg_ids") or ())),  # API 2.29
        flavor_id=load_balancer["flavor_id"],
        availability_zone=load_balancer["availability_zone"],
    )


def found_listener(
    shown: Json, pool_names: Mapping[str, str], policies: Sequence[FoundL7Policy]
) -> FoundListener:
    """Return a listener from what Octavia shows of it.

    :param pool_names: by their ids.
    :param policies: in the order of their positions.
    """
    pool_id = shown["default_pool_id"]
    listener = Listener(
        name=shown["name"],
        protocol=shown["protocol"],
        port=shown["protocol_port"],
        pool=pool_names.get(pool_id, ""),
        policies=tuple(each.policy for each in policies),
        timeout_client_data=shown["timeout_client_data"],
        timeout_member_data=shown["timeout_member_data"],
        timeout_member_connect=shown["timeout_member_connect"],
        timeout_tcp_inspect=shown["timeout_tcp_inspect"],
        allowed_cidrs=tuple(sorted(shown["allowed_cidrs"] or ())),  # it keeps no order
        connection_limit=shown["connection_limit"],
        insert_headers=_headers(shown["insert_headers"] or {}),
        default_tls_container_ref=shown["default_tls_container_ref"],
        sni_container_refs=tuple(sorted(shown["sni_container_refs"] or ())),
        tls_versions=tuple(sorted(shown.get("tls_versions") or ())),  # API 2.17
        tls_ciphers=shown.get("tls_ciphers"),  # API 2.15
        **{name: shown[name] for name in CLIENT_CERTIFICATES},
        tags=tuple(shown["tags"]),
    )
    return FoundListener(
        id=shown["id"],
        provisioning_status=shown["provisioning_status"],
        listener=listener,
        pool_id=pool_id,
        policies=tuple(policies),
    )


def found_policy(
    shown: Json, rules: Sequence[Json], pool_names: Mapping[str, str]
) -> FoundL7Policy:
    """Return an L7 policy from what Octavia shows of it and of its rules.

    A rule that is disabled is none.
    """
    pool_id = shown["redirect_pool_id"]
    enabled = [rule for rule in rules if rule["admin_state_up"]]
    policy = L7Policy(
        name=shown["name"] or "",
        action=shown["action"],
        rules=tuple(
            L7Rule(rule["type"], rule["compare_type"], rule["value"], rule["invert"])
            for rule in enabled
        ),
        redirect_pool=pool_names.get(pool_id),
        redirect_prefix=shown["redirect_prefix"],
        redirect_http_code=shown["redirect_http_code"],
    )
    return FoundL7Policy(
        id=shown["id"],
        provisioning_status=shown["provisioning_status"],
        policy=policy,
        is_enabled=shown["admin_state_up"],
        pool_id=pool_id,
        rule_ids=tuple(rule["id"] for rule in enabled),
        rule_statuses=tuple(rule["provisioning_status"] for rule in rules),
    )


def _headers(shown: Mapping[str, str]) -> tuple[str, ...]:
    """Return the headers that are added: Octavia also keeps those whose value is not "true"."""
    return tuple(sorted(name for name, value in shown.items() if value.lower() == "true"))


def found_pool(shown: Json, members: Sequence[Json], monitor: Json | None) -> FoundPool:
    """Return a pool from what Octavia shows of it, of its members and of its health monitor."""
    persistence = shown["session_persistence"] or {}
    pool = Pool(
        name=shown["name"],
        protocol=shown["protocol"],
        lb_algorithm=shown["lb_algorithm"],
        persistence=persistence.get("type"),
        persistence_timeout=persistence.get("persistence_timeout"),
        members=tuple(map(_member, members)),
        health_monitor=_monitor(monitor) if monitor is not None else None,
        tls_enabled=shown["tls_enabled"],
        ca_tls_container_ref=shown["ca_tls_container_ref"],
        tags=tuple(shown["tags"]),
    )
    shown_by_key = {
        Address(member["address"], member["protocol_port"]): member for member in members
    }
    return FoundPool(
        id=shown["id"],
        provisioning_status=shown["provisioning_status"],
        pool=pool,
        created_at=shown.get("created_at") or "",
        member_statuses={
            key: member["provisioning_status"] for key, member in shown_by_key.items()
        },
        member_ids={key: member["id"] for key, member in shown_by_key.items()},
        health_monitor_id=monitor["id"] if monitor is not None else None,
        health_monitor_status=monitor["provisioning_status"] if monitor is not None else None,
    )


def _monitor(shown: Json) -> HealthMonitor:
    return HealthMonitor(**{field.name: shown[field.name] for field in fields(HealthMonitor)})


def _member(shown: Json) -> Member:
    return Member(
        address=shown["address"],
        port=shown["protocol_port"],
        name=shown["name"] or "",
        subnet_id=shown["subnet_id"],
        weight=shown["weight"],
    )
