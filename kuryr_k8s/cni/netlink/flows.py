"""The kernel's memory of datagrams that belong together (conntrack).

What it decided of the first one, it does with all that follow, as long as they do: a client that
goes on to send from one port never comes to a rule that is made after its first datagram.
"""

import errno
import functools
import ipaddress
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, Self

from kuryr_k8s.cni.netlink.messages import (
    ACK,
    REQUEST,
    Channel,
    Request,
    attribute,
    attributes,
    nested,
    unsigned,
)
from kuryr_k8s.cni.netlink.refusals import guarded
from kuryr_k8s.cni.netlink.rtnl import FAMILY, Rtnl
from kuryr_k8s.cni.netlink.threads import Threads

# linux/netlink.h, linux/netfilter/nfnetlink_conntrack.h
NETFILTER, GET, DELETE = 12, 0x101, 0x102
TUPLE_ORIG, TUPLE_REPLY, ZONE, FILTER = 1, 2, 18, 25
TUPLE_IP, TUPLE_PROTO = 1, 2
V4_SRC, V4_DST, V6_SRC, V6_DST = 1, 2, 3, 4
PROTO_NUM, SRC_PORT, DST_PORT = 1, 2, 3
FILTER_ORIG_FLAGS, BY_PROTO_NUM = 1, 0x8
AT_ONCE = 100  # what is forgotten in one message: the answers must fit into the socket


class Led(NamedTuple):
    """Where the node sends datagrams that come for its ``port``; address None: nowhere."""

    version: int
    port: int
    address: str | None
    target: int


class Way(NamedTuple):
    """From where to where datagrams go; addresses as they are in packets."""

    saddr: bytes
    sport: int
    daddr: bytes
    dport: int

    @classmethod
    def read(cls, value: bytes) -> Self | None:
        """None for other protocols than UDP."""
        parts = dict(attributes(value))
        protocol = dict(attributes(parts[TUPLE_PROTO]))
        if protocol[PROTO_NUM][0] != socket.IPPROTO_UDP:
            return None
        ports = struct.unpack("!HH", protocol[SRC_PORT] + protocol[DST_PORT])
        ip = dict(attributes(parts[TUPLE_IP]))
        if V4_SRC in ip:
            return cls(ip[V4_SRC], ports[0], ip[V4_DST], ports[1])
        return cls(ip[V6_SRC], ports[0], ip[V6_DST], ports[1])


class Flows:
    """Of the node's own network namespace. Raises :class:`LinkError` where the kernel refuses."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    async def correct(self, ports: Iterable[Led]) -> int:
        """Forget flows of UDP that go elsewhere than these say; how many were forgotten.

        Those that merely pass the node on their way to another one with the same port stay, and
        those to its loopback addresses. What takes time is the number of all flows of UDP, some
        10 µs each, not that of ports.
        """
        wanted = tuple(ports)
        return await self._threads.run(guarded(lambda: _correct(wanted)))


def _correct(ports: Collection[Led]) -> int:
    forgotten = 0
    with Channel(NETFILTER) as conntrack, Rtnl() as routes:
        is_own = functools.cache(functools.partial(_is_own, routes))
        for version, family in FAMILY.items():
            leds = {led.port: led for led in ports if led.version == version}
            if not leds:
                continue
            head = struct.pack("=BBH", family, 0, 0)
            wrong = [
                Request(DELETE, REQUEST | ACK, head + nested(TUPLE_ORIG, value), (errno.ENOENT,))
                for value, asked, answered in _udp(conntrack, head, leds)
                if is_wrong(leds[asked.dport], asked, answered) and is_own(asked.daddr)
            ]
            for start in range(0, len(wrong), AT_ONCE):
                forgotten += conntrack.do(*wrong[start : start + AT_ONCE])
    return forgotten


def is_wrong(led: Led, asked: Way, answered: Way) -> bool:
    """Is a flow to an address of the node led elsewhere, or nowhere?"""
    source = (answered.saddr, answered.sport)
    if led.address is None:
        return source != (asked.daddr, asked.dport)
    return source != (ipaddress.ip_address(led.address).packed, led.target)


def _is_own(routes: Rtnl, address: bytes) -> bool:
    """As the rules have it: of the node, but not a loopback one."""
    return not ipaddress.ip_address(address).is_loopback and routes.is_local(address)


def _udp(
    conntrack: Channel, head: bytes, ports: Collection[int]
) -> Iterator[tuple[bytes, Way, Way]]:
    """Flows of a family to these ports: (what names it, way asked, way answered).

    Linux before 5.8 tells of all protocols, whatever it is asked.
    """
    udp = nested(TUPLE_PROTO, attribute(PROTO_NUM, bytes([socket.IPPROTO_UDP])))
    only = nested(FILTER, unsigned(FILTER_ORIG_FLAGS, BY_PROTO_NUM))
    for entry in conntrack.dump(GET, head + nested(TUPLE_ORIG, udp) + only):
        found = dict(attributes(entry[len(head) :]))
        asked = Way.read(found[TUPLE_ORIG])
        # a zone is Open vSwitch's own
        if asked is None or asked.dport not in ports or ZONE in found:
            continue
        if (answered := Way.read(found[TUPLE_REPLY])) is not None:
            yield found[TUPLE_ORIG], asked, answered
