"""rtnetlink (rtnetlink(7), RFC 3549) for what is done for every Pod: a few bytes for each request,
and several requests in one message.

A general library takes milliseconds of the interpreter for what takes the kernel microseconds.
"""

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Collection, Iterator, Sequence
from types import TracebackType
from typing import Self

# linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h, linux/veth.h
NEWLINK, DELLINK, GETLINK, SETLINK, NEWADDR, NEWROUTE = 16, 17, 18, 19, 20, 24
REQUEST, ACK, EXCL, CREATE = 0x1, 0x4, 0x200, 0x400
ERROR = 2
NESTED = 0x8000
ADDRESS, IFNAME, MTU, LINK, LINKINFO, IFALIAS, NET_NS_FD, PROMISCUITY = 1, 3, 4, 5, 18, 20, 28, 30
INFO_KIND, INFO_DATA = 1, 2
VETH_PEER = 1
MACVLAN_MODE, PASSTHRU = 1, 8
IFA_ADDRESS, IFA_LOCAL = 1, 2
RTA_DST, RTA_OIF, RTA_GATEWAY = 1, 4, 5
MAIN_TABLE, STATIC, UNICAST = 254, 4, 1
UP = 0x1
FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}


class Request:
    """One request. ``tolerated`` are the kernel's errors that count as success."""

    def __init__(
        self, kind: int, flags: int, body: bytes, tolerated: Collection[int] = ()
    ) -> None:
        self.kind, self.flags, self.body, self.tolerated = kind, flags, body, tolerated

    def encode(self, number: int) -> bytes:
        head = struct.pack("=IHHII", 16 + len(self.body), self.kind, self.flags, number, 0)
        return head + self.body


class Rtnl:
    """A socket in the network namespace that the thread is in when it is made."""

    def __init__(self) -> None:
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def do(self, *requests: Request) -> None:
        """Have all of them done, in this order; one that fails does not keep those after it.

        :raises OSError: what the kernel said to the first that failed.
        """
        if not requests:
            return
        self._socket.send(b"".join(each.encode(n) for n, each in enumerate(requests, 1)))
        failed: dict[int, int] = {}
        answers = 0
        while answers < len(requests):
            for kind, number, body in _messages(self._socket.recv(65536)):
                if kind == ERROR:
                    answers += 1
                    code = -struct.unpack_from("=i", body)[0]
                    if code and code not in requests[number - 1].tolerated:
                        failed[number] = code
        if failed:
            code = failed[min(failed)]
            raise OSError(code, os.strerror(code))

    def attributes(self, ifname: str) -> dict[int, bytes] | None:
        """The attributes of an interface (``IFLA_…``); None if there is none of this name."""
        body = _link() + _text(IFNAME, ifname)
        self._socket.send(Request(GETLINK, REQUEST, body).encode(1))
        for kind, _number, answer in _messages(self._socket.recv(65536)):
            if kind == NEWLINK:
                return dict(_attributes(answer[16:]))
            code = -struct.unpack_from("=i", answer)[0]
            if code != errno.ENODEV:
                raise OSError(code, os.strerror(code))
        return None


def veth(host: str, peer: str, mac: str, mtu: int | None, *, netns: int | None = None) -> Request:
    """A pair; the peer has this MAC, and is made in the namespace of the descriptor ``netns``."""
    size = b"" if mtu is None else _number(MTU, mtu)
    where = b"" if netns is None else _number(NET_NS_FD, netns)
    other = _link() + _text(IFNAME, peer) + _attribute(ADDRESS, _mac(mac)) + size + where
    info = _text(INFO_KIND, "veth") + _nested(INFO_DATA, _attribute(VETH_PEER | NESTED, other))
    body = _link() + _text(IFNAME, host) + size + _nested(LINKINFO, info)
    return Request(NEWLINK, REQUEST | ACK | CREATE | EXCL, body)


def passthru(ifname: str, lower: int, mtu: int | None, netns: int) -> Request:
    """A macvlan that is the whole of the interface with the index ``lower``, its MAC included,
    made in another namespace at once.
    """
    mode = _nested(INFO_DATA, _number(MACVLAN_MODE, PASSTHRU))
    body = _link() + _text(IFNAME, ifname) + _number(LINK, lower) + _number(NET_NS_FD, netns)
    body += b"" if mtu is None else _number(MTU, mtu)
    body += _nested(LINKINFO, _text(INFO_KIND, "macvlan") + mode)
    return Request(NEWLINK, REQUEST | ACK | CREATE | EXCL, body)


def alias(ifname: str, text: str) -> Request:
    """Give the interface of this name an alias. With the request that makes it in one message,
    there is none without, however suddenly we end.
    """
    body = _link() + _text(IFNAME, ifname) + _attribute(IFALIAS, text.encode())
    return Request(SETLINK, REQUEST | ACK, body)


def up(index: int) -> Request:
    return Request(SETLINK, REQUEST | ACK, _link(index, UP, UP))


def down(index: int) -> Request:
    return Request(SETLINK, REQUEST | ACK, _link(index, 0, UP))


def delete(index: int) -> Request:
    return Request(DELLINK, REQUEST | ACK, _link(index), (errno.ENODEV,))


def address(index: int, cidr: str) -> Request:
    """Give the interface an address; that it has it already is as good."""
    own = ipaddress.ip_interface(cidr)
    family, length = FAMILY[own.version], own.network.prefixlen
    head = struct.pack("=BBBBI", family, length, 0, 0, index)
    body = head + _attribute(IFA_LOCAL, own.ip.packed) + _attribute(IFA_ADDRESS, own.ip.packed)
    return Request(NEWADDR, REQUEST | ACK | CREATE | EXCL, body, (errno.EEXIST,))


def route(index: int, destination: str, gateway: str) -> Request:
    """A route out of this interface; that it is there already is as good."""
    to, via = ipaddress.ip_network(destination), ipaddress.ip_address(gateway)
    family = FAMILY[to.version]
    head = struct.pack("=BBBBBBBBI", family, to.prefixlen, 0, 0, MAIN_TABLE, STATIC, 0, UNICAST, 0)
    body = head + (_attribute(RTA_DST, to.network_address.packed) if to.prefixlen else b"")
    body += _attribute(RTA_GATEWAY, via.packed) + _number(RTA_OIF, index)
    return Request(NEWROUTE, REQUEST | ACK | CREATE | EXCL, body, (errno.EEXIST,))


def number(value: bytes) -> int:
    """An attribute's value that is an unsigned number of 32 bits."""
    return int(struct.unpack("=I", value)[0])


def kind(attributes: dict[int, bytes]) -> str:
    """The kind of an interface, such as ``macvlan``; empty for a device."""
    info = dict(_attributes(attributes.get(LINKINFO, b"")))
    return info.get(INFO_KIND, b"").rstrip(b"\0").decode()


def _link(index: int = 0, flags: int = 0, change: int = 0) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, change)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _nested(kind: int, value: bytes) -> bytes:
    return _attribute(kind | NESTED, value)


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=I", value))


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(type, sequence number, body) of each message."""
    while len(data) >= 16:
        length, kind, _flags, sequence, _pid = struct.unpack_from("=IHHII", data)
        yield kind, sequence, data[16:length]
        data = data[(length + 3) & ~3 :]


def _attributes(data: bytes | Sequence[int]) -> Iterator[tuple[int, bytes]]:
    data = bytes(data)
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        yield kind & ~NESTED, data[4:length]
        data = data[(length + 3) & ~3 :]
