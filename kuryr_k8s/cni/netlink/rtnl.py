"""Requests of rtnetlink (rtnetlink(7), RFC 3549) that every Pod needs, a few bytes each."""

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
LINK_NETNSID, TARGET_NETNSID, PARENT_DEVICE = 37, 46, 56
INFO_KIND, INFO_DATA = 1, 2
VETH_PEER = 1
MACVLAN_MODE, BRIDGE, PASSTHRU = 1, 4, 8
VLAN_ID = 1
IFA_ADDRESS, IFA_LOCAL = 1, 2
RTA_DST, RTA_OIF, RTA_GATEWAY = 1, 4, 5
MAIN_TABLE, STATIC, UNICAST, LOCAL = 254, 4, 1, 2
UP = 0x1
FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}


class Rtnl(messages.Channel):
    """A socket in the network namespace of the thread that makes it."""

    def __init__(self) -> None:
        super().__init__(socket.NETLINK_ROUTE)

    def attributes(self, ifname: str) -> dict[int, bytes] | None:
        """Return the attributes of an interface (``IFLA_…``); None if it does not exist."""
        found = self.link(ifname)
        return found[2] if found is not None else None

    def link(self, ifname: str) -> tuple[int, int, dict[int, bytes]] | None:
        """Return index, flags and attributes of an interface; None if it does not exist."""
        try:
            answer = self.ask(GETLINK, _link() + string(IFNAME, ifname))
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            return None
        index, flags = struct.unpack_from("=4xiI", answer)
        return index, flags, dict(attributes(answer[16:]))

    def links(self) -> list[dict[int, bytes]]:
        """List the attributes of all interfaces."""
        return [dict(attributes(each[16:])) for each in self.dump(GETLINK, _link())]

    def links_in(self, netns: int) -> list[tuple[int, dict[int, bytes]]]:
        """List index and attributes of all interfaces in another namespace.

        :param netns: its number; there is nothing in a namespace that is gone.
        """
        body = _link() + unsigned(TARGET_NETNSID, netns)
        try:
            answers = list(self.dump(GETLINK, body))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return []
        return [
            (struct.unpack_from("=4xi", answer)[0], dict(attributes(answer[16:])))
            for answer in answers
        ]

    def is_local(self, destination: bytes) -> bool:
        """Return whether packets to this address stay on the node, by its routes."""
        family = socket.AF_INET if len(destination) == 4 else socket.AF_INET6
        head = struct.pack("=BB10x", family, len(destination) * 8)
        try:
            answer = self.ask(GETROUTE, head + attribute(RTA_DST, destination))
        except OSError:  # there is no route, or a prohibiting one
            return False
        return answer[7] == LOCAL


def veth(host: str, peer: str, mac: str, mtu: int | None, *, netns: int | None = None) -> Request:
    """Request a pair of which the peer has this MAC.

    :param netns: the descriptor of the peer's namespace; None for the caller's.
    """
    size = b"" if mtu is None else unsigned(MTU, mtu)
    where = b"" if netns is None else unsigned(NET_NS_FD, netns)
    other = _link() + string(IFNAME, peer) + attribute(ADDRESS, _mac(mac)) + size + where
    info = string(INFO_KIND, "veth") + nested(INFO_DATA, attribute(VETH_PEER | NESTED, other))
    body = _link() + string(IFNAME, host) + size + nested(LINKINFO, info)
    return Request(NEWLINK, REQUEST | ACK | CREATE | EXCL, body)


def macvlan(
    ifname: str,
    lower: int,
    mode: int,
    mtu: int | None,
    *,
    mac: str = "",
    netns: int | None = None,
) -> Request:
    """Request a macvlan on top of another interface.

    :param lower: the index of that interface.
    :param mode: ``PASSTHRU`` takes it over, its MAC included; ``BRIDGE`` shares it.
    :param netns: the descriptor of the macvlan's namespace; None for the caller's.
    """
    return _on_top(ifname, lower, "macvlan", unsigned(MACVLAN_MODE, mode), mtu, mac, netns)


