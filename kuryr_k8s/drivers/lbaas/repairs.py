"""Repairs of what is in ERROR: of which part, how often, and when. Pure.

Each part has a count and a delay of its own, so that one that cannot be mended holds up no other.
A load balancer in ERROR can only be deleted and made again. As long as it forwards, that would
turn a fault of the control plane into an outage: it is left to people, who are told what they can
do.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kuryr_k8s import errors
from kuryr_k8s.drivers.lbaas.policies import broken_policies
from kuryr_k8s.drivers.lbaas.steps import (
    Change,
    DeleteHealthMonitor,
    DeleteListener,
    DeleteLoadBalancer,
    DeletePolicy,
    DeletePool,
    SetMembers,
    UpdateListener,
)
from kuryr_k8s.model.load_balancer import (
    ERROR,
    HASHING,
    TERMINATED_HTTPS,
    FoundLoadBalancer,
    LoadBalancer,
)

LONGEST = 300.0  # seconds before a repair, at most
DOUBLINGS = 30  # of the delay, at most
FORWARDING = ("ONLINE", "DEGRADED")  # operating statuses
WHOLE = "all of it"


class LoadBalancerFailed(errors.Refused):
    """Octavia put the load balancer, or a part of it, in ERROR."""

    reason = "KuryrLoadBalancerError"


@dataclass(slots=True)
class _Repair:
    """Repairs of one part.

    :param made: how many.
    :param due: when the next one may be made; None while the part is not in ERROR.
    """

    made: int = 0
    due: float | None = None


class Repairs:
    """Limits on how often the parts of one owner's load balancer are made anew after ERROR.

    The counts begin with the first ERROR, and end when the load balancer matches its desired
    state. Delays grow from repair to repair. An update that mends a part has no limit but these
    delays, as it takes nothing away.

    :param limit: the most repairs of a part.
    :param delay: seconds from the ERROR to the first repair.
    """

    def __init__(self, limit: int, delay: float) -> None:
        self._limit = limit
        self._delay = delay
        self._repairs: dict[str, _Repair] = {}

    def check(
        self, part: str, load_balancer_id: str, now: float, *, is_update: bool = False
    ) -> None:
        """Make sure that a part in ERROR may be made anew now, or updated.

        :raises LoadBalancerFailed: it is too early, or there were too many repairs.
        """
        repair = self._repairs.setdefault(part, _Repair())
        what = f"load balancer {load_balancer_id}: {part} is in ERROR"
        if repair.made >= self._limit and not is_update:
            raise LoadBalancerFailed(
                f"{what}; it has been made anew {repair.made} times, and is left to people now"
            )
        if repair.due is None:
            repair.due = now + min(self._delay * 2.0 ** min(repair.made, DOUBLINGS), LONGEST)
        if now < repair.due:
            raise LoadBalancerFailed(f"{what} and will be made anew")

    def begun(self, part: str) -> None:
        """Count a repair of a part, which Octavia has begun."""
        repair = self._repairs[part]
        repair.due = None
        repair.made += 1

    def cleared(self, but: Collection[str] = ()) -> None:
        """Note that nothing is in ERROR but these parts; a later ERROR counts as new."""
        for part, repair in self._repairs.items():
            if part not in but:
                repair.due = None


Broken = Mapping[tuple[type[Change], str], str]


def broken_parts(found: FoundLoadBalancer) -> Broken:
    """Return the parts that are in ERROR, by the step that begins to make each anew.

    A step is its type and the id that it names; a part is told in words that stay the same when it
    is made anew.
    """
    parts: dict[tuple[type[Change], str], str] = {}
    if found.provisioning_status == ERROR:
        parts[DeleteLoadBalancer, found.id] = WHOLE
    for each in found.listeners:
        port = f"{each.listener.protocol} {each.listener.port}"
        if each.provisioning_status == ERROR:
            over_tls = each.listener.protocol == TERMINATED_HTTPS
            step = UpdateListener if over_tls else DeleteListener
            parts[step, each.id] = f"listener {port}"
        for broken in broken_policies(each):
            parts[DeletePolicy, broken.id] = f"L7 policy {broken.policy.name} of {port}"
    for pool in found.pools:
        name = pool.pool.name
        if pool.provisioning_status == ERROR:
            parts[DeletePool, pool.id] = f"pool {name}"
        if pool.health_monitor_id is not None and pool.health_monitor_status == ERROR:
            parts[DeleteHealthMonitor, pool.health_monitor_id] = f"the health monitor of {name}"
        if ERROR in pool.member_statuses.values():
            parts[SetMembers, pool.id] = f"a member of pool {name}"
    return parts


def part_mended(step: Change, found: FoundLoadBalancer, broken: Broken) -> str | None:
    """Return the part in ERROR for whose sake alone a step is taken; None if there is none.

    :param broken: what :func:`broken_parts` returns.
    """
    match step:
        case SetMembers(pool_id, members):
            pool = next(each for each in found.pools if each.id == pool_id)
            there = {member.key for member in pool.pool.members}
            changes = there != {member.key for member in members}
            return None if changes else broken.get((SetMembers, pool_id))
        case (
            DeleteLoadBalancer(part_id)
            | DeleteListener(part_id)
            | DeletePool(part_id)
            | DeleteHealthMonitor(part_id)
            | DeletePolicy(part_id)
            | UpdateListener(part_id)
        ):
            return broken.get((type(step), part_id))
        case _:
            return None


def check_forwards_nothing(desired: LoadBalancer, found: FoundLoadBalancer) -> None:
    """Make sure that a load balancer in ERROR does not forward to any member that it is to have.

    :raises LoadBalancerFailed: it does.
    """
    wanted = {member.key for pool in desired.pools for member in pool.members}
    there = {member.key for pool in found.pools for member in pool.pool.members}
    if found.operating_status not in FORWARDING or not wanted & there:
        return
    remedy = (
        "Octavia has no failover for it: have it deleted when an interruption is acceptable"
        if found.provider in HASHING
        else f"an administrator can mend it by: openstack loadbalancer failover {found.id}"
    )
    raise LoadBalancerFailed(
        f"load balancer {found.id} is in ERROR, and forwards to its members all the same, so it "
        f"is left as it is, and changes have to wait; {remedy}"
    )
