"""Octavia as far as plans are concerned: it carries steps out at once, and takes no wrong ones."""

import itertools
from dataclasses import replace

from kuryr_k8s.drivers.lbaas import steps as lb_steps
from kuryr_k8s.model.load_balancer import (
    ACTIVE,
    ERROR,
    MOST_RULES,
    AdditionalVIP,
    Address,
    FoundL7Policy,
    FoundListener,
    FoundLoadBalancer,
    FoundPool,
    Listener,
    Pool,
)

L4 = {"TCP": "TCP", "HTTP": "TCP", "TERMINATED_HTTPS": "TCP", "UDP": "UDP", "SCTP": "SCTP"}
POOLS_OF = {
    "TCP": ("TCP", "PROXY", "PROXYV2"),
    "HTTP": ("HTTP", "PROXY"),
    "TERMINATED_HTTPS": ("HTTP", "PROXYV2"),
    "UDP": ("UDP",),
    "SCTP": ("SCTP",),
}
LIMITS = {
    "timeout_client_data": 50000,
    "timeout_member_data": 50000,
    "timeout_member_connect": 5000,
    "timeout_tcp_inspect": 0,
    "connection_limit": -1,
}
AFFINITY = 360
ANY_ADDRESS = "10.3.0.99"
DEFAULT_PROVIDER = "amphora"
_numbers = itertools.count()
seconds = itertools.count()  # at which parts are created


def new_id(kind):
    """In no order: neither are Octavia's."""
    return f"{kind}-{next(_numbers) * 7919 % 99991:05}"


class Refused(AssertionError):
    """A step that Octavia would not take, or that hurts."""


def require(condition, why):
    if not condition:
        raise Refused(why)


