"""The steps of a plan, asked of Octavia."""

from dataclasses import replace

from kuryr_k8s.cloud.octavia import bodies as octavia_bodies
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.drivers.lbaas import changes as lb_changes
from kuryr_k8s.model.load_balancer import ACTIVE, FoundLoadBalancer


async def take(octavia: Octavia, step: lb_changes.Change) -> None:
    """Have one change begun: one call, which raises what it does."""
    match step:
        case lb_changes.DeleteLoadBalancer(id=lb_id):
            await octavia.delete_load_balancer(lb_id)
        case lb_changes.CreateListener(load_balancer_id, listener, pool_id):
            body = octavia_bodies.listener_body(listener, load_balancer_id, pool_id)
            await octavia.create_listener(body)
        case lb_changes.UpdateListener(listener_id, listener, new_pool_id):
            changes = octavia_bodies.listener_changes(listener, new_pool_id)
            await octavia.update_listener(listener_id, changes)
        case lb_changes.DeleteListener(listener_id):
            await octavia.delete_listener(listener_id)
        case lb_changes.CreatePool(load_balancer_id, pool, new_listener_id):
            body = octavia_bodies.pool_body(
                pool, listener_id=new_listener_id, load_balancer_id=load_balancer_id
            )
            await octavia.create_pool(body)
        case lb_changes.UpdatePool(pool_id, pool):
            await octavia.update_pool(pool_id, octavia_bodies.pool_changes(pool))
        case lb_changes.DeletePool(pool_id):
            await octavia.delete_pool(pool_id)
        case lb_changes.SetMembers(pool_id, members):
            await octavia.set_members(pool_id, members)
        case lb_changes.CreateHealthMonitor(pool_id, monitor):
            await octavia.create_monitor(octavia_bodies.monitor_body(monitor, pool_id))
        case lb_changes.UpdateHealthMonitor(monitor_id, monitor):
            changes = octavia_bodies.monitor_changes(monitor)
            await octavia.update_monitor(monitor_id, changes)
        case lb_changes.DeleteHealthMonitor(monitor_id):
            await octavia.delete_monitor(monitor_id)


def as_active(made: FoundLoadBalancer) -> FoundLoadBalancer:
    """What a creation was answered, once all of it is ACTIVE."""
    return replace(
        made,
        provisioning_status=ACTIVE,
        listeners=tuple(replace(one, provisioning_status=ACTIVE) for one in made.listeners),
        pools=tuple(
            replace(
                one,
                provisioning_status=ACTIVE,
                member_statuses=dict.fromkeys(one.member_statuses, ACTIVE),
                health_monitor_status=one.health_monitor_id and ACTIVE,
            )
            for one in made.pools
        ),
    )
