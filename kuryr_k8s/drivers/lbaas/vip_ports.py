"""Ports of VIPs that load balancers leave behind: they hold addresses that others may need.

Octavia creates the port first. Where it (quota) or the provider (501) then refuses the rest of the
creation, the load balancer is gone and its port stays, without any mark of ours: only its
``device_id`` names the load balancer. Whatever is asked for next would be told that the address is
taken. So the port is removed at once where its address is known, and by a sweep elsewhere.
"""

import contextlib
import logging
import re
from collections.abc import Mapping
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.drivers.base import DriverContext, ServiceSubnetsDriver, granted
from kuryr_k8s.engine.sweep import Sweep
from kuryr_k8s.model.load_balancer import LoadBalancer

LOG = logging.getLogger(__name__)
Json = dict[str, Any]
NAMES = {"ovn-lb:vip": "ovn-lb-vip-", "Octavia": "octavia-lb-"}  # by device_owner
# With ovn each additional VIP has a port; with amphora they are addresses of the VIP's port.
ADDITIONAL = re.compile(r"(?<=^ovn-lb-vip-)additional-[0-9]+-")
DEVICE = "lb-"
FIELDS = ("id", "name", "device_id", "device_owner", "project_id", "fixed_ips", "revision_number")


class VIPPortSweep(Sweep[Json]):
    """Sweep of VIPs' ports that load balancers have left, also after a creation was refused.

    A port goes where Octavia itself says (404; another project's are answered 403) that its load
    balancer does not exist, in two searches in a row. A creation that is under way looks the same,
    and has ended by the second one. VIPs' ports that were made for another cluster or by hand have
    their load balancer, or another ``device_id`` and name. Ports outside of our projects are not
    looked at, nor those outside of the networks of Services and of load balancers that Octavia has
    refused.
    """

    def __init__(self, context: DriverContext) -> None:
        super().__init__(
            "vip-port-sweeper",
            interval=context.conf.neutron_defaults.sweep_interval,
            patience=context.patience,
            confirm_after=context.patience.vip_port_confirmed,
            clock=context.clock,
            observe=context.observe,
        )
        self._neutron = context.neutron
        self._octavia = context.octavia
        self._subnets = context.drivers[ServiceSubnetsDriver]
        self._projects = tuple(sorted(granted.projects(context.conf)))
        self._refused: set[str] = set()  # ids of subnets of VIPs

    def identity(self, item: Json) -> str:
        """Return the port's id."""
        return str(item["id"])

    async def search(self) -> list[Json]:
        """Return the VIPs' ports in those networks whose load balancer does not exist.

        Additional VIPs are in other subnets of the same networks.
        """
        networks = await self._networks()
        if not networks:
            return []
        query = {
            "network_id": sorted(networks),
            "project_id": self._projects,
            "device_owner": tuple(NAMES),
            "fields": FIELDS,
        }
        ports = [port for port in await self._neutron.list_ports(query) if load_balancer_of(port)]
        known: set[str] = set()
        for project in {port["project_id"] for port in ports}:
            known |= (await self._octavia.statuses({"project_id": project})).keys()
        unknown = [port for port in ports if load_balancer_of(port) not in known]
        return [port for port in unknown if await is_gone(self._octavia, load_balancer_of(port))]

    async def _networks(self) -> set[str]:
        """Return the ids of the networks where VIPs' ports may have been left."""
        networks = {subnet.network_id for subnet in await self._subnets.all_subnets()}
        for subnet_id in sorted(self._refused):
            try:
                networks.add((await self._neutron.get_subnet(subnet_id)).network_id)
            except errors.NotFound:
                self._refused.discard(subnet_id)
        return networks

    async def remove(self, item: Json) -> None:
        """Delete the port, unless somebody has changed it."""
        LOG.warning(
            "port %s (%s, %s) belongs to no load balancer; it goes",
            item["id"],
            item["name"],
            ", ".join(ip["ip_address"] for ip in item["fixed_ips"]),
        )
        with contextlib.suppress(errors.Conflict):  # changed since: the next search decides
            await self._neutron.delete_vip_port(
                item["id"], revision_number=item["revision_number"]
            )

    async def remove_left_by(self, refused: LoadBalancer) -> None:
        """Delete the port with the VIP's address, if its load balancer does not exist.

        The sweep looks at the VIP's network as well from now on.

        :raises errors.CloudError: Neutron or Octavia does not answer.
        """
        if refused.vip_subnet_id is not None:
            self._refused.add(refused.vip_subnet_id)
        if refused.vip_address is None or refused.vip_port_id is not None:
            return
        query = {
            "fixed_ips": f"ip_address={refused.vip_address}",
            "project_id": refused.project_id,
            "device_owner": tuple(NAMES),
            "fields": FIELDS,
        }
        for port in await self._neutron.list_ports(query):
            load_balancer_id = load_balancer_of(port)
            if load_balancer_id and await is_gone(self._octavia, load_balancer_id):
                revision = port["revision_number"]
                await self._neutron.delete_vip_port(port["id"], revision_number=revision)


async def is_gone(octavia: Octavia, load_balancer_id: str) -> bool:
    """Return whether Octavia itself says that there is no such load balancer.

    A list may leave one out.
    """
    try:
        await octavia.status_tree(load_balancer_id)
    except errors.NotFound:
        return True
    except errors.BadRequest:  # another project's
        return False
    return False


def load_balancer_of(port: Mapping[str, Any]) -> str:
    """Return the id of the load balancer for whose VIP the port was created; empty if none."""
    device_id, owner = str(port["device_id"]), str(port["device_owner"])
    load_balancer_id = device_id.removeprefix(DEVICE)
    is_vip = device_id.startswith(DEVICE) and owner in NAMES
    name = ADDITIONAL.sub("", port["name"], count=1)
    return load_balancer_id if is_vip and name == NAMES[owner] + load_balancer_id else ""


def is_vip_port(port: Mapping[str, Any]) -> bool:
    """Return whether Octavia has, or had, the port for a VIP."""
    return port["device_owner"] in NAMES or (
        not port["device_owner"] and str(port["device_id"]).startswith(DEVICE)
    )