class OctaviaModel:
    """``found`` is what it has: one load balancer or none."""

    def __init__(self, found=None):
        self.found = found

    def apply(self, step):
        match step:
            case lb_steps.CreateLoadBalancer(wanted):
                require(self.found is None, "a second load balancer")
                self.found = made(wanted)
            case lb_steps.DeleteLoadBalancer(found_id):
                require(self.found is not None and self.found.id == found_id, "404")
                self.found = None
            case lb_steps.Pending():
                raise Refused("nothing is PENDING")
            case _:
                self._change(step)

    def _change(self, step):
        require(self.found is not None, "404")
        require(self.found.provisioning_status == ACTIVE, "409: immutable")
        parts = (*self.found.listeners, *self.found.pools)
        broken = {part.id for part in parts if part.provisioning_status == ERROR}
        pools = self.found.pools
        led_to = {policy.pool_id for each in self.found.listeners for policy in each.policies}
        broken -= led_to  # it cannot be deleted, and hinders nothing else
        broken |= {pool.health_monitor_id for pool in pools if pool.health_monitor_status == ERROR}
        broken |= {
            policy.id
            for each in self.found.listeners
            for policy in each.policies
            if ERROR in policy.statuses()
        }
        deletes = isinstance(
            step,
            lb_steps.DeleteListener
            | lb_steps.DeletePool
            | lb_steps.DeleteHealthMonitor
            | lb_steps.DeletePolicy,
        )
        own = isinstance(step, lb_steps.SetSecurityGroups)  # not of a part
        # Octavia looks at the load balancer's status alone, before it updates a listener
        mends = deletes or isinstance(step, lb_steps.UpdateListener)
        require(not broken or own or (mends and step.id in broken), "409: something is in ERROR")
        match step:
            case lb_steps.SetTags(found_id, tags):
                require(found_id == self.found.id, "404")
                require(set(self.found.tags) < set(tags), "needless, or somebody's tag is lost")
                self.found = replace(self.found, tags=tags)
            case lb_steps.SetSecurityGroups(found_id, group_ids):
                require(found_id == self.found.id, "404")
                require(set(self.found.vip_sg_ids) != set(group_ids), "needless")
                self.found = replace(self.found, vip_sg_ids=group_ids)
            case lb_steps.CreateListener(found_id, listener, pool_id):
                require(found_id == self.found.id, "404")
                self._check_port(listener)
                if pool_id is not None:
                    self._check_pool(listener.protocol, pool_id)
                new_listener = found_listener(replace(listener, policies=()), pool_id)
                self._put("listeners", new_listener)
            case lb_steps.UpdateListener(listener_id, listener, pool_id):
                old = self._get("listeners", listener_id)
                require(old.listener.key == listener.key, "400: cannot be changed")
                require(set(old.listener.tags) <= set(listener.tags), "somebody's tag is lost")
                if pool_id is None:
                    pool_id = old.pool_id
                else:
                    require(pool_id != (old.pool_id or ""), "needless")
                    if pool_id:
                        self._check_pool(listener.protocol, pool_id)
                said = replace(listener, policies=old.listener.policies)
                new = found_listener(said, pool_id or None)
                self._put("listeners", replace(new, id=old.id, policies=old.policies))
            case lb_steps.DeleteListener(listener_id):
                self._drop("listeners", self._get("listeners", listener_id))
            case lb_steps.CreatePool(found_id, pool, listener_id):
                require(found_id == self.found.id, "404")
                names = [each.pool.name for each in self.found.pools]
                # with ovn a pool cannot change its algorithm, and is replaced by one of its name
                may_be_two = self.found.provider == "ovn"
                require(may_be_two or pool.name not in names, "which of the two is the pool?")
                new_pool = found_pool(replace(pool, members=(), health_monitor=None))
                self._put("pools", new_pool)
                if listener_id is not None:
                    listener = self._get("listeners", listener_id)
                    require(listener.pool_id is None, "409: the listener has a pool")
                    self._check_pool(listener.listener.protocol, new_pool.id)
                    self._put("listeners", replace(listener, pool_id=new_pool.id))
            case lb_steps.UpdatePool(pool_id, pool):
                old = self._get("pools", pool_id)
                wanted, is_now = (pool.name, pool.protocol), (old.pool.name, old.pool.protocol)
                require(wanted == is_now, "400: cannot be changed")
                require(set(old.pool.tags) <= set(pool.tags), "somebody's tag is lost")
                has = {"members": old.pool.members, "health_monitor": old.pool.health_monitor}
                self._put("pools", replace(old, pool=found_pool(replace(pool, **has)).pool))
            case lb_steps.DeletePool(pool_id):
                self._drop("pools", self._get("pools", pool_id))
                policies = (policy for each in self.found.listeners for policy in each.policies)
                require(all(each.pool_id != pool_id for each in policies), "409: in use")
                for user in self.found.listeners:
                    if user.pool_id == pool_id:
                        self._put("listeners", replace(user, pool_id=None))
            case lb_steps.SetMembers(pool_id, members):
                old = self._get("pools", pool_id)
                require(len({member.key for member in members}) == len(members), "400: twice")
                statuses = dict.fromkeys((member.key for member in members), ACTIVE)
                changed = replace(old.pool, members=members)
                self._put("pools", replace(old, pool=changed, member_statuses=statuses))
            case lb_steps.AddMembers(pool_id, members):
                old = self._get("pools", pool_id)
                there = {member.key.value for member in old.pool.members}
                require(there.isdisjoint(m.key.value for m in members), "it is there already")
                self.apply(lb_steps.SetMembers(pool_id, (*old.pool.members, *members)))
            case lb_steps.CreatePolicy(listener_id, policy, position, pool_id, is_enabled):
                listener = self._get("listeners", listener_id)
                require((pool_id is None) is (policy.redirect_pool is None), "400: the action")
                if pool_id is not None:
                    self._get("pools", pool_id)
                new_policy = FoundL7Policy(
                    id=new_id("policy"),
                    provisioning_status=ACTIVE,
                    policy=replace(policy, rules=()),
                    is_enabled=is_enabled,
                    pool_id=pool_id,
                )
                at = position - 1
                there = listener.policies
                self._put_policies(listener, [*there[:at], new_policy, *there[at:]])
            case lb_steps.CreateRule(policy_id, rule):
                listener, old = self._policy(policy_id)
                require(rule not in old.policy.rules, "twice")
                require(len(old.policy.rules) < MOST_RULES, "409: too many rules")
                rules = {**_rules(old), new_id("rule"): rule}
                self._replace_policy(listener, _with_rules(old, rules))
            case lb_steps.UpdateRule(policy_id, rule_id, rule):
                listener, old = self._policy(policy_id)
                require(rule_id in _rules(old) and rule not in old.policy.rules, "needless")
                rules = {**_rules(old), rule_id: rule}
                self._replace_policy(listener, _with_rules(old, rules))
            case lb_steps.DeleteRule(policy_id, rule_id):
                listener, old = self._policy(policy_id)
                rules = _rules(old)
                del rules[rule_id]
                self._replace_policy(listener, _with_rules(old, rules))
            case lb_steps.UpdatePolicy(policy_id, policy, pool_id):
                listener, old = self._policy(policy_id)
                require(old.policy.action == policy.action, "another turn")
                said = replace(policy, rules=old.policy.rules)
                new_policy = replace(old, policy=said, pool_id=pool_id, is_enabled=True)
                require(new_policy != old, "needless")
                self._replace_policy(listener, new_policy)
            case lb_steps.MovePolicy(policy_id, position):
                listener, old = self._policy(policy_id)
                others = [each for each in listener.policies if each.id != policy_id]
                at = position - 1
                moved = [*others[:at], old, *others[at:]]
                require(tuple(moved) != listener.policies, "needless")
                self._put_policies(listener, moved)
            case lb_steps.DeletePolicy(policy_id):
                listener, _old = self._policy(policy_id)
                left = [each for each in listener.policies if each.id != policy_id]
                self._put_policies(listener, left)
            case lb_steps.CreateHealthMonitor(pool_id, monitor):
                old = self._get("pools", pool_id)
                require(old.health_monitor_id is None, "409: the pool has a monitor")
                self._put("pools", monitored(old, monitor))
            case lb_steps.UpdateHealthMonitor(monitor_id, monitor):
                old = self._monitored(monitor_id)
                require(old.pool.health_monitor.type == monitor.type, "400: cannot be changed")
                require(self.found.provider != "ovn", "the listeners would stay PENDING")
                changed = replace(old.pool, health_monitor=monitor)
                self._put("pools", replace(old, pool=changed))
            case lb_steps.DeleteHealthMonitor(monitor_id):
                self._put("pools", monitored(self._monitored(monitor_id), None))
            case _:
                raise Refused(f"no such step: {step}")

    def users(self, pool_id):
        return [listener for listener in self.found.listeners if listener.pool_id == pool_id]

    def _policy(self, policy_id):
        for listener in self.found.listeners:
            for policy in listener.policies:
                if policy.id == policy_id:
                    return listener, policy
        raise Refused(f"404: {policy_id}")

    def _replace_policy(self, listener, new):
        policies = [new if each.id == new.id else each for each in listener.policies]
        self._put_policies(listener, policies)

    def _put_policies(self, listener, policies):
        said = replace(listener.listener, policies=tuple(each.policy for each in policies))
        self._put("listeners", replace(listener, listener=said, policies=tuple(policies)))

    def _check_port(self, listener):
        taken = {
            (L4[other.listener.protocol], other.listener.port) for other in self.found.listeners
        }
        require((L4[listener.protocol], listener.port) not in taken, "409: the port is taken")

    def _check_pool(self, protocol, pool_id):
        pool = self._get("pools", pool_id)
        require(pool.pool.protocol in POOLS_OF[protocol], "400: the pool's protocol")
        require(not self.users(pool_id), "the pool is another listener's")

    def _get(self, parts, found_id):
        for part in getattr(self.found, parts):
            if part.id == found_id:
                return part
        raise Refused(f"404: {found_id}")

    def _monitored(self, monitor_id):
        for pool in self.found.pools:
            if pool.health_monitor_id == monitor_id:
                return pool
        raise Refused(f"404: {monitor_id}")

    def _drop(self, parts, gone):
        left = tuple(part for part in getattr(self.found, parts) if part.id != gone.id)
        self.found = replace(self.found, **{parts: left})

    def _put(self, parts, new):
        self._drop(parts, new)
        self.found = replace(self.found, **{parts: (*getattr(self.found, parts), new)})


