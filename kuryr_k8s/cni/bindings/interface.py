"""An interface of a Pod as its VIF wants it, without I/O."""

import ipaddress
from collections.abc import Iterator

from kuryr_k8s.cni import netlink, result
from kuryr_k8s.cni.bindings.base import Attachment
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.vif import EVERYWHERE, Subnet, VIFBase


def wiring(attachment: Attachment, vif: VIFBase, *, offload: bool) -> netlink.Wiring:
    """Return the Pod's end of the interface.

    :param offload: as in :class:`~kuryr_k8s.cni.netlink.Wiring`.
    """
    return netlink.Wiring(
        ifname=attachment.ifname,
        mac=vif.address or "",
        mtu=vif.network.mtu if vif.network else None,
        addresses=tuple(address for address, _ in addresses(vif)),
        routes=tuple(
            netlink.Route(destination=destination, gateway=gateway)
            for destination, gateway in routes(attachment, vif)
        ),
        offload=offload,
    )


def describe(
    attachment: Attachment, vif: VIFBase, host: str, host_mac: str, *, pci_id: str = ""
) -> result.Result:
    """Return the result of an ADD: the node's end, then the Pod's; name servers of eth0 alone.

    :param pci_id: the PCI address of the device that is the Pod's end.
    """
    mtu = vif.network.mtu if vif.network else None
    subnets = _subnets(vif) if attachment.ifname == DEFAULT_IFNAME else ()
    return result.Result(
        interfaces=(
            result.Interface(name=host, mac=host_mac, mtu=mtu),
            result.Interface(
                name=attachment.ifname,
                mac=vif.address or "",
                mtu=mtu,
                sandbox=attachment.netns,
                pci_id=pci_id,
            ),
        ),
        ips=tuple(
            result.IP(address=address, interface=1, gateway=gateway)
            for address, gateway in addresses(vif)
        ),
        routes=tuple(
            result.Route(destination=destination, gateway=gateway)
            for destination, gateway in routes(attachment, vif)
        ),
        nameservers=tuple(name for subnet in subnets for name in subnet.dns),
    )


def addresses(vif: VIFBase) -> Iterator[tuple[str, str | None]]:
    """Generate each address as a CIDR, with its subnet's gateway."""
    for subnet in _subnets(vif):
        prefix = ipaddress.ip_network(subnet.cidr).prefixlen
        for ip in subnet.ips:
            yield f"{ipaddress.ip_address(ip.address)}/{prefix}", subnet.gateway


def routes(attachment: Attachment, vif: VIFBase) -> Iterator[tuple[str, str]]:
    """Generate the routes as (destination, gateway).

    These are the subnets' host routes and, for eth0 alone, one default route for each family.
    """
    missing = dict(EVERYWHERE) if attachment.ifname == DEFAULT_IFNAME else {}
    for subnet in _subnets(vif):
        for route in subnet.routes:
            if route.gateway:
                yield route.cidr, route.gateway
        version = ipaddress.ip_network(subnet.cidr).version
        if subnet.gateway and subnet.ips and version in missing:
            yield missing.pop(version), subnet.gateway


def missing(attachment: Attachment, vif: VIFBase, seen: netlink.Observed | None) -> str:
    """Describe for users what the Pod's end lacks; empty if nothing."""
    if seen is None:
        return f"interface {attachment.ifname} is missing in the Pod"
    if not seen.up:
        return f"interface {attachment.ifname} is down"
    lacking = {address for address, _ in addresses(vif)} - seen.addresses
    return f"{attachment.ifname} lacks {', '.join(sorted(lacking))}" if lacking else ""


def _subnets(vif: VIFBase) -> tuple[Subnet, ...]:
    return vif.network.subnets if vif.network else ()
