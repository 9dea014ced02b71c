"""Requests about one interface of the caller's namespace that need no netlink.

An ioctl costs microseconds, a netlink request with all attributes of an interface milliseconds.
"""

import fcntl
import socket
import struct
from array import array

# linux/sockios.h, linux/ethtool.h, linux/if.h
SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
SIOCGIFMTU = 0x8921
SIOCSIFMTU = 0x8922
SIOCGIFHWADDR = 0x8927
SIOCETHTOOL = 0x8946
ETHTOOL_STXCSUM = 0x17
UP = 0x1
LENGTH = 40  # sizeof(struct ifreq)


def mac(ifname: str) -> str:
    """Return the MAC of an interface.

    :raises OSError: there is no such interface.
    """
    answer = _ask(SIOCGIFHWADDR, struct.pack("16s24x", ifname.encode()))
    return answer[18:24].hex(":")  # after the name and sa_family


def set_mtu(ifname: str, mtu: int) -> None:
    """Set the MTU of an interface, in bytes, unless it has it already.

    :raises OSError: there is no such interface, or the kernel refuses.
    """
    (now,) = struct.unpack_from("i", _ask(SIOCGIFMTU, _request(ifname, 0)), 16)
    if now != mtu:
        _ask(SIOCSIFMTU, struct.pack("16si20x", ifname.encode(), mtu))


def set_up(ifname: str) -> None:
    """Set an interface up.

    :raises OSError: there is no such interface, or the kernel refuses.
    """
    (flags,) = struct.unpack_from("H", _ask(SIOCGIFFLAGS, _request(ifname, 0)), 16)
    if not flags & UP:
        _ask(SIOCSIFFLAGS, _request(ifname, flags | UP))


def checksums_off(ifname: str) -> None:
    """Turn checksum and segmentation offload off (``ethtool -K ifname tx off``)."""
    value = array("I", [ETHTOOL_STXCSUM, 0])
    _ask(SIOCETHTOOL, struct.pack("16sP16x", ifname.encode(), value.buffer_info()[0]))


def _request(ifname: str, flags: int) -> bytes:
    return struct.pack("16sH22x", ifname.encode(), flags)


def _ask(what: int, request: bytes) -> bytes:
    assert len(request) == LENGTH
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
        return fcntl.ioctl(control, what, request)
