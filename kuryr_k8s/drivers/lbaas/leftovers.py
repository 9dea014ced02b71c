"""The VIP's port that a refused creation leaves behind: it holds the address that is asked for.

Octavia makes the port first. Where it (quota) or the provider (501) then refuses what is to be in
the load balancer, that is gone and its port stays: whatever is asked for next, without what was
refused, would be told that the address is taken. The port tells by its ``device_id`` of which load
balancer it is, and nothing else of it is ours.
"""

from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.cloud.octavia.api import Octavia
from kuryr_k8s.model.load_balancer import LoadBalancer

Json = dict[str, Any]
NAMES = {"ovn-lb:vip": "ovn-lb-vip-", "Octavia": "octavia-lb-"}  # by device_owner
DEVICE = "lb-"
FIELDS = ("id", "name", "device_id", "device_owner", "revision_number")


class Leftovers:
    def __init__(self, neutron: Neutron, octavia: Octavia) -> None:
        self._neutron = neutron
        self._octavia = octavia

    async def remove(self, refused: LoadBalancer) -> None:
        """Delete the port with the address that it was to have, if it is of no load balancer.

        :raises errors.CloudError: Neutron or Octavia does not answer.
        """
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
                await self._neutron.delete_port(port["id"], revision_number=revision)


async def is_gone(octavia: Octavia, load_balancer_id: str) -> bool:
    """By Octavia's own word, and not by what a list leaves out."""
    try:
        await octavia.tree_statuses(load_balancer_id)
    except errors.NotFound:
        return True
    except errors.BadRequest:  # it is another project's
        return False
    return False


def load_balancer_of(port: Json) -> str:
    """Id of the load balancer whose VIP's port it was made as; empty: it is no such port."""
    device_id, owner = str(port["device_id"]), str(port["device_owner"])
    load_balancer_id = device_id.removeprefix(DEVICE)
    is_vip = device_id.startswith(DEVICE) and owner in NAMES
    return load_balancer_id if is_vip and port["name"] == NAMES[owner] + load_balancer_id else ""
