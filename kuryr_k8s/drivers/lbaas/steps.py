"""Steps of a plan: each is one call of Octavia.

:mod:`kuryr_k8s.drivers.lbaas.plan` decides which steps are needed, and in which order.
"""

from dataclasses import dataclass

from kuryr_k8s.cloud.octavia import bodies
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.model.load_balancer import (
    HealthMonitor,
    L7Policy,
    L7Rule,
    Listener,
    LoadBalancer,
    Member,
    Pool,
)


@dataclass(frozen=True, slots=True)
class Pending:
    """Octavia is at work: nothing can be done now."""

    id: str


@dataclass(frozen=True, slots=True)
class CreateLoadBalancer:
    """Create the load balancer with all that it contains."""

    wanted: LoadBalancer


@dataclass(frozen=True, slots=True)
class DeleteLoadBalancer:
    """Delete the load balancer with all that it contains (cascade)."""

    id: str


@dataclass(frozen=True, slots=True)
class SetTags:
    """Replace the tags of the load balancer itself."""

    id: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetSecurityGroups:
    """Replace the security groups of the VIP."""

    id: str
    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateListener:
    """Create a listener.

    :param pool_id: its default pool, which exists; None for a listener without one.
    """

    load_balancer_id: str
    listener: Listener
    pool_id: str | None


@dataclass(frozen=True, slots=True)
class UpdateListener:
    """Change a listener.

    :param pool_id: its new default pool, empty for none; None if it keeps its own.
    :param forgotten: fields that are to have Octavia's own values again.
    """

    id: str
    listener: Listener
    pool_id: str | None
    forgotten: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DeleteListener:
    """Delete a listener; its pool stays."""

    id: str


@dataclass(frozen=True, slots=True)
class CreatePool:
    """Create a pool without members.

    :param listener_id: the listener whose default pool it becomes; None if it has no listener yet.
    """

    load_balancer_id: str
    pool: Pool
    listener_id: str | None


@dataclass(frozen=True, slots=True)
class UpdatePool:
    """Change a pool, but neither its members nor its health monitor."""

    id: str
    pool: Pool


@dataclass(frozen=True, slots=True)
class DeletePool:
    """Delete a pool with its members and its health monitor."""

    id: str


@dataclass(frozen=True, slots=True)
class SetMembers:
    """Replace all members of a pool."""

    pool_id: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class AddMembers:
    """Add members to a pool; those that it has stay as they are."""

    pool_id: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class CreateHealthMonitor:
    """Create the health monitor of a pool."""

    pool_id: str
    monitor: HealthMonitor


@dataclass(frozen=True, slots=True)
class UpdateHealthMonitor:
    """Change a health monitor, but not its type."""

    id: str
    monitor: HealthMonitor


@dataclass(frozen=True, slots=True)
class DeleteHealthMonitor:
    """Delete a health monitor."""

    id: str


@dataclass(frozen=True, slots=True)
class CreatePolicy:
    """Create an L7 policy without its rules.

    :param position: others at it and after it move on.
    :param pool_id: the pool where it leads; None if it leads to none.
    """

    listener_id: str
    policy: L7Policy
    position: int
    pool_id: str | None
    is_enabled: bool


@dataclass(frozen=True, slots=True)
class UpdatePolicy:
    """Enable an L7 policy, and change what becomes of the requests that it takes.

    :param pool_id: the pool where it leads; None if it leads to none.
    """

    id: str
    policy: L7Policy
    pool_id: str | None


@dataclass(frozen=True, slots=True)
class MovePolicy:
    """Give an L7 policy another position."""

    id: str
    position: int


@dataclass(frozen=True, slots=True)
class DeletePolicy:
    """Delete an L7 policy with its rules."""

    id: str


@dataclass(frozen=True, slots=True)
class CreateRule:
    """Create a rule of an L7 policy."""

    policy_id: str
    rule: L7Rule


@dataclass(frozen=True, slots=True)
class UpdateRule:
    """Make a rule of an L7 policy another one."""

    policy_id: str
    id: str
    rule: L7Rule


