"""Resources that ports use up: a project's quota, a subnet's addresses, a trunk's VLAN ids."""

import enum
from typing import NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import NoVLANID, PoolKey
from kuryr_k8s.engine.limit import OVERLOAD


class Kind(enum.Enum):
    """The kind of a resource."""

    PROJECT = enum.auto()  # its quota
    UNRESERVED = enum.auto()  # a project's quota without what pools leave to others
    SUBNET = enum.auto()  # its addresses
    PLACE = enum.auto()  # a trunk's VLAN ids
    NEUTRON = enum.auto()  # its time: it is overloaded, or does not answer


FREED = frozenset({Kind.PROJECT, Kind.SUBNET, Kind.PLACE})  # by the deletion of a port


class Resource(NamedTuple):
    """Something that pools share, and that one of them can have used up for all."""

    kind: Kind
    id: str = ""


class ReserveReached(errors.OverQuota):
    """Only those ports of the project's quota are left that pools leave to others."""


def resources_of(key: PoolKey) -> tuple[Resource, ...]:
    """List what a pool's port takes up, and what may therefore be missing for another one."""
    subnets = (Resource(Kind.SUBNET, subnet_id) for subnet_id in key.subnet_ids)
    return (
        Resource(Kind.PROJECT, key.project_id),
        Resource(Kind.UNRESERVED, key.project_id),
        *subnets,
        Resource(Kind.PLACE, key.place),
        Resource(Kind.NEUTRON),
    )


def lacking(failure: BaseException, key: PoolKey) -> tuple[Resource, ...]:
    """List what is used up, as the failure of a creation tells; of subnets, any may be meant."""
    match failure:
        case ReserveReached():
            return (Resource(Kind.UNRESERVED, key.project_id),)
        case NoVLANID():
            return (Resource(Kind.PLACE, key.place),)
        case errors.NoAddress():
            return tuple(Resource(Kind.SUBNET, subnet_id) for subnet_id in key.subnet_ids)
        case errors.OverQuota():
            return (Resource(Kind.PROJECT, key.project_id),)
        case errors.CloudError() if failure.api and failure.status in OVERLOAD:
            return (Resource(Kind.NEUTRON),)
        case _:
            return ()