def found_listener(listener: Listener, pool_id, status=ACTIVE):
    """As Octavia shows it: what was not given has a value."""
    missing = {name: limit for name, limit in LIMITS.items() if getattr(listener, name) is None}
    shown = replace(listener, **missing)
    return FoundListener(
        id=new_id("listener"), provisioning_status=status, listener=shown, pool_id=pool_id
    )


def _rules(found):
    """Its rules by their ids."""
    return dict(zip(found.rule_ids, found.policy.rules, strict=True))


def _with_rules(found, rules):
    return replace(
        found,
        policy=replace(found.policy, rules=tuple(rules.values())),
        rule_ids=tuple(rules),
        rule_statuses=(ACTIVE,) * len(rules),
    )


def found_policy(policy, pool_id, status=ACTIVE, *, is_enabled=True):
    return FoundL7Policy(
        id=new_id("policy"),
        provisioning_status=status,
        policy=policy,
        is_enabled=is_enabled,
        pool_id=pool_id,
        rule_ids=tuple(new_id("rule") for _ in policy.rules),
        rule_statuses=(ACTIVE,) * len(policy.rules),
    )


def found_pool(pool: Pool, status=ACTIVE, broken=(), created_at=None):
    if pool.persistence and pool.protocol in ("UDP", "SCTP"):
        pool = replace(pool, persistence_timeout=pool.persistence_timeout or AFFINITY)
    found = FoundPool(
        id=new_id("pool"),
        created_at=created_at or f"{next(seconds):08}",
        provisioning_status=status,
        pool=pool,
        member_statuses={
            Address(member.address, member.port): ERROR if member.key in broken else ACTIVE
            for member in pool.members
        },
    )
    return monitored(found, pool.health_monitor)