@dataclass(frozen=True, slots=True)
class DeleteRule:
    """Delete a rule of an L7 policy."""

    policy_id: str
    id: str


Change = (
    DeleteLoadBalancer
    | SetTags
    | SetSecurityGroups
    | CreateListener
    | UpdateListener
    | DeleteListener
    | CreatePool
    | UpdatePool
    | DeletePool
    | SetMembers
    | AddMembers
    | CreateHealthMonitor
    | UpdateHealthMonitor
    | DeleteHealthMonitor
    | CreatePolicy
    | UpdatePolicy
    | MovePolicy
    | DeletePolicy
    | CreateRule
    | UpdateRule
    | DeleteRule
)
Step = Pending | CreateLoadBalancer | Change
CREATING = (CreateListener, CreatePool, CreateHealthMonitor, CreatePolicy, CreateRule)
OF_POLICIES = (
    CreatePolicy,
    UpdatePolicy,
    MovePolicy,
    DeletePolicy,
    CreateRule,
    UpdateRule,
    DeleteRule,
)


async def take(octavia: Octavia, step: Change) -> str | None:
    """Have Octavia begin one change; raise what the call raises.

    :returns: the id of the pool or the L7 policy that is being created, if one is.
    """
    match step:
        case DeleteLoadBalancer(id=lb_id):
            await octavia.delete_load_balancer(lb_id)
        case SetTags(lb_id, tags):
            await octavia.set_tags(lb_id, tags)
        case SetSecurityGroups(lb_id, group_ids):
            await octavia.set_security_groups(lb_id, group_ids)
        case CreateListener(load_balancer_id, listener, pool_id):
            body = bodies.listener_body(listener, load_balancer_id, pool_id)
            await octavia.create_listener(body)
        case UpdateListener(listener_id, listener, new_pool_id, forgotten):
            body = bodies.listener_changes(listener, new_pool_id, forgotten)
            await octavia.update_listener(listener_id, body)
        case DeleteListener(listener_id):
            await octavia.delete_listener(listener_id)
        case CreatePool(load_balancer_id, pool, new_listener_id):
            body = bodies.pool_body(
                pool, listener_id=new_listener_id, load_balancer_id=load_balancer_id
            )
            return await octavia.create_pool(body)
        case UpdatePool(pool_id, pool):
            await octavia.update_pool(pool_id, bodies.pool_changes(pool))
        case DeletePool(pool_id):
            await octavia.delete_pool(pool_id)
        case SetMembers(pool_id, members):
            await octavia.set_members(pool_id, members)
        case AddMembers(pool_id, members):
            await octavia.set_members(pool_id, members, additive=True)
        case CreateHealthMonitor(pool_id, monitor):
            await octavia.create_monitor(bodies.monitor_body(monitor, pool_id))
        case UpdateHealthMonitor(monitor_id, monitor):
            await octavia.update_monitor(monitor_id, bodies.monitor_changes(monitor))
        case DeleteHealthMonitor(monitor_id):
            await octavia.delete_monitor(monitor_id)
        case CreatePolicy(listener_id, policy, position, led_to, is_enabled):
            body = bodies.policy_body(policy, listener_id, position, led_to, is_enabled=is_enabled)
            return await octavia.create_policy(body)
        case UpdatePolicy(policy_id, policy, led_to):
            body = bodies.policy_changes(policy, led_to) | {"admin_state_up": True}
            await octavia.update_policy(policy_id, body)
        case MovePolicy(policy_id, position):
            await octavia.update_policy(policy_id, {"position": position})
        case DeletePolicy(policy_id):
            await octavia.delete_policy(policy_id)
        case CreateRule(policy_id, rule):
            await octavia.create_rule(policy_id, bodies.rule_body(rule))
        case UpdateRule(policy_id, rule_id, rule):
            await octavia.update_rule(policy_id, rule_id, bodies.rule_body(rule))
        case DeleteRule(policy_id, rule_id):
            await octavia.delete_rule(policy_id, rule_id)
    return None
