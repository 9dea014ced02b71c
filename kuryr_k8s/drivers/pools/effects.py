"""Effects of a change of the pools: decided by their parts, carried out by the pool driver."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kuryr_k8s.drivers.base import PoolKey
from kuryr_k8s.drivers.base.pool import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """Follow-up work of a change.

    :param served: claims that waited and have a port now.
    :param refused: claims that waited and cannot have a port, and why.
    :param upkeep: pools that need a round of upkeep.
    :param fill: pools that may want more ports.
    :param changed: places whose pools have changed.
    :param freed: pools that have one port less than before.
    :param survey: a survey is needed soon: a Pod's port is gone, or a port is withheld.
    """

    served: tuple[Claim, ...] = ()
    refused: Mapping[Claim, Exception] = field(default_factory=dict)
    upkeep: tuple[PoolKey, ...] = ()
    fill: tuple[PoolKey, ...] = ()
    changed: tuple[str, ...] = ()
    freed: tuple[PoolKey, ...] = ()
    survey: bool = False