def vlan(
    ifname: str, lower: int, vlan: int, mtu: int | None, *, mac: str = "", netns: int | None = None
) -> Request:
    """Request an interface of a VLAN of another interface.

    :param lower: the index of that interface.
    :param vlan: the id of the VLAN.
    :param netns: the descriptor of the namespace; None for the caller's.
    """
    data = attribute(VLAN_ID, struct.pack("=H", vlan))
    return _on_top(ifname, lower, "vlan", data, mtu, mac, netns)


def _on_top(
    ifname: str,
    lower: int,
    kind: str,
    data: bytes,
    mtu: int | None,
    mac: str,
    netns: int | None,
) -> Request:
    """Request an interface in one message, so that it never appears in another namespace."""
    info = string(INFO_KIND, kind) + nested(INFO_DATA, data)
    body = _link() + string(IFNAME, ifname) + unsigned(LINK, lower) + nested(LINKINFO, info)
    body += b"" if mtu is None else unsigned(MTU, mtu)
    body += attribute(ADDRESS, _mac(mac)) if mac else b""
    body += b"" if netns is None else unsigned(NET_NS_FD, netns)
    return Request(NEWLINK, REQUEST | ACK | CREATE | EXCL, body)


def alias(ifname: str, text: str) -> Request:
    """Request an alias for an interface.

    In one message with the request that makes it, there never is an interface without an alias,
    however suddenly we end.
    """
    body = _link() + string(IFNAME, ifname) + attribute(IFALIAS, text.encode())
    return Request(SETLINK, REQUEST | ACK, body)


def up(index: int) -> Request:
    """Request that an interface is up."""
    return Request(SETLINK, REQUEST | ACK, _link(index, UP, UP))


def down(index: int) -> Request:
    """Request that an interface is down."""
    return Request(SETLINK, REQUEST | ACK, _link(index, 0, UP))


def delete(index: int) -> Request:
    """Request the end of an interface, which may be gone already."""
    return Request(DELLINK, REQUEST | ACK, _link(index), (errno.ENODEV,))


def address(index: int, cidr: str) -> Request:
    """Request an address, which the interface may have already."""
    own = ipaddress.ip_interface(cidr)
    family, length = FAMILY[own.version], own.network.prefixlen
    head = struct.pack("=BBBBI", family, length, 0, 0, index)
    body = head + attribute(IFA_LOCAL, own.ip.packed) + attribute(IFA_ADDRESS, own.ip.packed)
    return Request(NEWADDR, REQUEST | ACK | CREATE | EXCL, body, (errno.EEXIST,))


def route(index: int, destination: str, gateway: str) -> Request:
    """Request a route out of an interface, which may exist already."""
    to, via = ipaddress.ip_network(destination), ipaddress.ip_address(gateway)
    family = FAMILY[to.version]
    head = struct.pack("=BBBBBBBBI", family, to.prefixlen, 0, 0, MAIN_TABLE, STATIC, 0, UNICAST, 0)
    body = head + (attribute(RTA_DST, to.network_address.packed) if to.prefixlen else b"")
    body += attribute(RTA_GATEWAY, via.packed) + unsigned(RTA_OIF, index)
    return Request(NEWROUTE, REQUEST | ACK | CREATE | EXCL, body, (errno.EEXIST,))


def number(value: bytes) -> int:
    """Read an attribute's value that is an unsigned number of 32 bits."""
    return int(struct.unpack("=I", value)[0])


def text(value: bytes) -> str:
    """Read an attribute's value that is a text."""
    return value.rstrip(b"\0").decode(errors="replace")


def kind(found: dict[int, bytes]) -> str:
    """Return the kind of an interface, such as ``macvlan``; empty for a device."""
    info = dict(attributes(found.get(LINKINFO, b"")))
    return text(info.get(INFO_KIND, b""))


def vlan_id(found: dict[int, bytes]) -> int | None:
    """Return the id of a VLAN's interface; None for another one."""
    if kind(found) != "vlan":
        return None
    info = dict(attributes(found[LINKINFO]))
    data = dict(attributes(info.get(INFO_DATA, b"")))
    return int(struct.unpack("=H", data[VLAN_ID])[0]) if VLAN_ID in data else None


def _link(index: int = 0, flags: int = 0, change: int = 0) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, change)


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
