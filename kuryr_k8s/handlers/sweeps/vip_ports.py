"""VIPs' ports that load balancers have left behind: they hold ClusterIPs that others may need.

Octavia makes the port first. Where it refuses the rest of the creation, the load balancer is gone
and its port stays, without any mark of ours: only by ``device_id`` it tells of which load balancer
it is. Such a port goes where Octavia itself says (404; those of others are 403) that there is no
such load balancer, in two searches in a row. A creation that is under way looks the same, and is
over by the second one. What is made as a VIP's port otherwise, for another cluster or by hand, has
its load balancer, or no such ``device_id`` and name; and what is not in a subnet of Services, of a
project of ours, is not looked at.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from kuryr_k8s.cloud.neutron.api import Neutron, Subnet
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.drivers.lbaas.leftovers import NAMES, is_gone, load_balancer_of

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
FIELDS = ("id", "name", "device_id", "device_owner", "project_id", "fixed_ips", "revision_number")
CONFIRMED = 60.0  # seconds after which a port that was found is looked at again, at most


class VIPPortSweeper:
    """Searches at its start, then every ``interval`` seconds: a Controller runs it, which is also
    woken when a creation was refused.

    :param subnets: those of Services.
    :param projects: those that load balancers are made in.
    """

    KEY = "VIP ports"

    def __init__(
        self,
        neutron: Neutron,
        octavia: Octavia,
        subnets: Callable[[], Awaitable[tuple[Subnet, ...]]],
        projects: Collection[str],
        interval: float,
    ) -> None:
        self._neutron = neutron
        self._octavia = octavia
        self._subnets = subnets
        self._projects = tuple(projects)
        self._interval = interval
        self._again = min(interval, CONFIRMED)
        self._suspects: dict[str, float] = {}  # ports, and when each was first found

    async def reconcile(self, _key: str) -> float:
        """One search; seconds until the next."""
        now = asyncio.get_running_loop().time()
        orphans = await self._search()
        self._suspects = {one["id"]: self._suspects.get(one["id"], now) for one in orphans}
        for port in orphans:
            if now - self._suspects[port["id"]] >= self._again:
                await self._remove(port)
                del self._suspects[port["id"]]
        return self._again if self._suspects else self._interval

    async def _search(self) -> list[Json]:
        subnets = await self._subnets()
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

    async def _remove(self, port: Json) -> None:
        LOG.warning(
            "port %s (%s, %s) is of no load balancer; it goes",
            port["id"],
            port["name"],
            ", ".join(one["ip_address"] for one in port["fixed_ips"]),
        )
        await self._neutron.delete_port(port["id"], revision_number=port["revision_number"])
