"""What a driver is handed, for tests of one driver alone."""

from kuryr_k8s.drivers.base import DriverContext
from kuryr_k8s.engine.clock import CLOCK
from kuryr_k8s.k8s.informer import Informers
from kuryr_k8s.patience import PATIENCE


def driver_context(conf, neutron, octavia=None, drivers=None, patience=PATIENCE, clock=CLOCK):
    """Return a context whose caches stay empty, and whose other drivers are a dict's by slot."""
    return DriverContext(
        conf=conf,
        kube=None,
        neutron=neutron,
        octavia=octavia,
        barbican=None,
        drivers={} if drivers is None else drivers,
        informers=Informers(None, patience, clock),
        events=None,
        patience=patience,
        clock=clock,
    )


class Subnets:
    """Stands for the driver of the slot ``service_subnets``."""

    def __init__(self, *subnets):
        self._subnets = subnets

    async def all_subnets(self):
        return self._subnets
