"""The annotations that tell what port a Pod has whose annotations name its network. Pure.

They are for users and other tools: nothing reads them here but to see whether they are right.
"""

from kuryr_k8s.model.vif import VIFBase

_PREFIX = "openstack.org/"
ALLOCATED = f"{_PREFIX}allocated"
PORT_ID, PORT_MAC = f"{_PREFIX}port_id", f"{_PREFIX}port_mac"
PORT_IP = f"{_PREFIX}port_ip"
PORT_CIDR, PORT_GATEWAY = f"{_PREFIX}port_cidr", f"{_PREFIX}port_gateway"
PORT_FLOATING_IP = f"{_PREFIX}port_floating_ip"  # of Pods that ask for one
ALL = (ALLOCATED, PORT_ID, PORT_MAC, PORT_IP, PORT_CIDR, PORT_GATEWAY)


def allocation(vif: VIFBase) -> dict[str, str]:
    """Return the annotations for a default interface.

    Addresses, the CIDRs of their subnets and the gateways of these are in one order, with a comma
    between them; a subnet without a gateway is left out of the last.
    """
    subnets = [subnet for subnet in (vif.network.subnets if vif.network else ()) if subnet.ips]
    return {
        ALLOCATED: "true",
        PORT_ID: vif.id,
        PORT_MAC: vif.address or "",
        PORT_IP: ",".join(vif.ips),
        PORT_CIDR: ",".join(subnet.cidr for subnet in subnets),
        PORT_GATEWAY: ",".join(subnet.gateway for subnet in subnets if subnet.gateway),
    }
