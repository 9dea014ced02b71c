"""Bodies of calls of the Octavia API v2; :mod:`kuryr_k8s.cloud.octavia.found` reads the answers.

https://docs.openstack.org/api-ref/load-balancer/v2/

The client adds the object's name around a body (``{"listener": …}``). What cannot be changed after
the creation is not in the bodies of updates: Octavia would answer 400.
"""

import dataclasses
import json
from collections.abc import Collection
from typing import Any

from kuryr_k8s.model.load_balancer import (
    CLIENT_CERTIFICATES,
    HTTP,
    LISTENER_LIMITS,
    TERMINATED_HTTPS,
    TIMEOUTS,
    TLS_CHOICES,
    HealthMonitor,
    L7Policy,
    L7Rule,
    Listener,
    LoadBalancer,
    Member,
    Pool,
)

Json = dict[str, Any]
VIP = ("vip_subnet_id", "vip_network_id", "vip_port_id", "vip_address")
# Octavia answers 500 to versions of null where it has a minimum, as it has by default. These are
# what it is configured with where nobody says otherwise.
OWN = {"tls_versions": ["TLSv1.2", "TLSv1.3"]}
POOL_TLS = ("tls_enabled", "ca_tls_container_ref")
# Octavia (19) answers 500 to a load balancer with a pool over TLS that does not name these; with
# null, it chooses. Each came with a later version of the API than TLS itself.
POOL_CHOICES = ("tls_ciphers", "tls_versions", "alpn_protocols")
CHOSEN_ONCE = ("provider", "flavor_id", "availability_zone")
# Bytes. Octavia's API is behind oslo.middleware, which answers 413 to bodies of more than its
# max_request_body_size: 114688 by default.
LARGEST = 100_000


def create_body(wanted: LoadBalancer, pool_choices: Collection[str] = POOL_CHOICES) -> Json:
    """Return the body of ``POST /loadbalancers``: the load balancer with everything in it.

    Default pools are within their listeners; they have names, else Octavia refuses.

    :param pool_choices: those of ``POOL_CHOICES`` that this Octavia knows.
    """
    body: Json = {
        "name": wanted.name,
        "project_id": wanted.project_id,
        "tags": list(wanted.tags),
        **_given(wanted, VIP),
        **_given(wanted, CHOSEN_ONCE),
    }
    if wanted.additional_vips:
        body["additional_vips"] = [{"subnet_id": each} for each in wanted.additional_vips]
    if wanted.vip_sg_ids:
        body["vip_sg_ids"] = list(wanted.vip_sg_ids)
    pools = {pool.name: _populated(pool, pool_choices) for pool in wanted.pools}
    body["listeners"] = [_populated_listener(each, pools) for each in wanted.listeners]
    if pools:
        body["pools"] = list(pools.values())
    return body


def is_too_large(body: Json) -> bool:
    """Return whether Octavia may refuse a body of a load balancer for its size."""
    return len(json.dumps({"loadbalancer": body})) > LARGEST


def _populated_listener(listener: Listener, pools: dict[str, Json]) -> Json:
    """Return a listener with its policies, and its default pool.

    :param pools: those that are in no listener yet.
    """
    body = _listener(listener)
    if listener.pool:
        body["default_pool"] = pools.pop(listener.pool)
    if listener.policies:
        body["l7policies"] = [
            _policy(policy)
            | {"position": position, "rules": [rule_body(rule) for rule in policy.rules]}
            | ({"redirect_pool": {"name": policy.redirect_pool}} if policy.redirect_pool else {})
            for position, policy in enumerate(listener.policies, start=1)
        ]
    return body


def listener_body(listener: Listener, load_balancer_id: str, pool_id: str | None = None) -> Json:
    """Return the body of ``POST /listeners``.

    :param pool_id: an existing pool; None if the pool is created next, and names the listener.
        (Octavia accepts a pool within this body, and answers 500.)
    """
    body = _listener(listener) | {"loadbalancer_id": load_balancer_id}
    if pool_id is not None:
        body["default_pool_id"] = pool_id
    return body


def listener_changes(
    listener: Listener, pool_id: str | None = None, forgotten: Collection[str] = ()
) -> Json:
    """Return the body of ``PUT /listeners/{id}``.

    :param pool_id: its new default pool, empty for none; None if it keeps the one that it has.
    :param forgotten: attributes that are to be Octavia's own again.
    """
    body = _listener(listener)
    del body["protocol"], body["protocol_port"]
    # empty values remove; a timeout of null becomes Octavia's default
    body |= {name: None for name in TIMEOUTS if getattr(listener, name) is None}
    body |= {name: OWN.get(name) for name in TLS_CHOICES if name in forgotten}
    body["allowed_cidrs"] = list(listener.allowed_cidrs)
    body["insert_headers"] = _headers(listener)
    if listener.protocol == TERMINATED_HTTPS:
        body["sni_container_refs"] = list(listener.sni_container_refs)
        body |= {name: getattr(listener, name) for name in CLIENT_CERTIFICATES}
    if pool_id is not None:
        body["default_pool_id"] = pool_id or None
    return body


