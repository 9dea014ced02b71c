"""State of a load balancer as an LBaaSState, for people and other programs to read.

A member takes more than 400 bytes, and all annotations of an object together may have 256 KiB. If
there are too many members, the state contains the first ones, and a mark says of how many.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from kuryr_k8s.model.lbaas import (
    LBaaSListener,
    LBaaSLoadBalancer,
    LBaaSMember,
    LBaaSPool,
    LBaaSServiceSpec,
    LBaaSState,
)
from kuryr_k8s.model.load_balancer import FoundLoadBalancer

BUDGET = 200 * 1024  # bytes of the state's text


class Publication(NamedTuple):
    """Texts of the annotations.

    :param cut: None if all members are in the state.
    """

    state: str
    cut: str | None


def publication(
    found: FoundLoadBalancer, spec: LBaaSServiceSpec, budget: int = BUDGET
) -> Publication:
    """Return the state, with as many members as the budget allows."""
    primitive = _state(found, spec).to_json()
    left = budget - len(_text(primitive))
    fitting = []
    for member in _members(found):
        shown = member.to_json()
        left -= len(_text(shown)) + len(", ")
        if left < 0:
            break
        fitting.append(shown)
    primitive["versioned_object.data"]["members"] = fitting
    every = sum(len(pool.pool.members) for pool in found.pools)
    cut = None if len(fitting) == every else f"{len(fitting)} of {every}"
    return Publication(_text(primitive), cut)


def _state(found: FoundLoadBalancer, spec: LBaaSServiceSpec) -> LBaaSState:
    """Return the state without members, in an order that does not depend on Octavia's."""
    fronts = {listener.pool_id: listener.id for listener in found.listeners}
    listeners = [
        LBaaSListener(
            id=each.id,
            project_id=found.project_id,
            name=each.listener.name,
            loadbalancer_id=found.id,
            protocol=each.listener.protocol,
            port=each.listener.port,
        )
        for each in found.listeners
    ]
    pools = [
        LBaaSPool(
            id=each.id,
            project_id=found.project_id,
            name=each.pool.name,
            loadbalancer_id=found.id,
            listener_id=fronts.get(each.id),
            protocol=each.pool.protocol,
        )
        for each in found.pools
    ]
    return LBaaSState(
        loadbalancer=LBaaSLoadBalancer(
            id=found.id,
            project_id=found.project_id,
            name=found.name,
            ip=found.vip_address,
            subnet_id=found.vip_subnet_id,
            port_id=found.vip_port_id,
            provider=found.provider,
            security_groups=spec.security_groups_ids,
        ),
        listeners=tuple(sorted(listeners, key=lambda each: each.name)),
        pools=tuple(sorted(pools, key=lambda each: each.name)),
    )


def _members(found: FoundLoadBalancer) -> Iterable[LBaaSMember]:
    for pool in sorted(found.pools, key=lambda pool: pool.pool.name):
        for member in sorted(pool.pool.members, key=lambda member: member.key):
            yield LBaaSMember(
                id=pool.member_ids[member.key],
                project_id=found.project_id,
                name=member.name,
                pool_id=pool.id,
                subnet_id=member.subnet_id or found.vip_subnet_id,
                ip=member.address,
                port=member.port,
            )


def _text(primitive: object) -> str:
    return json.dumps(primitive, sort_keys=True)
