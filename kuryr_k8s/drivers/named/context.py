"""Declare the context that the classes of this package are made with."""

from typing import Protocol

from oslo_config import cfg

from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.engine.clock import Clock
from kuryr_k8s.patience import Patience


class Context(Protocol):
    """The part that the contexts of drivers and of handlers have in common."""

    @property
    def conf(self) -> cfg.ConfigOpts:
        """The options."""

    @property
    def neutron(self) -> Neutron:
        """The client of Neutron."""

    @property
    def clock(self) -> Clock:
        """The clock."""

    @property
    def patience(self) -> Patience:
        """For how long answers count."""