def monitored(found: FoundPool, monitor, status=ACTIVE):
    """The pool with this health monitor, or none."""
    return replace(
        found,
        pool=replace(found.pool, health_monitor=monitor),
        health_monitor_id=monitor and new_id("monitor"),
        health_monitor_status=monitor and status,
    )


def made(wanted):
    """What one create makes."""
    now = f"{next(seconds):08}"
    pools = {pool.name: found_pool(pool, created_at=now) for pool in wanted.pools}
    return FoundLoadBalancer(
        id=new_id("lb"),
        name=wanted.name,
        project_id=wanted.project_id,
        provider=wanted.provider or DEFAULT_PROVIDER,
        vip_address=wanted.vip_address or ANY_ADDRESS,
        vip_subnet_id=wanted.vip_subnet_id or "services",
        vip_port_id=wanted.vip_port_id or "port",
        provisioning_status=ACTIVE,
        operating_status="ONLINE",
        tags=wanted.tags,
        listeners=tuple(_made_listener(listener, pools) for listener in wanted.listeners),
        pools=tuple(pools.values()),
        vip_network_id=wanted.vip_network_id or "network",
        additional_vips=tuple(AdditionalVIP(each, each) for each in wanted.additional_vips),
        vip_sg_ids=wanted.vip_sg_ids or (),
        flavor_id=wanted.flavor_id,
        availability_zone=wanted.availability_zone,
    )


def _made_listener(listener, pools):
    new = found_listener(listener, pools[listener.pool].id if listener.pool else None)
    policies = tuple(
        found_policy(policy, policy.redirect_pool and pools[policy.redirect_pool].id)
        for policy in listener.policies
    )
    return replace(new, policies=policies)
