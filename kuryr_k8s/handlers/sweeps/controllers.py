"""What is looked at every now and then, each as a Controller with one key: for what nothing names
any more, for what Octavia is at work on, and whether ClusterIPs are fit for it."""

from collections.abc import Awaitable, Callable

from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.drivers.base import Owned
from kuryr_k8s.drivers.lbaas.lbaasv2 import LBaaSv2
from kuryr_k8s.drivers.lbaas.pending import PendingLoadBalancers
from kuryr_k8s.drivers.policy import granted
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.handlers.pods.lost_ports import LostPorts
from kuryr_k8s.handlers.services.ranges import ServiceRanges
from kuryr_k8s.handlers.sweeps.orphans import OrphanSweeper
from kuryr_k8s.handlers.sweeps.ports import PortSweeper
from kuryr_k8s.handlers.sweeps.vip_ports import VIPPortSweeper
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.service_class import Classes

SLOWEST = 30.0  # seconds between two tries
SOON = 5.0  # seconds until VIPs' ports are looked at after a creation was refused


def of_ports(context: HandlerContext, neutron: Neutron) -> Controller[str]:
    """Pools recover by its first search."""
    defaults = context.conf.neutron_defaults
    sweeper = PortSweeper(
        neutron,
        context.kube,
        context.informers.kuryrports,
        context.drivers.vif_pool,
        tuple(defaults.resource_tags),
        defaults.sweep_interval,
        LostPorts(context, neutron),
    )
    controller = Controller[str](
        "port-sweeper", sweeper.reconcile, queue=WorkQueue(cap=SLOWEST), workers=1
    )
    controller.queue.add(PortSweeper.KEY)
    return controller


def of_load_balancers(
    context: HandlerContext, look_again: Callable[[Key], None]
) -> Controller[str]:
    """:param look_again: see :class:`OrphanSweeper`."""
    driver = context.drivers.endpoints_lbaas
    return _of_orphans("load balancer", driver.list_owned, driver.release, context, look_again)


def of_public_ips(context: HandlerContext, look_again: Callable[[Key], None]) -> Controller[str]:
    """Likewise."""
    driver = context.drivers.service_public_ip

    async def release(owner: str, _wake: Callable[[], None]) -> None:
        await driver.release(owner, keep=False)

    return _of_orphans("public IP", driver.list_owned, release, context, look_again)


def _of_orphans(
    kind: str,
    list_owned: Callable[[], Awaitable[list[Owned]]],
    release: Callable[[str, Callable[[], None]], Awaitable[None]],
    context: HandlerContext,
    look_again: Callable[[Key], None],
) -> Controller[str]:
    sweeper = OrphanSweeper(
        kind,
        list_owned,
        release,
        context.kube,
        context.informers.services,
        context.conf.neutron_defaults.sweep_interval,
        look_again,
        Classes.read(context.conf),
    )
    name = f"{kind.lower().replace(' ', '-')}-sweeper"
    controller = Controller[str](name, sweeper.reconcile, queue=WorkQueue(cap=SLOWEST), workers=1)
    sweeper.wake = controller.queue.add
    controller.queue.add(OrphanSweeper.KEY)
    return controller


def of_vip_ports(context: HandlerContext, neutron: Neutron, octavia: Octavia) -> Controller[str]:
    """Those of all projects that Services can be of."""
    conf = context.conf
    sweeper = VIPPortSweeper(
        neutron,
        octavia,
        context.drivers.service_subnets.all_subnets,
        sorted(granted.projects(conf)),
        conf.neutron_defaults.sweep_interval,
    )
    controller = Controller[str](
        "vip-port-sweeper", sweeper.reconcile, queue=WorkQueue(cap=SLOWEST), workers=1
    )
    controller.queue.add(VIPPortSweeper.KEY)
    lbaas = context.drivers.endpoints_lbaas
    if isinstance(lbaas, LBaaSv2):
        lbaas.on_refusal(lambda: controller.queue.add_after(VIPPortSweeper.KEY, SOON))
    return controller


def of_service_ranges(ranges: ServiceRanges) -> Controller[str]:
    controller = Controller[str](
        "service-ranges", ranges.reconcile, queue=WorkQueue(cap=SLOWEST), workers=1
    )
    controller.queue.add(ServiceRanges.KEY)
    return controller


def of_pending(pending: PendingLoadBalancers) -> Controller[str]:
    """Nothing is asked while nothing is waited for."""
    controller = Controller[str](
        "pending-load-balancers", pending.reconcile, queue=WorkQueue(cap=SLOWEST), workers=1
    )
    pending.wake_later = controller.queue.add_after
    return controller