def policy_body(
    policy: L7Policy, listener_id: str, position: int, pool_id: str | None, *, is_enabled: bool
) -> Json:
    """Return the body of ``POST /l7policies``; its rules are created afterwards.

    Octavia accepts rules within this body, and answers 500.

    :param pool_id: of its pool, where it leads to one.
    :param is_enabled: Octavia looks at it.
    """
    return policy_changes(policy, pool_id) | {
        "listener_id": listener_id,
        "position": position,
        "admin_state_up": is_enabled,
    }


def policy_changes(policy: L7Policy, pool_id: str | None) -> Json:
    """Return the body of ``PUT /l7policies/{id}`` with what becomes of the requests."""
    return _policy(policy) | ({"redirect_pool_id": pool_id} if pool_id is not None else {})


def rule_body(rule: L7Rule) -> Json:
    """Return the body of ``POST /l7policies/{id}/rules``, or a rule in the body of a policy."""
    return dataclasses.asdict(rule)


def pool_body(
    pool: Pool, *, listener_id: str | None = None, load_balancer_id: str | None = None
) -> Json:
    """Return the body of ``POST /pools``; members and health monitor are set afterwards.

    One of the ids must be given.

    :param listener_id: the listener whose default pool it becomes.
    :param load_balancer_id: the load balancer of a pool without a listener.
    """
    body = _pool(pool)
    if listener_id is not None:
        body["listener_id"] = listener_id
    else:
        body["loadbalancer_id"] = load_balancer_id
    return body


def pool_changes(pool: Pool) -> Json:
    """Return the body of ``PUT /pools/{id}``.

    ovn-octavia-provider 11.0 fails without ``admin_state_up``, and the pool is in ERROR.
    """
    # null removes it
    body: Json = {"session_persistence": None, "admin_state_up": True} | _pool(pool)
    del body["protocol"]
    if pool.protocol == HTTP:
        body |= {name: getattr(pool, name) for name in POOL_TLS}
    return body


def member_body(member: Member) -> Json:
    """Return a member for ``PUT /pools/{id}/members``, or for the body of a pool."""
    body: Json = {
        "name": member.name,
        "address": member.address,
        "protocol_port": member.port,
        "weight": member.weight,
    }
    if member.subnet_id is not None:
        body["subnet_id"] = member.subnet_id
    return body


def monitor_body(monitor: HealthMonitor, pool_id: str) -> Json:
    """Return the body of ``POST /healthmonitors``."""
    return _monitor(monitor) | {"pool_id": pool_id}


def monitor_changes(monitor: HealthMonitor) -> Json:
    """Return the body of ``PUT /healthmonitors/{id}``."""
    body = _monitor(monitor)
    del body["type"]
    return body


def _listener(listener: Listener) -> Json:
    body: Json = {
        "name": listener.name,
        "protocol": listener.protocol,
        "protocol_port": listener.port,
        **_given(listener, LISTENER_LIMITS),
    }
    if listener.allowed_cidrs:
        body["allowed_cidrs"] = list(listener.allowed_cidrs)
    if listener.insert_headers:
        body["insert_headers"] = _headers(listener)
    for name in ("sni_container_refs", "tls_versions"):
        if getattr(listener, name):
            body[name] = list(getattr(listener, name))
    if listener.client_ca_tls_container_ref is not None:
        body |= _given(listener, CLIENT_CERTIFICATES)
    if listener.tags:
        body["tags"] = list(listener.tags)
    return body


def _policy(policy: L7Policy) -> Json:
    return {
        "name": policy.name,
        "action": policy.action,
        **_given(policy, ("redirect_prefix", "redirect_http_code")),
    }


def _headers(listener: Listener) -> Json:
    return dict.fromkeys(listener.insert_headers, "true")


def _pool(pool: Pool) -> Json:
    body: Json = {
        "name": pool.name,
        "protocol": pool.protocol,
        "lb_algorithm": pool.lb_algorithm,
    }
    if pool.persistence is not None:
        body["session_persistence"] = {"type": pool.persistence}
        if pool.persistence_timeout is not None:
            body["session_persistence"]["persistence_timeout"] = pool.persistence_timeout
    if pool.tls_enabled:
        body |= _given(pool, POOL_TLS)
    if pool.tags:
        body["tags"] = list(pool.tags)
    return body


def _populated(pool: Pool, choices: Collection[str]) -> Json:
    body = _pool(pool) | {"members": [member_body(member) for member in pool.members]}
    if pool.tls_enabled:
        body |= dict.fromkeys(choices)
    if pool.health_monitor is not None:
        body["healthmonitor"] = _monitor(pool.health_monitor)
    return body


def _monitor(monitor: HealthMonitor) -> Json:
    # a monitor that sends no requests has no path, not even one of null
    return {
        name: value for name, value in dataclasses.asdict(monitor).items() if value is not None
    }


def _given(part: Listener | LoadBalancer | L7Policy | Pool, names: tuple[str, ...]) -> Json:
    """Return the attributes of these names that are not None."""
    values = ((name, getattr(part, name)) for name in names)
    return {name: value for name, value in values if value is not None}
