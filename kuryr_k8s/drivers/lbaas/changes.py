"""The steps that plans are made of: each is one call of Octavia.

What they are for and in which order they come is :mod:`kuryr_k8s.drivers.lbaas.plan`'s to say.
"""

from dataclasses import dataclass

from kuryr_k8s.model.load_balancer import HealthMonitor, Listener, LoadBalancer, Member, Pool


@dataclass(frozen=True, slots=True)
class Pending:
    """Octavia is at work: nothing can be done now."""

    id: str


@dataclass(frozen=True, slots=True)
class CreateLoadBalancer:
    """With all that it is to have, by one call."""

    wanted: LoadBalancer


@dataclass(frozen=True, slots=True)
class DeleteLoadBalancer:
    """With all that it has (cascade)."""

    id: str


@dataclass(frozen=True, slots=True)
class CreateListener:
    """:param pool_id: of its pool, which is there."""

    load_balancer_id: str
    listener: Listener
    pool_id: str


@dataclass(frozen=True, slots=True)
class UpdateListener:
    """:param pool_id: of the pool that it gets. None: it keeps its own."""

    id: str
    listener: Listener
    pool_id: str | None


@dataclass(frozen=True, slots=True)
class DeleteListener:
    """Its pool stays."""

    id: str


@dataclass(frozen=True, slots=True)
class CreatePool:
    """Without members.

    :param listener_id: of the listener whose pool it becomes at once. None: nobody's yet.
    """

    load_balancer_id: str
    pool: Pool
    listener_id: str | None


@dataclass(frozen=True, slots=True)
class UpdatePool:
    id: str
    pool: Pool


@dataclass(frozen=True, slots=True)
class DeletePool:
    id: str


@dataclass(frozen=True, slots=True)
class SetMembers:
    """All members that the pool is to have, by one call."""

    pool_id: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class CreateHealthMonitor:
    pool_id: str
    monitor: HealthMonitor


@dataclass(frozen=True, slots=True)
class UpdateHealthMonitor:
    """Its type stays."""

    id: str
    monitor: HealthMonitor


@dataclass(frozen=True, slots=True)
class DeleteHealthMonitor:
    id: str


Change = (
    DeleteLoadBalancer
    | CreateListener
    | UpdateListener
    | DeleteListener
    | CreatePool
    | UpdatePool
    | DeletePool
    | SetMembers
    | CreateHealthMonitor
    | UpdateHealthMonitor
    | DeleteHealthMonitor
)
Step = Pending | CreateLoadBalancer | Change
