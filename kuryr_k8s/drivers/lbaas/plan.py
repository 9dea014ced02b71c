"""Plan that leads from the state found in Octavia to the desired state: the next calls. Pure.

Every change makes the whole load balancer PENDING, and Octavia refuses any other change meanwhile.
So of a plan one step is taken, then the result is looked at. Step by step, it ends with nothing to
do, after as few calls as there are differences. The order of steps:

* what is in ERROR is deleted first, and created again: Octavia accepts nothing else. But a
  listener over TLS is updated: it is in ERROR if Octavia could not read its certificates, for a
  while or since they are gone, and its policies stay;
* certificates of listeners, and of CAs that pools name, come before all other changes: while one
  names a secret that is gone, Octavia (19) accepts any other change, fails, and leaves the load
  balancer PENDING for ever;
* security groups of the VIP come before all that is in the load balancer: Octavia refuses source
  ranges of listeners while there are any. Until the VIP has those that it is to have, nothing else
  changes but members;
* members come before everything else in it: others may have the addresses of those that went. In
  a router, where pools are of many users, a pool whose members were just set comes last, until
  something else had its turn: else Pods that come and go all the time would hold up all others;
* a pool that is to go, and to which L7 policies still lead, goes on to get its members. Where they
  are not known any more, it loses them at last, if nothing else can be done;
* a new pool gets its members before a listener leads to it, and a pool in use is deleted only
  after its successor is in its place;
* an unwanted listener is deleted before new ones are created, which may have its port or its pool
  (a pool cannot have two listeners), and before its own pool;
* an L7 policy comes after the pool where it leads, and goes before it (``policies.py``); none
  changes before its listener has its certificates;
* a pool gets its health monitor after its listener: the ovn provider probes members in the name of
  the listener's address and port, and learns of them when the monitor is created;
* what Octavia cannot change (protocols, ports, types of monitors) is created anew; if it concerns
  the load balancer itself (address, subnet, provider, flavor, project, ...), so is all of it.

A load balancer that an earlier version made gets the mark of the cluster once, at the end.

Where None is wanted, Octavia chooses, and there is no difference; tags of others are kept. Names
of load balancers, listeners and members are for people, and no difference either: a call would
make the whole load balancer PENDING, and hold up changes that matter. They are written along with
the next change.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from kuryr_k8s.drivers.lbaas.compare import (
    added_members,
    differs,
    lacks_mark,
    same_certificates,
    same_groups,
    same_listener,
    same_members,
    same_pool,
    same_tls,
    united,
)
from kuryr_k8s.drivers.lbaas.ownership import forgotten
from kuryr_k8s.drivers.lbaas.policies import broken_policies, policy_steps
from kuryr_k8s.drivers.lbaas.steps import (
    AddMembers,
    Change,
    CreateHealthMonitor,
    CreateListener,
    CreateLoadBalancer,
    CreatePool,
    DeleteHealthMonitor,
    DeleteListener,
    DeleteLoadBalancer,
    DeletePolicy,
    DeletePool,
    Pending,
    SetMembers,
    SetSecurityGroups,
    SetTags,
    Step,
    UpdateHealthMonitor,
    UpdateListener,
    UpdatePool,
)
from kuryr_k8s.model.load_balancer import (
    DELETED,
    ERROR,
    HASHING,
    SOURCE_IP,
    TERMINATED_HTTPS,
    FoundListener,
    FoundLoadBalancer,
    FoundPool,
    Front,
    Listener,
    LoadBalancer,
    Member,
    Pool,
)

# Members that are added by one step. With names of 255 characters, the body is just small enough
# for what Octavia accepts by default (see bodies.LARGEST).
AT_ONCE = 250


def steps(
    desired: LoadBalancer | None,
    found: FoundLoadBalancer | None,
    newest_pool: str = "",
    had_turn: Collection[str] = (),
) -> Iterator[Step]:
    """Yield the steps that could be the next one, in the order in which they should be.

    One is taken; a later one only if those before it cannot be, so that a part that cannot be had
    holds up no other.

    :param desired: None if the load balancer is to be deleted.
    :param found: None if there is none.
    :param newest_pool: the id of the pool that was created last; empty if not known.
    :param had_turn: the ids of the pools whose members come after all else now.
    """
    if found is None or found.provisioning_status == DELETED:
        if desired is not None:
            yield CreateLoadBalancer(attainable(desired))
    elif found.provisioning_status.startswith("PENDING"):
        yield Pending(found.id)
    # A deletion need not wait for parts: those of one in ERROR may be PENDING for ever.
    elif desired is None or found.provisioning_status == ERROR:
        yield DeleteLoadBalancer(found.id)
    elif found.is_pending():
        yield Pending(found.id)
    elif differs(desired, found):
        yield DeleteLoadBalancer(found.id)
    else:
        inside = steps_inside(desired, found, newest_pool, had_turn)
        if not same_groups(desired, found):
            yield SetSecurityGroups(found.id, desired.vip_sg_ids or ())
            if desired.vip_sg_ids:  # refused, they must not have taken source ranges away
                inside = (step for step in inside if isinstance(step, SetMembers | AddMembers))
        yield from inside
        if lacks_mark(desired, found):
            yield SetTags(found.id, united(desired.tags, found.tags))


def steps_inside(
    desired: LoadBalancer,
    found: FoundLoadBalancer,
    newest_pool: str = "",
    had_turn: Collection[str] = (),
) -> Iterator[Pending | Change]:
    """Yield the steps with listeners and pools, whatever the load balancer itself is like."""
    if found.is_pending():
        yield Pending(found.id)
    else:
        wanted = attainable(desired, found.provider)
        yield from _Tree(wanted, found, newest_pool, had_turn).steps()


def steps_of_members(
    desired: LoadBalancer, found: FoundLoadBalancer
) -> Iterator[Pending | Change]:
    """Yield the steps that set members, whatever else differs.

    A pool whose members are not known any more loses them: others may have their addresses.
    """
    if found.is_pending():
        yield Pending(found.id)
        return
    pools = (*desired.former_pools, *attainable(desired, found.provider).pools)
    wanted = {pool.name: pool.members for pool in pools}
    for pool in found.pools:
        members = wanted.get(pool.pool.name, ())
        if pool.provisioning_status != ERROR and not same_members(members, pool):
            yield _set_members(members, pool)


def _set_members(wanted: tuple[Member, ...], found: FoundPool) -> Change:
    """Return the step that gives a pool its members; where only some are added, it adds them.

    Many are added in several steps.
    """
    added = added_members(wanted, found)
    if not found.pool.members and len(wanted) > AT_ONCE:
        added = wanted
    return AddMembers(found.id, added[:AT_ONCE]) if added else SetMembers(found.id, wanted)


def attainable(desired: LoadBalancer, provider: str | None = None) -> LoadBalancer:
    """Return the desired state without what the provider cannot have.

    :param provider: None for the desired one.
    """
    if (provider or desired.provider) not in HASHING:
        return desired
    return replace(desired, pools=tuple(_hashed(pool) for pool in desired.pools))


def _hashed(pool: Pool) -> Pool:
    """Return the pool as a provider that forwards by a hash can have it."""
    drained = replace(pool, members=tuple(member for member in pool.members if member.weight))
    if pool.persistence is None:
        return drained
    return replace(drained, lb_algorithm=SOURCE_IP, persistence=None, persistence_timeout=None)


class _Tree:
    """Desired and found parts of a load balancer in which nothing is PENDING."""

    def __init__(
        self,
        desired: LoadBalancer,
        found: FoundLoadBalancer,
        newest_pool: str,
        had_turn: Collection[str],
    ) -> None:
        self._id = found.id
        self._had_turn = had_turn
        self._former = {pool.name: pool.members for pool in desired.former_pools}
        self._newest_pool = newest_pool
        self._found = found
        self._hashing = found.provider in HASHING
        self._listeners = {listener.key: listener for listener in desired.listeners}
        self._pools = {pool.name: pool for pool in desired.pools}
        self._front_of = {each.pool: each.key for each in desired.listeners if each.pool}
        self._policy_pools = {  # only policies lead to them
            policy.redirect_pool for each in desired.listeners for policy in each.policies
        } - self._front_of.keys()
        self._found_listeners = {each.listener.key: each for each in found.listeners}
        self._found_pools: defaultdict[str, list[FoundPool]] = defaultdict(list)  # by name
        for each in found.pools:
            self._found_pools[each.pool.name].append(each)
        self._of_policies = {
            policy.pool_id for each in found.listeners for policy in each.policies
        }
        self._of_listeners = {each.pool_id for each in found.listeners}
        self._kept = dict(self._keep())
        self._unfilled = {
            name
            for name, pool in self._kept.items()
            if not same_members(self._pools[name].members, pool)
        }

    def _keep(self) -> Iterable[tuple[str, FoundPool]]:
        """Yield the pools that stay, by name; of two of the same name, the one in its place."""
        for name, wanted in self._pools.items():
            listener = self._found_listeners.get(self._front_of.get(name, Front("", 0)))
            place = listener.pool_id if listener is not None else None
            alike = [pool for pool in self._found_pools[name] if self._can_become(pool, wanted)]
            in_place = [pool for pool in alike if pool.id == place]
            if alike:
                yield name, min(in_place or alike, key=lambda pool: pool.id)

    def _can_become(self, found: FoundPool, wanted: Pool) -> bool:
        """Return whether the pool can be changed into another one of its name.

        Where clients are hashed, the pool that was created last decides for its protocol: if a
        later one is not wanted any more, this one is not what its algorithm says.
        """
        if found.pool.protocol != wanted.protocol:
            return False
        if found.provisioning_status == ERROR and self._has_policies(found):
            return False  # policies are led to another one first: until then it cannot go
        if not self._hashing:
            return True
        return found.pool.lb_algorithm == wanted.lb_algorithm and not any(
            other.id != found.id
            and other.pool.protocol == wanted.protocol
            and other.pool.lb_algorithm != wanted.lb_algorithm
            and self._may_be_later(other, found)
            and not self._is_wanted(other.pool)
            for other in self._found.pools
        )

    def _may_be_later(self, other: FoundPool, pool: FoundPool) -> bool:
        """Return whether a pool may have been created after this one: times are whole seconds."""
        if other.created_at == pool.created_at:
            return pool.id != self._newest_pool
        return other.created_at > pool.created_at

    def _is_wanted(self, pool: Pool) -> bool:
        wanted = self._pools.get(pool.name)
        return wanted is not None and (wanted.protocol, wanted.lb_algorithm) == (
            pool.protocol,
            pool.lb_algorithm,
        )

    def steps(self) -> Iterator[Change]:
        """Yield the steps."""
        useful = itertools.chain(
            self._heal(),
            self._show_certificates(),
            self._change_tls(),
            self._set_members(again=False),
            self._create_pool(),
            self._update_pool(),
            self._update_listener(),
            self._delete_listener(),
            self._create_listener(),
            self._change_policies(),
            self._change_monitor(),
            self._delete_pool(),
            self._set_members(again=True),
            self._empty_unknown(),
        )
        first = next(useful, None)
        if first is None:
            yield from self._separate()
        else:
            yield first
            yield from useful

    def _heal(self) -> Iterator[Change]:
        for listener in self._found.listeners:
            if listener.provisioning_status == ERROR:
                wanted = self._listeners.get(listener.listener.key)
                if wanted is None or wanted.protocol != TERMINATED_HTTPS:
                    yield DeleteListener(listener.id)
                else:
                    yield _updated(wanted, listener, None)
            else:
                yield from (DeletePolicy(each.id) for each in broken_policies(listener))
        for pool in self._found.pools:
            if pool.provisioning_status == ERROR and not self._has_policies(pool):
                yield DeletePool(pool.id)
        for pool in self._found.pools:
            if pool.health_monitor_id is not None and pool.health_monitor_status == ERROR:
                yield DeleteHealthMonitor(pool.health_monitor_id)

    def _show_certificates(self) -> Iterator[Change]:
        """Change certificates, unless the same call is to lead the listener to another pool."""
        for key, wanted in self._listeners.items():
            found, pool = self._found_listeners.get(key), self._kept.get(wanted.pool)
            if (
                found is None
                or found.provisioning_status == ERROR
                or (wanted.pool and pool is None)
            ):
                continue
            in_place = found.pool_id == (pool.id if pool is not None else None)
            if in_place and not same_certificates(wanted, found.listener):
                yield _updated(wanted, found, None)

    def _change_tls(self) -> Iterator[Change]:
        """Change TLS of pools, and the CAs by which members are verified."""
        for name, found in self._kept.items():
            if found.provisioning_status != ERROR and not same_tls(self._pools[name], found.pool):
                yield self._updated_pool(found)

    def _set_members(self, *, again: bool) -> Iterator[Change]:
        """Set members, also those in ERROR; Octavia changes no pool that is itself in ERROR.

        :param again: of the pools that have had their turn, or else of all others.
        """
        followed = [(found, self._pools[name].members) for name, found in self._kept.items()]
        followed += [
            (found, self._former[found.pool.name])
            for found in self._left()
            if found.pool.name in self._former
        ]
        for found, members in followed:
            if found.provisioning_status == ERROR or (found.id in self._had_turn) is not again:
                continue
            if not same_members(members, found) or ERROR in found.member_statuses.values():
                yield _set_members(members, found)

    def _left(self) -> list[FoundPool]:
        """Return the pools that are to go, and to which L7 policies still lead."""
        kept = {pool.id for pool in self._kept.values()}
        return [
            pool for pool in self._found.pools if pool.id not in kept and self._has_policies(pool)
        ]

    def _empty_unknown(self) -> Iterator[Change]:
        """Take all members from pools of which nobody knows what they should have by now."""
        for pool in self._left():
            is_known = pool.pool.name in self._former or pool.pool.name in self._pools
            if not is_known and pool.pool.members and pool.provisioning_status != ERROR:
                yield SetMembers(pool.id, ())

    def _create_pool(self) -> Iterator[Change]:
        yield from (each for name, each in self._new_pools() if name not in self._policy_pools)

    def _new_pools(self) -> Iterator[tuple[str, CreatePool]]:
        """Yield the pools that can be created, by name."""
        for name, wanted in self._pools.items():
            if name in self._kept or self._is_in_the_way(name):
                continue
            listener = self._found_listeners.get(self._front_of.get(name, Front("", 0)))
            idle = listener is not None and listener.pool_id is None
            yield name, CreatePool(self._id, wanted, listener.id if listener and idle else None)

    def _update_pool(self) -> Iterator[Change]:
        for name, found in self._kept.items():
            if found.provisioning_status != ERROR and not same_pool(self._pools[name], found.pool):
                yield self._updated_pool(found)

    def _updated_pool(self, found: FoundPool) -> UpdatePool:
        wanted = self._pools[found.pool.name]
        tags = united(wanted.tags, found.pool.tags)
        return UpdatePool(found.id, replace(wanted, tags=tags))

    def _update_listener(self) -> Iterator[Change]:
        for key, wanted in self._listeners.items():
            found, pool = self._found_listeners.get(key), self._kept.get(wanted.pool)
            if found is None or (wanted.pool and pool is None):
                continue
            if pool is None and found.pool_id is not None:
                yield _updated(wanted, found, "")
            elif pool is None or found.pool_id == pool.id:
                if not same_listener(wanted, found.listener):
                    yield _updated(wanted, found, None)
            elif self._can_be_led_to(pool):
                yield _updated(wanted, found, pool.id)

    def _delete_listener(self) -> Iterator[Change]:
        for key, found in self._found_listeners.items():
            if key not in self._listeners:
                yield DeleteListener(found.id)

    def _create_listener(self) -> Iterator[Change]:
        for key, wanted in self._listeners.items():
            if key in self._found_listeners:
                continue
            pool = self._kept.get(wanted.pool)
            if not wanted.pool:
                yield CreateListener(self._id, wanted, None)
            elif pool is not None and self._can_be_led_to(pool):
                yield CreateListener(self._id, wanted, pool.id)

    def _can_be_led_to(self, pool: FoundPool) -> bool:
        """Return whether no listener leads to the pool, and it can be used."""
        return self._is_filled(pool) and not self._users(pool)

    def _is_filled(self, pool: FoundPool) -> bool:
        """Return whether a pool has all of its members, and is not in ERROR."""
        return pool.pool.name not in self._unfilled and pool.provisioning_status != ERROR

    def _change_policies(self) -> Iterator[Change]:
        """Change L7 policies; they lead to pools that have all of their members."""
        pools = {name: pool.id for name, pool in self._kept.items()}
        filled = {name for name, pool in self._kept.items() if self._is_filled(pool)}
        listeners = [
            (wanted.policies, found)
            for key, wanted in self._listeners.items()
            if (found := self._found_listeners.get(key)) is not None
            and found.provisioning_status != ERROR
            and same_certificates(wanted, found.listener)
        ]
        if any(wanted or found.policies for wanted, found in listeners):
            new_pools = {n: each for n, each in self._new_pools() if n in self._policy_pools}
            yield from policy_steps(listeners, pools, filled, new_pools)

    def _change_monitor(self) -> Iterator[Change]:
        for name, pool in self._kept.items():
            if pool.provisioning_status == ERROR:
                continue
            wanted, found = self._pools[name].health_monitor, pool.pool.health_monitor
            if pool.health_monitor_id is None or found is None:
                if wanted is not None:
                    yield CreateHealthMonitor(pool.id, wanted)
            elif wanted == found:
                continue
            elif wanted is not None and wanted.type == found.type and not self._hashing:
                yield UpdateHealthMonitor(pool.health_monitor_id, wanted)
            else:
                yield DeleteHealthMonitor(pool.health_monitor_id)

    def _delete_pool(self) -> Iterator[Change]:
        """Delete a pool that nobody uses, or that has the name of a new one and cannot stay."""
        kept = {pool.id for pool in self._kept.values()}
        for pool in self._found.pools:
            name = pool.pool.name
            blocks = name not in self._kept and name in self._pools and self._is_in_the_way(name)
            unused = pool.id not in self._of_listeners
            if pool.id not in kept and not self._has_policies(pool) and (blocks or unused):
                yield DeletePool(pool.id)

    def _has_policies(self, pool: FoundPool) -> bool:
        """Return whether L7 policies lead to the pool: then Octavia does not delete it."""
        return pool.id in self._of_policies

    def _is_in_the_way(self, name: str) -> bool:
        """Return whether a pool that cannot stay has the name, and goes before its successor.

        A listener can change from one pool to another if both have the same protocol.
        """
        protocols = {pool.pool.protocol for pool in self._found_pools[name]}
        return bool(protocols - {self._pools[name].protocol})

    def _separate(self) -> Iterator[Change]:
        """Delete one of the listeners that have each other's pools, so that others can go on."""
        for wanted in self._listeners.values():
            pool = self._kept.get(wanted.pool)
            for user in self._users(pool) if pool is not None else ():
                if user.listener.key != wanted.key:
                    yield DeleteListener(user.id)

    def _users(self, pool: FoundPool) -> list[FoundListener]:
        return [each for each in self._found.listeners if each.pool_id == pool.id]


def _updated(wanted: Listener, found: FoundListener, pool_id: str | None) -> UpdateListener:
    """Return the step that makes a listener what is wanted.

    :param pool_id: of its default pool; None to leave it as it is, empty for none.
    """
    changed = replace(wanted, tags=united(wanted.tags, found.listener.tags))
    return UpdateListener(found.id, changed, pool_id, forgotten(wanted.tags, found.listener.tags))
