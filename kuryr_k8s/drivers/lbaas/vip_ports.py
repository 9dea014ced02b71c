"""VIPs' ports that load balancers have left behind: they hold ClusterIPs that others may need.

Octavia makes the port first. Where it refuses the rest of the creation, the load balancer is gone
and its port stays, without any mark of ours: only by ``device_id`` it tells of which load balancer
it is. Such a port goes where Octavia itself says (404; those of others are 403) that there is no
such load balancer, in two searches in a row. A creation that is under way looks the same, and is
over by the second one. What is made as a VIP's port otherwise, for another cluster or by hand, has
its load balancer, or no such ``device_id`` and name; and what is not in a subnet of Services, of a
project of ours, is not looked at.
"""

import logging
from typing import Any

from kuryr_k8s.drivers.base import DriverContext, ServiceSubnetsDriver
from kuryr_k8s.drivers.lbaas.leftovers import NAMES, is_gone, load_balancer_of
from kuryr_k8s.drivers.policy import granted
from kuryr_k8s.engine.sweep import Sweep

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
FIELDS = ("id", "name", "device_id", "device_owner", "project_id", "fixed_ips", "revision_number")


class VIPPortSweep(Sweep[Json]):
    """Of the projects that load balancers are made in; also after a creation was refused."""

    def __init__(self, context: DriverContext) -> None:
        defaults = context.conf.neutron_defaults
        super().__init__(
            "vip-port-sweeper",
            interval=defaults.sweep_interval,
            retry=context.patience.sweep_retry,
            confirm_after=context.patience.vip_port_confirmed,
            clock=context.clock,
            observe=context.observe,
        )
        self._neutron = context.neutron
        self._octavia = context.octavia
        self._subnets = context.drivers[ServiceSubnetsDriver]
        self._projects = tuple(sorted(granted.projects(context.conf)))

    def identity(self, item: Json) -> str:
        """Return the port's id."""
        return str(item["id"])

    async def search(self) -> list[Json]:
        """Return the VIPs' ports in subnets of Services whose load balancer is gone."""
        subnets = await self._subnets.all_subnets()
        if not subnets:
            return []
        query = {
            "network_id": sorted({one.network_id for one in subnets}),
            "project_id": self._projects,
            "device_owner": tuple(NAMES),
            "fields": FIELDS,
        }
        within = {one.id for one in subnets}
        ports = [
            port
            for port in await self._neutron.list_ports(query)
            if load_balancer_of(port) and within & {one["subnet_id"] for one in port["fixed_ips"]}
        ]
        known: set[str] = set()
        for project in {port["project_id"] for port in ports}:
            known |= (await self._octavia.statuses({"project_id": project})).keys()
        unknown = [port for port in ports if load_balancer_of(port) not in known]
        return [port for port in unknown if await is_gone(self._octavia, load_balancer_of(port))]

    async def remove(self, item: Json) -> None:
        """Delete the port, unless somebody has changed it."""
        LOG.warning(
            "port %s (%s, %s) is of no load balancer; it goes",
            item["id"],
            item["name"],
            ", ".join(ip["ip_address"] for ip in item["fixed_ips"]),
        )
        await self._neutron.delete_port(item["id"], revision_number=item["revision_number"])
