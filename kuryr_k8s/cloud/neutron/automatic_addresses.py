"""Addresses that Neutron gives to a port without being asked."""

import ipaddress
from typing import Any

Json = dict[str, Any]


def asked_subnet_ids_of(port: Json) -> tuple[str, ...]:
    """Return the ids of the subnets whose addresses somebody asked for, sorted.

    All others are automatic. Neutron lets a port have no other address in such a subnet than the
    one that follows from its MAC, and asks nobody (``AllocationOnAutoAddressSubnet``).
    """
    mac = port["mac_address"]
    asked = [ip for ip in port["fixed_ips"] if not _is_eui64(ip["ip_address"], mac)]
    return tuple(sorted({ip["subnet_id"] for ip in asked}))


def _is_eui64(address: str, mac: str) -> bool:
    """Return whether the address was made from the MAC (RFC 4291, appendix A)."""
    octets = bytes.fromhex(mac.replace(":", ""))
    interface = bytes((octets[0] ^ 0b10, *octets[1:3], 0xFF, 0xFE, *octets[3:]))
    return ipaddress.ip_address(address).packed[8:] == interface
