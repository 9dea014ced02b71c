"""From what a load balancer is to be and what is found in Octavia: the next call. Pure.

Every change makes the whole load balancer PENDING, and any other change is refused meanwhile: so a
plan is one step, then a look at what came of it. Steps that are carried out one after the other
end with nothing to do, after as few calls as there are differences. Their order:

* what is in ERROR goes first, and is made again: Octavia lets nothing else be done to it;
* members before everything else: others may have the addresses of those that went;
* a new pool has its members before a listener leads to it, and a pool that somebody uses goes
  only after its successor is in its place;
* a listener that is not wanted goes before new ones come, which may have its port, or its pool
  (a pool cannot have two), and before its own pool;
* a pool has its health monitor after its listener: the ovn provider asks members in the name of
  the listener's address and port, and learns of them when the monitor is made;
* what Octavia cannot change (protocols, ports, types of monitors) is made anew, and where it is
  the load balancer's own (address, subnet, provider, flavor, project, ...) all of it.

What Octavia chooses by itself (None in what is wanted) is no difference, nor are others' tags,
which are kept. Names of load balancers, listeners and members are for people and none either: a
call would make the whole load balancer PENDING, and hold up changes that matter. They are written
along with the next one.
"""

from collections.abc import Iterable
from dataclasses import replace

from kuryr_k8s.drivers.lbaas.compare import (
    differs,
    same_listener,
    same_members,
    same_pool,
    united,
)
from kuryr_k8s.drivers.lbaas.steps import (
    Change,
    CreateHealthMonitor,
    CreateListener,
    CreateLoadBalancer,
    CreatePool,
    DeleteHealthMonitor,
    DeleteListener,
    DeleteLoadBalancer,
    DeletePool,
    Pending,
    SetMembers,
    Step,
    UpdateHealthMonitor,
    UpdateListener,
    UpdatePool,
)
from kuryr_k8s.model.load_balancer import (
    DELETED,
    ERROR,
    FoundListener,
    FoundLoadBalancer,
    FoundPool,
    Front,
    LoadBalancer,
)

# Providers that never tell of the end of a monitor's update: its listeners stay PENDING_UPDATE
# (ovn-octavia-provider 11.0).
MONITORS_ANEW = ("ovn",)
# Providers that know no weights (ovn-octavia-provider 11.0): a member of weight 0 would get new
# connections as any other. One that is taken away keeps those it has.
WEIGHTLESS = ("ovn",)


def next_step(desired: LoadBalancer | None, found: FoundLoadBalancer | None) -> Step | None:
    """What to do next; None: all is as it is to be.

    :param desired: None: it is to be gone.
    :param found: None: there is none.
    """
    if found is None or found.provisioning_status == DELETED:
        return CreateLoadBalancer(attainable(desired)) if desired is not None else None
    if found.provisioning_status.startswith("PENDING"):
        return Pending(found.id)
    # What is to go need not wait for its parts: those of one in ERROR may be PENDING for ever.
    if desired is None or found.provisioning_status == ERROR:
        return DeleteLoadBalancer(found.id)
    if found.is_pending():
        return Pending(found.id)
    if differs(desired, found):
        return DeleteLoadBalancer(found.id)
    return next_step_inside(desired, found)


def next_step_inside(desired: LoadBalancer, found: FoundLoadBalancer) -> Pending | Change | None:
    """What to do next with listeners and pools; whatever the load balancer itself is like."""
    if found.is_pending():
        return Pending(found.id)
    return _Tree(attainable(desired, found.provider), found).next_step()


def attainable(desired: LoadBalancer, provider: str | None = None) -> LoadBalancer:
    """What is wanted, as the provider can have it; None: the one that is wanted."""
    if (provider or desired.provider) not in WEIGHTLESS:
        return desired
    drained = (
        replace(pool, members=tuple(one for one in pool.members if one.weight))
        for pool in desired.pools
    )
    return replace(desired, pools=tuple(drained))


