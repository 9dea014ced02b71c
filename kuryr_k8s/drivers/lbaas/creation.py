"""Body of the call that creates a load balancer, with as much in it as Octavia takes. Pure."""

import bisect
from collections.abc import Collection, Set
from dataclasses import replace
from typing import Any

from kuryr_k8s.cloud.octavia import bodies
from kuryr_k8s.drivers.lbaas.fairness import turns
from kuryr_k8s.model.load_balancer import Front, LoadBalancer, Match

Json = dict[str, Any]
Place = tuple[Front, Match]  # of a policy: its listener, and its identity there


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

    in_turn = _in_turn(wanted)

    def with_first(count: int) -> Json:
        return bodies.create_body(_with(wanted, set(in_turn[:count])), pool_choices)

    too_many = bisect.bisect_left(
        range(len(in_turn) + 1), True, key=lambda count: bodies.is_too_large(with_first(count))
    )
    return with_first(too_many - 1) if too_many else bodies.create_body(alone(wanted))


def _in_turn(wanted: LoadBalancer) -> list[Place]:
    """Return all policies in the order in which they would be created one by one."""
    policies = [
        (listener.key, policy) for listener in wanted.listeners for policy in listener.policies
    ]
    turn_of = turns([policy for _, policy in policies])
    policies.sort(key=lambda each: turn_of[each[1].host])
    return [(key, policy.key) for key, policy in policies]


def _with(wanted: LoadBalancer, places: Set[Place]) -> LoadBalancer:
    """Return the load balancer with these policies, and the pools that are used then."""
    listeners = tuple(
        replace(
            listener,
            policies=tuple(
                each for each in listener.policies if (listener.key, each.key) in places
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
