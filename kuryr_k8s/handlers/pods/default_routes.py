"""The default routes of a Pod: which of its interfaces they lead through. Pure.

The node gives ``eth0`` the default routes of its subnets' gateways. Where another interface is to
have them, the VIFs say so: that one has a host route to everywhere, and ``eth0`` no gateway.
"""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import replace

from kuryr_k8s import errors
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.vif import Route, Subnet, VIFBase

EVERYWHERE = {4: "0.0.0.0/0", 6: "::/0"}


def led_through(
    vifs: Mapping[str, VIFBase], ifname: str, gateways: tuple[str, ...]
) -> dict[str, VIFBase]:
    """Return the VIFs with the default routes of an interface.

    :param gateways: empty: those of its subnets. Address families without one stay as they are.
    :raises errors.Refused: a gateway is in none of its subnets.
    """
    vif = vifs[ifname]
    by_version: dict[int, str] = {}
    for subnet in _subnets(vif):
        network = ipaddress.ip_network(subnet.cidr)
        inside = (each for each in gateways if ipaddress.ip_address(each) in network)
        gateway = next(inside, None) if gateways else subnet.gateway
        if gateway is not None:
            by_version[network.version] = gateway
    missing = set(gateways) - set(by_version.values())
    if missing:
        raise errors.Refused(
            f"interface {ifname}: default-route {', '.join(sorted(missing))} is in none of its "
            "subnets"
        )
    if ifname == DEFAULT_IFNAME:
        return {**vifs, ifname: _with_gateways(vif, by_version)}
    without = _with_gateways(vifs[DEFAULT_IFNAME], dict.fromkeys(by_version))
    return {**vifs, DEFAULT_IFNAME: without, ifname: _with_routes(vif, by_version)}


def _with_gateways(vif: VIFBase, gateways: Mapping[int, str | None]) -> VIFBase:
    """Return the VIF with other gateways of some address families."""

    def change(subnet: Subnet) -> Subnet:
        version = _version(subnet)
        return replace(subnet, gateway=gateways[version]) if version in gateways else subnet

    return _with(vif, change)


def _with_routes(vif: VIFBase, gateways: Mapping[int, str]) -> VIFBase:
    """Return the VIF with routes to everywhere."""

    def change(subnet: Subnet) -> Subnet:
        version = _version(subnet)
        if version not in gateways:
            return subnet
        route = Route(cidr=EVERYWHERE[version], gateway=gateways[version])
        return replace(subnet, routes=(*subnet.routes, route))

    return _with(vif, change)


def _with(vif: VIFBase, change: Callable[[Subnet], Subnet]) -> VIFBase:
    if vif.network is None:
        return vif
    subnets = tuple(map(change, vif.network.subnets))
    return replace(vif, network=replace(vif.network, subnets=subnets))


def _subnets(vif: VIFBase) -> tuple[Subnet, ...]:
    return vif.network.subnets if vif.network is not None else ()


def _version(subnet: Subnet) -> int:
    return ipaddress.ip_network(subnet.cidr).version
