"""What all drivers are, and what each is handed."""

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from oslo_config import cfg

from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.k8s.informer import Informer
from kuryr_k8s.model.pod import Namespace

if TYPE_CHECKING:
    from kuryr_k8s.drivers.base.pods import PodVIFDriver


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverContext:
    """What every driver is handed at its making.

    ``pod_vif`` is set for the slots above it: pools make their ports through it. ``octavia`` is
    set where Services are asked for.
    """

    conf: cfg.ConfigOpts
    neutron: Neutron
    namespaces: Informer[Namespace]
    pod_vif: "PodVIFDriver | None" = None
    octavia: Octavia | None = None


class Driver(abc.ABC):
    """Base of all drivers."""

    slot: ClassVar[str]

    def __init__(self, context: DriverContext) -> None:
        self._context = context

    async def start(self) -> None:  # noqa: B027 - a hook that few drivers need
        """Check the configuration; called once, before the first reconcile.

        :raises kuryr_k8s.errors.ConfigError: an option names something that is not there.
        """
