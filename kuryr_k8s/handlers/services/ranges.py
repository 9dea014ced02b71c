"""Check that ClusterIPs can be addresses of load balancers.

Each range that the API server takes them from has to be part of a subnet of Services, whose
gateway and allocation pools are outside of it. Kubernetes 1.33 shows its ranges as ServiceCIDRs.
Of an older version only the first address is known, that of ``default/kubernetes``.
"""

import ipaddress
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Subnet
from kuryr_k8s.drivers.base import ServiceSubnetsDriver
from kuryr_k8s.engine.controller import Controller
from kuryr_k8s.engine.workqueue import WorkQueue
from kuryr_k8s.handlers.base import HandlerContext
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import SERVICECIDRS, SERVICES, Key, Resource

LOG = logging.getLogger(__name__)
OF_THE_SERVER = "kubernetes"  # the ServiceCIDR that stands for --service-cluster-ip-range
API_SERVER = Key("default", "kubernetes")  # its Service has the first address of the range
UNFIT = "KuryrServiceRangeUnfit"


class ServiceRange(NamedTuple):
    """A range of ClusterIPs.

    :param about: the object that shows it.
    """

    cidr: str
    about: Reference

    @property
    def added(self) -> bool:
        """Return whether somebody added it to the ranges that the API server was started with."""
        return self.about.resource == SERVICECIDRS and self.about.name != OF_THE_SERVER


class ServiceRanges:
    """Checks before the work begins, and then by ``loop`` every ``interval`` seconds.

    Ranges that are added later, and subnets that are changed, are reported by the log and an
    Event: Pods need not suffer from them, so nothing stops.
    """

    KEY = "ranges of ClusterIPs"

    def __init__(self, context: HandlerContext) -> None:
        self._kube = context.kube
        self._neutron = context.neutron
        self._events = context.events
        self._subnets = context.drivers[ServiceSubnetsDriver]
        self._interval: float = context.conf.neutron_defaults.sweep_interval
        self.loop = Controller[str](
            "service-ranges",
            self.reconcile,
            queue=WorkQueue(context.clock, cap=context.patience.sweep_retry),
            workers=1,
            observe=context.observe,
            patience=context.patience,
        )
        self.loop.queue.add(self.KEY)

    async def check(self) -> None:
        """Check the API server's own range.

        :raises errors.Refused: it is not fit.
        """
        for found, fault in await self._look():
            if fault is not None and not found.added:
                raise errors.Refused(fault)

    async def reconcile(self, _key: str) -> float:
        """Report ranges that are not fit; return the seconds until the next look."""
        for found, fault in await self._look():
            source = f"{UNFIT} {found.cidr}"  # an object may show two ranges
            if fault is None:
                self._events.well(source, found.about)
            else:
                LOG.warning("%s %s: %s", found.about.resource.kind, found.about.name, fault)
                await self._events.warn(source, found.about, UNFIT, fault)
        return self._interval

    async def _look(self) -> list[tuple[ServiceRange, str | None]]:
        subnets = await self._subnets.all_subnets()
        if not subnets:
            return []  # the driver alone knows
        ranges = await self._ranges()
        if any(fault_of(each.cidr, subnets) for each in ranges):
            # what the driver remembers may have been mended meanwhile
            subnets = tuple([await self._neutron.get_subnet(subnet.id) for subnet in subnets])
        return [(each, fault_of(each.cidr, subnets)) for each in ranges]

    async def _ranges(self) -> list[ServiceRange]:
        try:
            pages = self._kube.list_pages(SERVICECIDRS, {})
            shown = [item async for items, _version in pages for item in items]
        except errors.KubeNotFound:
            shown = []
        if shown:
            return [
                ServiceRange(cidr, _reference(SERVICECIDRS, item))
                for item in shown
                for cidr in item["spec"].get("cidrs", ())
            ]
        service = await self._kube.find(SERVICES, API_SERVER)
        if service is None:
            return []
        addresses = service["spec"].get("clusterIPs", ())
        return [ServiceRange(address, _reference(SERVICES, service)) for address in addresses]


def _reference(resource: Resource[Any], shown: dict[str, Any]) -> Reference:
    meta = shown["metadata"]
    return Reference(
        resource=resource,
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        uid=meta["uid"],
    )


def fault_of(cidr: str, subnets: Sequence[Subnet]) -> str | None:
    """Return what is wrong with a range of ClusterIPs, and what to change.

    :param cidr: a range, or one address.
    :returns: None if nothing is wrong.
    """
    ips = ipaddress.ip_network(cidr)
    subnet = next((each for each in subnets if _contains(each, ips)), None)
    if subnet is None:
        cidrs = ", ".join(each.cidr for each in subnets)
        return (
            f"[neutron_defaults] service_subnet: ClusterIPs are of {cidr}, which is part of none "
            f"of its subnets ({cidrs}): name a larger one, or change --service-cluster-ip-range"
        )
    if subnet.gateway_ip is not None and ipaddress.ip_address(subnet.gateway_ip) in ips:
        return (
            f"[neutron_defaults] service_subnet: the gateway {subnet.gateway_ip} of subnet "
            f"{subnet.id} ({subnet.cidr}) is one of the ClusterIPs ({cidr}): make a subnet with "
            "its gateway outside of them"
        )
    for first, last in subnet.allocation_pools:
        if _number(first) <= _number(ips[-1]) and _number(ips[0]) <= _number(last):
            return (
                f"[neutron_defaults] service_subnet: Neutron gives addresses of {first} to {last} "
                f"in subnet {subnet.id} ({subnet.cidr}) to ports of its own choice, and some are "
                f"ClusterIPs ({cidr}): set its allocation pools outside of them"
            )
    return None


def _contains(subnet: Subnet, ips: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    whole = ipaddress.ip_network(subnet.cidr)
    if isinstance(whole, ipaddress.IPv4Network):
        return isinstance(ips, ipaddress.IPv4Network) and ips.subnet_of(whole)
    return isinstance(ips, ipaddress.IPv6Network) and ips.subnet_of(whole)


def _number(address: str | ipaddress.IPv4Address | ipaddress.IPv6Address) -> int:
    return int(ipaddress.ip_address(address))
