"""Addresses of a subnet: handed out lowest first, so that freed ones come back at once.

The real allocator takes a random one of the free addresses; the lowest is within what it may do
and the least convenient for a client that trusts an address to stay with its MAC.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from itertools import chain
from typing import Any

from .errors import invalid_input

Address = IPv4Address | IPv6Address
INTERFACE = "network:router_interface"  # owner of the ports without automatic addresses


def is_automatic(subnet: dict[str, Any]) -> bool:
    """Whether every port of the network has an address of the subnet, made from its MAC."""
    modes = {subnet["ipv6_address_mode"], subnet["ipv6_ra_mode"]}
    return not modes.isdisjoint(("slaac", "dhcpv6-stateless"))


def eui64_address(cidr: str, mac: str) -> str:
    """The address that a MAC has in a subnet (RFC 4291, appendix A)."""
    octets = bytes.fromhex(mac.replace(":", ""))
    interface = bytes((octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:]))
    return str(ip_network(cidr)[int.from_bytes(interface, "big")])


class Exhausted(Exception):
    """No address is left."""


class Taken(Exception):
    """The address asked for has an owner."""


class Allocator:
    """Which addresses of one subnet are used."""

    def __init__(self, pools: list[dict[str, str]]) -> None:
        self.used: set[Address] = set()
        self._fresh = chain.from_iterable(_addresses(pool) for pool in pools)
        self._freed: list[Address] = []
        self._bounds = [(ip_address(p["start"]), ip_address(p["end"])) for p in pools]

    def take_any(self) -> str:
        """The lowest free address of the pools."""
        while self._freed:
            address = heapq.heappop(self._freed)
            if address not in self.used:
                self.used.add(address)
                return str(address)
        for address in self._fresh:
            if address not in self.used:
                self.used.add(address)
                return str(address)
        raise Exhausted

    def take(self, text: str) -> str:
        """This very address, inside the pools or not."""
        address = ip_address(text)
        if address in self.used:
            raise Taken(text)
        self.used.add(address)
        return str(address)

    def free(self, text: str) -> None:
        """Give an address back."""
        address = ip_address(text)
        self.used.discard(address)
        if any(_inside(address, *bounds) for bounds in self._bounds):
            heapq.heappush(self._freed, address)


def default_gateway(cidr: str) -> str:
    """The address that Neutron gives the router: the first of the network."""
    network = ip_network(cidr)
    first = int(network.network_address)
    return str(ip_address(first) if network.version == 6 else network.network_address + 1)


def default_pools(cidr: str, gateway: str | None) -> list[dict[str, str]]:
    """All addresses of hosts, in two ranges where the gateway is among them."""
    network = ip_network(cidr)
    first, last = network.network_address + 1, network.broadcast_address
    if network.version == 4:
        last -= 1
    ranges = [(first, last)]
    if gateway is not None:
        at = ip_address(gateway)
        ranges = [(first, min(last, at - 1)), (max(first, at + 1), last)]
        if at < first:
            ranges = [(first, last)]
    return [{"start": str(a), "end": str(b)} for a, b in ranges if a <= b]


def check_inside(cidr: str, address: str) -> bool:
    """Whether the address is one of the subnet's for a host."""
    network, asked = ip_network(cidr), ip_address(address)
    edges = {network.network_address}
    if network.version == 4:
        edges.add(network.broadcast_address)
    return asked in network and asked not in edges


def parse_cidr(text: Any) -> str:
    """The CIDR as Neutron writes it."""
    try:
        return str(ip_network(text))
    except (TypeError, ValueError):
        raise invalid_input(f"'{text}' is not a valid CIDR") from None


def _addresses(pool: dict[str, str]) -> Iterator[Address]:
    address, last = ip_address(pool["start"]), ip_address(pool["end"])
    while _inside(address, address, last):
        yield address
        address += 1


def _inside(address: Address, first: Address, last: Address) -> bool:
    return int(first) <= int(address) <= int(last)
