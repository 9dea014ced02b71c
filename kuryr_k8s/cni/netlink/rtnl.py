"""rtnetlink (rtnetlink(7), RFC 3549) for what is done for every Pod: a few bytes a request."""

import errno
import ipaddress
import socket
import struct

from kuryr_k8s.cni.netlink import messages
from kuryr_k8s.cni.netlink.messages import (
    ACK,
    CREATE,
    EXCL,
    NESTED,
    REQUEST,
    Request,
    attribute,
    attributes,
    nested,
    string,
    unsigned,
)

# linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h, linux/veth.h
NEWLINK, DELLINK, GETLINK, SETLINK, NEWADDR, NEWROUTE, GETROUTE = 16, 17, 18, 19, 20, 24, 26
ADDRESS, IFNAME, MTU, LINK, LINKINFO, IFALIAS, NET_NS_FD, PROMISCUITY = 1, 3, 4, 5, 18, 20, 28, 30
INFO_KIND, INFO_DATA = 1, 2
VETH_PEER = 1
MACVLAN_MODE, PASSTHRU = 1, 8
IFA_ADDRESS, IFA_LOCAL = 1, 2
RTA_DST, RTA_OIF, RTA_GATEWAY = 1, 4, 5
MAIN_TABLE, STATIC, UNICAST, LOCAL = 254, 4, 1, 2
UP = 0x1
FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}


class Rtnl(messages.Channel):
    """A socket in the network namespace that the thread is in when it is made."""

    def __init__(self) -> None:
        super().__init__(socket.NETLINK_ROUTE)

    def attributes(self, ifname: str) -> dict[int, bytes] | None:
        """The attributes of an interface (``IFLA_…``); None if there is none of this name."""
        try:
            answer = self.ask(GETLINK, _link() + string(IFNAME, ifname))
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            return None
        return dict(attributes(answer[16:]))

    def is_local(self, destination: bytes) -> bool:
        """Whether what goes to this address stays on the node, by its routes."""
        family = socket.AF_INET if len(destination) == 4 else socket.AF_INET6
        head = struct.pack("=BB10x", family, len(destination) * 8)
        try:
            answer = self.ask(GETROUTE, head + attribute(RTA_DST, destination))
        except OSError:  # there is no route, or one that forbids the way
            return False
        return answer[7] == LOCAL


def veth(host: str, peer: str, mac: str, mtu: int | None, *, netns: int | None = None) -> Request:
    """A pair; the peer has this MAC, and is made in the namespace of the descriptor ``netns``."""
    size = b"" if mtu is None else unsigned(MTU, mtu)
    where = b"" if netns is None else unsigned(NET_NS_FD, netns)
    other = _link() + string(IFNAME, peer) + attribute(ADDRESS, _mac(mac)) + size + where
    info = string(INFO_KIND, "veth") + nested(INFO_DATA, attribute(VETH_PEER | NESTED, other))
    body = _link() + string(IFNAME, host) + size + nested(LINKINFO, info)
    return Request(NEWLINK, REQUEST | ACK | CREATE | EXCL, body)


def passthru(ifname: str, lower: int, mtu: int | None, netns: int) -> Request:
    """A macvlan that is the whole of the interface with the index ``lower``, its MAC included,
    made in another namespace at once.
    """
    mode = nested(INFO_DATA, unsigned(MACVLAN_MODE, PASSTHRU))
    body = _link() + string(IFNAME, ifname) + unsigned(LINK, lower) + unsigned(NET_NS_FD, netns)
    body += b"" if mtu is None else unsigned(MTU, mtu)
    body += nested(LINKINFO, string(INFO_KIND, "macvlan") + mode)
    return Request(NEWLINK, REQUEST | ACK | CREATE | EXCL, body)


def alias(ifname: str, text: str) -> Request:
    """Give the interface of this name an alias. With the request that makes it in one message,
    there is none without, however suddenly we end.
    """
    body = _link() + string(IFNAME, ifname) + attribute(IFALIAS, text.encode())
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
    body = head + attribute(IFA_LOCAL, own.ip.packed) + attribute(IFA_ADDRESS, own.ip.packed)
    return Request(NEWADDR, REQUEST | ACK | CREATE | EXCL, body, (errno.EEXIST,))


def route(index: int, destination: str, gateway: str) -> Request:
    """A route out of this interface; that it is there already is as good."""
    to, via = ipaddress.ip_network(destination), ipaddress.ip_address(gateway)
    family = FAMILY[to.version]
    head = struct.pack("=BBBBBBBBI", family, to.prefixlen, 0, 0, MAIN_TABLE, STATIC, 0, UNICAST, 0)
    body = head + (attribute(RTA_DST, to.network_address.packed) if to.prefixlen else b"")
    body += attribute(RTA_GATEWAY, via.packed) + unsigned(RTA_OIF, index)
    return Request(NEWROUTE, REQUEST | ACK | CREATE | EXCL, body, (errno.EEXIST,))


def number(value: bytes) -> int:
    """An attribute's value that is an unsigned number of 32 bits."""
    return int(struct.unpack("=I", value)[0])


def kind(found: dict[int, bytes]) -> str:
    """The kind of an interface, such as ``macvlan``, by its attributes; empty for a device."""
    info = dict(attributes(found.get(LINKINFO, b"")))
    return info.get(INFO_KIND, b"").rstrip(b"\0").decode()


def _link(index: int = 0, flags: int = 0, change: int = 0) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, change)


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
