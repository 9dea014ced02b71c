"""Announcements of addresses on a device's network: `announce.py DEVICE ADDRESS...`.

A gratuitous ARP or an unsolicited neighbour advertisement for each, three times in two seconds.
OVN binds a VIP's port by them; nothing in the kernel sends them for addresses that are moved.
Standard library only: it is run by its path, in the amphora's namespace.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
import time

_BROADCAST, _ALL_NODES_MAC = b"\xff" * 6, b"\x33\x33\x00\x00\x00\x01"
_ALL_NODES = ipaddress.IPv6Address("ff02::1").packed
_PAUSES = (0.0, 0.3, 2.0)  # seconds before each round


def frame(mac: bytes, address: str) -> bytes:
    """Build the Ethernet frame that announces that this MAC has the address."""
    packed = ipaddress.ip_address(address).packed
    if len(packed) == 4:
        request = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1)
        return _BROADCAST + mac + b"\x08\x06" + request + mac + packed + bytes(6) + packed
    # override flag; option 2: the target's link layer address
    body = struct.pack("!BBHI", 136, 0, 0, 0x20000000) + packed + b"\x02\x01" + mac
    pseudo = packed + _ALL_NODES + struct.pack("!II", len(body), 58)
    body = body[:2] + struct.pack("!H", _checksum(pseudo + body)) + body[4:]
    header = struct.pack("!IHBB", 0x60000000, len(body), 58, 255)
    return _ALL_NODES_MAC + mac + b"\x86\xdd" + header + packed + _ALL_NODES + body


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def main() -> None:
    """Announce the addresses of the command line, three times."""
    device, *addresses = sys.argv[1:]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((device, 0))
        mac = raw.getsockname()[4]
        for pause in _PAUSES:
            time.sleep(pause)
            for address in addresses:
                raw.send(frame(mac, address))


if __name__ == "__main__":
    main()