class _Tree:
    """What is wanted beside what is found, in a load balancer of which nothing is PENDING."""

    def __init__(self, desired: LoadBalancer, found: FoundLoadBalancer) -> None:
        self._id = found.id
        self._found = found
        self._updates_monitors = found.provider not in MONITORS_ANEW
        self._listeners = {one.key: one for one in desired.listeners}
        self._pools = {one.name: one for one in desired.pools}
        self._front_of = {one.pool: one.key for one in desired.listeners}
        self._found_listeners = {one.listener.key: one for one in found.listeners}
        self._kept = dict(self._keep())

    def _keep(self) -> Iterable[tuple[str, FoundPool]]:
        """The pools that serve, by name: of two of the same name, the one in its place."""
        for name, wanted in self._pools.items():
            listener = self._found_listeners.get(self._front_of.get(name, Front("", 0)))
            place = listener.pool_id if listener is not None else None
            alike = [
                one
                for one in self._found.pools
                if one.pool.name == name and one.pool.protocol == wanted.protocol
            ]
            in_place = [one for one in alike if one.id == place]
            if alike:
                yield name, min(in_place or alike, key=lambda one: one.id)

    def next_step(self) -> Change | None:
        return (
            self._heal()
            or self._set_members()
            or self._create_pool()
            or self._update_pool()
            or self._update_listener()
            or self._delete_listener()
            or self._create_listener()
            or self._change_monitor()
            or self._delete_pool()
            or self._part()
        )

    def _heal(self) -> Change | None:
        for listener in self._found.listeners:
            if listener.provisioning_status == ERROR:
                return DeleteListener(listener.id)
        for pool in self._found.pools:
            if pool.provisioning_status == ERROR:
                return DeletePool(pool.id)
        for pool in self._found.pools:
            if pool.health_monitor_id is not None and pool.health_monitor_status == ERROR:
                return DeleteHealthMonitor(pool.health_monitor_id)
        return None

    def _set_members(self) -> Change | None:
        """Those in ERROR are set anew by the same call."""
        for name, found in self._kept.items():
            members = self._pools[name].members
            if not same_members(members, found):
                return SetMembers(found.id, members)
        return None

    def _create_pool(self) -> Change | None:
        for name, wanted in self._pools.items():
            if name in self._kept or any(one.pool.name == name for one in self._found.pools):
                continue  # one that cannot serve has the name, and goes first
            listener = self._found_listeners.get(self._front_of.get(name, Front("", 0)))
            idle = listener is not None and listener.pool_id is None
            return CreatePool(self._id, wanted, listener.id if listener and idle else None)
        return None

    def _update_pool(self) -> Change | None:
        for name, found in self._kept.items():
            wanted = self._pools[name]
            if not same_pool(wanted, found.pool):
                tags = united(wanted.tags, found.pool.tags)
                return UpdatePool(found.id, replace(wanted, tags=tags))
        return None

    def _update_listener(self) -> Change | None:
        for key, wanted in self._listeners.items():
            found, pool = self._found_listeners.get(key), self._kept.get(wanted.pool)
            if found is None or pool is None:
                continue
            tags = united(wanted.tags, found.listener.tags)
            if found.pool_id == pool.id:
                if not same_listener(wanted, found.listener):
                    return UpdateListener(found.id, replace(wanted, tags=tags), None)
            elif not self._users(pool):
                return UpdateListener(found.id, replace(wanted, tags=tags), pool.id)
        return None

    def _delete_listener(self) -> Change | None:
        for key, found in self._found_listeners.items():
            if key not in self._listeners:
                return DeleteListener(found.id)
        return None

    def _create_listener(self) -> Change | None:
        for key, wanted in self._listeners.items():
            pool = self._kept.get(wanted.pool)
            if key not in self._found_listeners and pool is not None and not self._users(pool):
                return CreateListener(self._id, wanted, pool.id)
        return None

    def _change_monitor(self) -> Change | None:
        for name, pool in self._kept.items():
            wanted, found = self._pools[name].health_monitor, pool.pool.health_monitor
            if pool.health_monitor_id is None or found is None:
                if wanted is not None:
                    return CreateHealthMonitor(pool.id, wanted)
            elif wanted == found:
                continue
            elif wanted is not None and wanted.type == found.type and self._updates_monitors:
                return UpdateHealthMonitor(pool.health_monitor_id, wanted)
            else:
                return DeleteHealthMonitor(pool.health_monitor_id)
        return None

    def _delete_pool(self) -> Change | None:
        """Nobody's, and those that cannot serve and have the name of one that is to come."""
        kept = {one.id for one in self._kept.values()}
        for pool in self._found.pools:
            in_the_way = pool.pool.name in self._pools.keys() - self._kept.keys()
            if pool.id not in kept and (in_the_way or not self._users(pool)):
                return DeletePool(pool.id)
        return None

    def _part(self) -> Change | None:
        """Listeners have each other's pools: one goes, so that the others can follow."""
        for wanted in self._listeners.values():
            pool = self._kept.get(wanted.pool)
            for user in self._users(pool) if pool is not None else ():
                if user.listener.key != wanted.key:
                    return DeleteListener(user.id)
        return None

    def _users(self, pool: FoundPool) -> list[FoundListener]:
        return [one for one in self._found.listeners if one.pool_id == pool.id]
