"""Body of the call that creates a load balancer, with as much in it as Octavia takes. Pure."""

import bisect
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from kuryr_k8s.cloud.octavia import bodies
from kuryr_k8s.drivers.lbaas.fairness import turns
from kuryr_k8s.model.load_balancer import LoadBalancer

Json = dict[str, Any]


def alone(wanted: LoadBalancer) -> LoadBalancer:
    """Return the load balancer without its parts."""
    return replace(wanted, listeners=(), pools=())


def fitting_body(wanted: LoadBalancer, pool_choices: Collection[str]) -> Json:
    """Return the body with all parts; if that is too large, with the first policies only.

    If it is too large without any policy, no part is in it.

    :param pool_choices: see :func:`bodies.create_body`.
    """
    body = bodies.create_body(wanted, pool_choices)
    if not bodies.is_too_large(body):
        return body

    def with_first(count: int) -> Json:
        return bodies.create_body(_with_first(wanted, count), pool_choices)

    most = sum(len(each.policies) for each in wanted.listeners)
    too_many = bisect.bisect_left(
        range(most + 1), True, key=lambda count: bodies.is_too_large(with_first(count))
    )
    return with_first(too_many - 1) if too_many else bodies.create_body(alone(wanted))


def _with_first(wanted: LoadBalancer, count: int) -> LoadBalancer:
    """Return the load balancer with so many policies: those that would be created first."""
    policies = [
        (listener.key, policy) for listener in wanted.listeners for policy in listener.policies
    ]
    turn_of = turns([policy for _, policy in policies])
    policies.sort(key=lambda each: turn_of[each[1].host])
    first = {(key, policy.key) for key, policy in policies[:count]}
    listeners = tuple(
        replace(
            listener,
            policies=tuple(
                each for each in listener.policies if (listener.key, each.key) in first
            ),
        )
        for listener in wanted.listeners
    )
    used = {each.pool for each in listeners}
    used |= {each.redirect_pool or "" for listener in listeners for each in listener.policies}
    return replace(
        wanted,
        listeners=listeners,
        pools=tuple(pool for pool in wanted.pools if pool.name in used),
    )
