"""Outcomes of steps: what a load balancer has become, without reading all of it again.

When nothing in it is PENDING any more, only the part that a step was about is read.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.cloud.octavia.found import StatusTree
from kuryr_k8s.drivers.lbaas.steps import (
    OF_POLICIES,
    AddMembers,
    Change,
    CreatePolicy,
    CreatePool,
    CreateRule,
    DeletePolicy,
    DeletePool,
    DeleteRule,
    MovePolicy,
    SetMembers,
    UpdateListener,
    UpdatePolicy,
    UpdatePool,
    UpdateRule,
)
from kuryr_k8s.model.load_balancer import (
    ACTIVE,
    FoundL7Policy,
    FoundLoadBalancer,
    FoundPool,
    Member,
)

Policies = Sequence[FoundL7Policy]
Members = dict[tuple[bytes, int], Member]  # by their addresses, however these are spelled
# After other steps all of a load balancer has to be read again.
TOLD = (SetMembers, AddMembers, UpdatePool, DeletePool, UpdateListener, *OF_POLICIES)


def is_told(step: Change) -> bool:
    """Return whether :func:`outcome_of` can tell what the step makes of a load balancer."""
    return isinstance(step, TOLD) or (isinstance(step, CreatePool) and step.listener_id is None)


async def outcome_of(
    octavia: Octavia, before: FoundLoadBalancer, step: Change, made: str, shown: StatusTree
) -> FoundLoadBalancer | None:
    """Return what a step has made of a load balancer, once everything is ACTIVE.

    :param before: the load balancer before the step, with nothing PENDING.
    :param made: the id of the part that the step has created; empty if it has created none.
    :param shown: the status tree after it.
    :returns: None if the outcome is another one, or all of it has to be read to know.
    :raises errors.CloudError: Octavia does not answer.
    """
    try:
        match step:
            case SetMembers(pool_id) | AddMembers(pool_id) if pool_id in shown.members:
                return as_repopulated(before, step, shown)
            case SetMembers(part_id) | AddMembers(part_id) | UpdatePool(part_id):
                pool = await octavia.read_pool(part_id)
                return _with_pools(before, [*_others(before.pools, part_id), pool])
            case CreatePool(listener_id=None):
                return _with_pools(before, [*before.pools, await octavia.read_pool(made)])
            case UpdateListener(part_id):
                return await _with_listener(octavia, before, part_id)
            case CreatePolicy(listener_id, position=position):
                policy = await _read_policy(octavia, before, made)
                return _with_policies(
                    before,
                    lambda there: [*there[: position - 1], policy, *there[position - 1 :]],
                    listener_id,
                )
            case (
                UpdatePolicy(part_id)
                | CreateRule(part_id)
                | UpdateRule(part_id)
                | DeleteRule(part_id)
            ):
                policy = await _read_policy(octavia, before, part_id)
                return _with_policies(
                    before, lambda there: [policy if p.id == part_id else p for p in there]
                )
            case MovePolicy(part_id, position):
                policy = await _read_policy(octavia, before, part_id)

                def moved(there: Policies) -> Policies:
                    others = [each for each in there if each.id != part_id]
                    if len(others) == len(there):
                        return there
                    return [*others[: position - 1], policy, *others[position - 1 :]]

                return _with_policies(before, moved)
    except errors.NotFound:
        return None
    return await _outcome_of_deletion(octavia, before, step)


async def _outcome_of_deletion(
    octavia: Octavia, before: FoundLoadBalancer, step: Change
) -> FoundLoadBalancer | None:
    try:
        match step:
            case DeletePool(part_id):
                await octavia.read_pool(part_id)
            case DeletePolicy(part_id):
                await _read_policy(octavia, before, part_id)
    except errors.NotFound:
        if isinstance(step, DeletePool):
            led = any(each.pool_id == part_id for each in before.listeners)
            return None if led else _with_pools(before, _others(before.pools, part_id))
        return _with_policies(before, lambda there: [p for p in there if p.id != part_id])
    return None


async def _with_listener(
    octavia: Octavia, before: FoundLoadBalancer, listener_id: str
) -> FoundLoadBalancer:
    names = {pool.id: pool.pool.name for pool in before.pools}
    listeners = [
        each
        if each.id != listener_id
        else await octavia.read_listener(listener_id, names, each.policies)
        for each in before.listeners
    ]
    return replace(before, listeners=tuple(listeners))


async def _read_policy(
    octavia: Octavia, before: FoundLoadBalancer, policy_id: str
) -> FoundL7Policy:
    return await octavia.read_policy(policy_id, {pool.id: pool.pool.name for pool in before.pools})


def _others(pools: Sequence[FoundPool], pool_id: str) -> list[FoundPool]:
    return [pool for pool in pools if pool.id != pool_id]


def _with_pools(found: FoundLoadBalancer, pools: Sequence[FoundPool]) -> FoundLoadBalancer:
    return replace(found, pools=tuple(pools))


def _with_policies(
    found: FoundLoadBalancer, changed: Callable[[Policies], Policies], listener_id: str = ""
) -> FoundLoadBalancer:
    """Return the load balancer with other policies in its listeners, or in one of them."""
    listeners = []
    for listener in found.listeners:
        if listener_id in ("", listener.id):
            policies = tuple(changed(listener.policies))
            said = replace(listener.listener, policies=tuple(each.policy for each in policies))
            listeners.append(replace(listener, listener=said, policies=policies))
        else:
            listeners.append(listener)
    return replace(found, listeners=tuple(listeners))


def as_repopulated(
    before: FoundLoadBalancer, step: SetMembers | AddMembers, shown: StatusTree
) -> FoundLoadBalancer | None:
    """Return what a change of members has made of a load balancer, once everything is ACTIVE.

    :param before: the load balancer before the step, with nothing PENDING.
    :returns: None if it does not have just those members, or if that cannot be seen.
    """
    if len(before.statuses()) > 1:
        return None
    in_use = {listener.pool_id for listener in before.listeners} | {step.pool_id}
    in_use |= {
        policy.pool_id
        for listener in before.listeners
        for policy in listener.policies
        if policy.is_enabled and policy.policy.rules
    }
    after = {pool.id: _by_address(pool) for pool in before.pools if pool.id in in_use}
    after[step.pool_id] = members = _members_after(step, after[step.pool_id])
    seen = {
        pool_id: {each.value for each in ids}
        for pool_id, ids in shown.members.items()
        if pool_id in after
    }
    if seen != {pool_id: set(expected) for pool_id, expected in after.items()}:
        return None
    ids = shown.members[step.pool_id]
    spelled = tuple(replace(members[each.value], address=each.address) for each in ids)
    pools = tuple(
        replace(
            pool,
            pool=replace(pool.pool, members=spelled),
            member_statuses=dict.fromkeys(ids, ACTIVE),
            member_ids=ids,
        )
        if pool.id == step.pool_id
        else pool
        for pool in before.pools
    )
    return replace(before, pools=pools)


def _by_address(pool: FoundPool) -> Members:
    return {member.key.value: member for member in pool.pool.members}


def _members_after(step: SetMembers | AddMembers, there: Members) -> Members:
    """Return what the step makes of the members of a pool."""
    members = dict(there) if isinstance(step, AddMembers) else {}
    for member in step.members:
        known = there.get(member.key.value, member)
        members[member.key.value] = replace(member, subnet_id=member.subnet_id or known.subnet_id)
    return members


def as_active(answer: FoundLoadBalancer) -> FoundLoadBalancer:
    """Return what a creation was answered, as it is once everything is ACTIVE."""
    return replace(
        answer,
        provisioning_status=ACTIVE,
        listeners=tuple(
            replace(
                each,
                provisioning_status=ACTIVE,
                policies=tuple(
                    replace(
                        policy,
                        provisioning_status=ACTIVE,
                        rule_statuses=(ACTIVE,) * len(policy.rule_statuses),
                    )
                    for policy in each.policies
                ),
            )
            for each in answer.listeners
        ),
        pools=tuple(
            replace(
                pool,
                provisioning_status=ACTIVE,
                member_statuses=dict.fromkeys(pool.member_statuses, ACTIVE),
                health_monitor_status=pool.health_monitor_id and ACTIVE,
            )
            for pool in answer.pools
        ),
    )
