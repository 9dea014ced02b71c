"""The default routes of a Pod, by the interface that they lead through. Pure.

The node gives ``eth0`` the default routes of its subnets' gateways. Where another interface is to
have them, the VIFs say so: that one has a host route to everywhere, and ``eth0`` no gateway. Host
routes of subnets to everywhere are kept for ``eth0`` alone.
"""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import replace

from kuryr_k8s.drivers.base import InterfaceRequest
from kuryr_k8s.model.kuryrport import DEFAULT_IFNAME
from kuryr_k8s.model.vif import EVERYWHERE, Route, Subnet, VIFBase


def routed(
    vifs: Mapping[str, VIFBase], requests: Mapping[str, InterfaceRequest]
) -> dict[str, VIFBase]:
    """Return the VIFs with default routes through one interface for each address family."""
    settled = {
        ifname: vif if ifname == DEFAULT_IFNAME else _with(vif, _without_default_route)
        for ifname, vif in vifs.items()
    }
    for ifname, request in requests.items():
        if request.gateways is not None:
            return _led_through(settled, ifname, request.gateways)
    return settled


def _led_through(
    vifs: Mapping[str, VIFBase], ifname: str, gateways: tuple[str, ...]
) -> dict[str, VIFBase]:
    """Return the VIFs with the default routes of an interface.

    :param gateways: empty: those of its subnets. Address families without one stay as they are.
    """
    vif = vifs[ifname]
    by_version: dict[int, str] = {}
    for subnet in _subnets(vif):
        network = ipaddress.ip_network(subnet.cidr)
        inside = (each for each in gateways if ipaddress.ip_address(each) in network)
        gateway = next(inside, None) if gateways else subnet.gateway
        if gateway is not None:
            by_version[network.version] = gateway
    if ifname == DEFAULT_IFNAME:
        return {**vifs, ifname: _with_gateways(vif, by_version)}
    led = {**vifs, ifname: _with_routes(vif, by_version)}
    if DEFAULT_IFNAME in vifs:  # or it is another plugin's
        led[DEFAULT_IFNAME] = _with_gateways(vifs[DEFAULT_IFNAME], dict.fromkeys(by_version))
    return led


def _without_default_route(subnet: Subnet) -> Subnet:
    routes = tuple(route for route in subnet.routes if route.cidr not in EVERYWHERE.values())
    return replace(subnet, routes=routes)


def _with_gateways(vif: VIFBase, gateways: Mapping[int, str | None]) -> VIFBase:
    """Return the VIF with other gateways of some address families."""

    def change(subnet: Subnet) -> Subnet:
        version = _version(subnet)
        if version not in gateways:
            return subnet
        return replace(_without_default_route(subnet), gateway=gateways[version])

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
