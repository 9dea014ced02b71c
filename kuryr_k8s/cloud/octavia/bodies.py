"""Load balancers in the JSON of the Octavia API v2; back: :mod:`kuryr_k8s.cloud.octavia.found`.

https://docs.openstack.org/api-ref/load-balancer/v2/

Bodies are given without the object's name around them (``{"listener": …}``): the client adds it.
What a listener or a pool may be given once is not in the bodies that update: Octavia answers 400.
"""

import dataclasses
from typing import Any

from kuryr_k8s.model.load_balancer import (
    LISTENER_LIMITS,
    TIMEOUTS,
    HealthMonitor,
    Listener,
    LoadBalancer,
    Member,
    Pool,
)

Json = dict[str, Any]
VIP = ("vip_subnet_id", "vip_network_id", "vip_port_id", "vip_address")
CHOSEN_ONCE = ("provider", "flavor_id", "availability_zone")


def create_body(wanted: LoadBalancer) -> Json:
    """Of ``POST /loadbalancers``: the load balancer with everything that is in it.

    Pools stand in the listeners whose default they are; they have names, else Octavia refuses.
    """
    body: Json = {
        "name": wanted.name,
        "project_id": wanted.project_id,
        "tags": list(wanted.tags),
        **_given(wanted, VIP),
        **_given(wanted, CHOSEN_ONCE),
    }
    pools = {pool.name: _populated(pool) for pool in wanted.pools}
    body["listeners"] = [
        _listener(listener) | {"default_pool": pools.pop(listener.pool)}
        for listener in wanted.listeners
    ]
    if pools:
        body["pools"] = list(pools.values())
    return body


def listener_body(listener: Listener, load_balancer_id: str, pool_id: str | None = None) -> Json:
    """Of ``POST /listeners``.

    :param pool_id: of a pool that is there already. None: the pool is made next, and names the
        listener. (A pool within this body is accepted, and answered 500.)
    """
    body = _listener(listener) | {"loadbalancer_id": load_balancer_id}
    if pool_id is not None:
        body["default_pool_id"] = pool_id
    return body


def listener_changes(listener: Listener, pool_id: str | None = None) -> Json:
    """Of ``PUT /listeners/{id}``.

    :param pool_id: of its new default pool; None: it keeps the one that it has.
    """
    body = _listener(listener)
    del body["protocol"], body["protocol_port"]
    # what is empty takes away; a timeout of null is Octavia's own
    body |= {name: None for name in TIMEOUTS if getattr(listener, name) is None}
    body["allowed_cidrs"] = list(listener.allowed_cidrs)
    body["insert_headers"] = _headers(listener)
    if pool_id is not None:
        body["default_pool_id"] = pool_id
    return body


def pool_body(
    pool: Pool, *, listener_id: str | None = None, load_balancer_id: str | None = None
) -> Json:
    """Of ``POST /pools``: one of the ids must be given. Its members are set afterwards, and so is
    its health monitor.

    :param listener_id: whose default pool it becomes.
    :param load_balancer_id: that it is of, without a listener.
    """
    body = _pool(pool)
    if listener_id is not None:
        body["listener_id"] = listener_id
    else:
        body["loadbalancer_id"] = load_balancer_id
    return body


def pool_changes(pool: Pool) -> Json:
    """Of ``PUT /pools/{id}``.

    ovn-octavia-provider 11.0 fails without ``admin_state_up``, and the pool is in ERROR.
    """
    # null takes it away
    body: Json = {"session_persistence": None, "admin_state_up": True} | _pool(pool)
    del body["protocol"]
    return body


def member_body(member: Member) -> Json:
    """Of a member in ``PUT /pools/{id}/members``, and within a pool."""
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
    """Of ``POST /healthmonitors``."""
    return _monitor(monitor) | {"pool_id": pool_id}


def monitor_changes(monitor: HealthMonitor) -> Json:
    """Of ``PUT /healthmonitors/{id}``."""
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
    if listener.tags:
        body["tags"] = list(listener.tags)
    return body


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
    if pool.tags:
        body["tags"] = list(pool.tags)
    return body


def _populated(pool: Pool) -> Json:
    body = _pool(pool) | {"members": [member_body(member) for member in pool.members]}
    if pool.health_monitor is not None:
        body["healthmonitor"] = _monitor(pool.health_monitor)
    return body


def _monitor(monitor: HealthMonitor) -> Json:
    return dataclasses.asdict(monitor)


def _given(part: Listener | LoadBalancer, names: tuple[str, ...]) -> Json:
    """The attributes of these names that are not None."""
    values = ((name, getattr(part, name)) for name in names)
    return {name: value for name, value in values if value is not None}
