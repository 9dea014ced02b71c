"""What the providers cannot do: their drivers refuse it with 501."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

from . import errors

Json = dict[str, Any]
PROVIDERS = {"amphora": "no-op backends", "ovn": "OVN L4"}
_OVN_PROTOCOLS = ("TCP", "UDP", "SCTP")
_OVN_MONITORS = ("UDP-CONNECT", "TCP")
_ALGORITHMS = {
    "ovn": ("SOURCE_IP_PORT", "SOURCE_IP"),
    "amphora": ("ROUND_ROBIN", "SOURCE_IP", "LEAST_CONNECTIONS"),
}
_MIXED = (
    "OVN provider does not support mixing IPv4/IPv6 configuration within the same Load Balancer."
)


def check_listener(provider: str, listener: Json) -> None:
    """Refuse a listener, or the changes of one."""
    if provider != "ovn":
        return
    _check_protocol(listener)
    if listener.get("allowed_cidrs"):
        raise errors.unsupported("ovn", "OVN provider does not support allowed_cidrs option")


def check_pool(provider: str, pool: Json) -> None:
    """Refuse a pool, or the changes of one."""
    if provider == "ovn":
        _check_protocol(pool)
    algorithm = pool.get("lb_algorithm")
    if algorithm is not None and algorithm not in _ALGORITHMS[provider]:
        title = "OVN" if provider == "ovn" else "Amphora"
        text = f"{title} provider does not support {algorithm} algorithm"
        raise errors.unsupported(provider, text)


def check_monitor(provider: str, monitor: Json) -> None:
    """Refuse a health monitor."""
    if provider == "ovn" and monitor["type"] not in _OVN_MONITORS:
        text = (
            f"OVN provider does not support {monitor['type']} health monitor type. Supported"
            f" types: {', '.join(_OVN_MONITORS)}"
        )
        raise errors.unsupported("ovn", text)


def check_populated(provider: str, listeners: list[Json], pools: list[Json]) -> None:
    """Refuse what stands in a load balancer's body: amphora does not look at it."""
    if provider != "ovn":
        return
    for listener in listeners:
        check_listener(provider, listener)
    for pool in pools:
        check_pool(provider, pool)
        if monitor := pool.get("healthmonitor"):
            check_monitor(provider, monitor)


def check_members(load_balancer: Json, subnet: Json | None, members: list[Json]) -> None:
    """Refuse the members of a batch; the subnet is the VIP's."""
    if load_balancer["provider"] != "ovn":
        return
    for member in members:
        address = ip_address(member["address"])
        if address.version != ip_address(load_balancer["vip_address"]).version:
            raise errors.unsupported("ovn", _MIXED)
        near = subnet is not None and address in ip_network(subnet["cidr"])
        if member.get("subnet_id") is None and not near:
            text = (
                "Subnet is required, or Loadbalancer associated with Pool must have a subnet, for"
                " Member batch update with OVN Provider Driver if it is not the same as LB VIP"
                " subnet"
            )
            raise errors.unsupported("ovn", text)


def _check_protocol(part: Json) -> None:
    if part.get("protocol", "TCP") not in _OVN_PROTOCOLS:
        text = f"OVN provider does not support {part['protocol']} protocol"
        raise errors.unsupported("ovn", text)
