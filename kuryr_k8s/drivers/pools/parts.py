"""The objects that the parts of a pool driver are handed at their construction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.drivers.base import PooledVIFDriver, PoolKey
from kuryr_k8s.drivers.pools.effects import Effects
from kuryr_k8s.drivers.pools.shortages import Shortages
from kuryr_k8s.drivers.pools.state import PoolState
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.model.pod import Node
from kuryr_k8s.patience import Patience

UPKEEP = -1


class PoolTask(NamedTuple):
    """A key of the pools' queue: one of the simultaneous creations for a pool, or its upkeep."""

    key: PoolKey
    number: int

    @classmethod
    def upkeep(cls, key: PoolKey) -> "PoolTask":
        """Return the task of looking after a pool."""
        return cls(key, UPKEEP)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolContext:
    """The objects that all parts of a pool driver share.

    :param shortages: what is used up.
    :param vif: the driver that makes the ports.
    :param nodes: the names of the Nodes, by place.
    :param node: looks up a Node by its name.
    :param carry_out: carries out the effects of a change at once.
    :param now: the time in seconds.
    """

    state: PoolState
    shortages: Shortages
    vif: PooledVIFDriver
    neutron: Neutron
    queue: WorkQueue[PoolTask]
    nodes: Mapping[str, str]
    node: Callable[[str], Node | None]
    carry_out: Callable[[Effects], None]
    now: Callable[[], float]
    patience: Patience
