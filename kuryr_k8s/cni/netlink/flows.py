"""Flows of datagrams in the kernel's connection tracking (conntrack).

The kernel treats all datagrams of a flow like the first one, as long as they keep coming: a client
that goes on to send from one port never meets a rule that is made after its first datagram.
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
from kuryr_k8s.cni.netlink.rtnl import FAMILY, Rtnl
from kuryr_k8s.cni.netlink.threads import Threads

# linux/netlink.h, linux/netfilter/nfnetlink_conntrack.h
NETFILTER, GET, DELETE = 12, 0x101, 0x102
TUPLE_ORIG, TUPLE_REPLY, ZONE, FILTER = 1, 2, 18, 25
TUPLE_IP, TUPLE_PROTO = 1, 2
V4_SRC, V4_DST, V6_SRC, V6_DST = 1, 2, 3, 4
PROTO_NUM, SRC_PORT, DST_PORT = 1, 2, 3
FILTER_ORIG_FLAGS, BY_PROTO_NUM = 1, 0x8
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
AT_ONCE = 100  # flows that one message forgets: the answers must fit into the socket


class UdpTarget(NamedTuple):
    """The address and port to which the node forwards datagrams for its own ``port``.

    :param version: of IP.
    :param address: None if it does not forward them.
    :param networks: it forwards what is sent to its addresses in these; empty for all addresses.
    """

    version: int
    port: int
    address: str | None
    target: int
    networks: tuple[Network, ...] = ()


def is_within(address: str | bytes, networks: Collection[Network]) -> bool:
    """Return whether an address is in one of the networks, or there are no networks."""
    own = ipaddress.ip_address(address)
    return not networks or any(own in network for network in networks)


class Direction(NamedTuple):
    """The source and the destination of datagrams; addresses are as in packets."""

    saddr: bytes
    sport: int
    daddr: bytes
    dport: int

    @classmethod
    def read(cls, value: bytes) -> Self | None:
        """Read a direction from its attribute; None for other protocols than UDP."""
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
    """The flows of the node's own network namespace.

    All methods raise :class:`LinkError` if the kernel refuses.

    :param protocol: of netlink, by which the kernel is asked.
    """

    def __init__(self, threads: Threads, *, protocol: int = NETFILTER) -> None:
        self._threads = threads
        self._protocol = protocol

    async def correct(self, targets: Iterable[UdpTarget]) -> int:
        """Forget UDP flows that go elsewhere than to these targets.

        Flows that merely pass the node on their way to another node with the same port stay, and
        so do flows to its loopback addresses. The time depends on the number of all UDP flows,
        some 10 µs each, not on the number of targets.

        :returns: how many were forgotten.
        """
        wanted = tuple(targets)
        return await self._threads.run(lambda: _correct(self._protocol, wanted))


def _correct(protocol: int, targets: Collection[UdpTarget]) -> int:
    forgotten = 0
    with Channel(protocol) as conntrack, Rtnl() as routes:
        is_own = functools.cache(functools.partial(_is_own, routes))
        for version, family in FAMILY.items():
            by_port = {target.port: target for target in targets if target.version == version}
            if not by_port:
                continue
            head = struct.pack("=BBH", family, 0, 0)
            wrong = [
                Request(DELETE, REQUEST | ACK, head + nested(TUPLE_ORIG, value), (errno.ENOENT,))
                for value, asked, answered in _udp(conntrack, head, by_port)
                if is_wrong(by_port[asked.dport], asked, answered) and is_own(asked.daddr)
            ]
            for start in range(0, len(wrong), AT_ONCE):
                forgotten += conntrack.do(*wrong[start : start + AT_ONCE])
    return forgotten


def is_wrong(target: UdpTarget, asked: Direction, answered: Direction) -> bool:
    """Return whether a flow to an address of the node goes elsewhere than to its target."""
    source = (answered.saddr, answered.sport)
    if target.address is None or not is_within(asked.daddr, target.networks):
        return source != (asked.daddr, asked.dport)
    return source != (ipaddress.ip_address(target.address).packed, target.target)


def _is_own(routes: Rtnl, address: bytes) -> bool:
    """Return whether an address is one of the node's, loopback excepted, as in our rules."""
    return not ipaddress.ip_address(address).is_loopback and routes.is_local(address)


def _udp(
    conntrack: Channel, head: bytes, ports: Collection[int]
) -> Iterator[tuple[bytes, Direction, Direction]]:
    """Generate the UDP flows of a family to these ports.

    Linux before 5.8 lists all protocols, whatever it is asked for.

    :returns: tuples of the attribute that identifies the flow, its direction, and the direction
        of the answers.
    """
    udp = nested(TUPLE_PROTO, attribute(PROTO_NUM, bytes([socket.IPPROTO_UDP])))
    only = nested(FILTER, unsigned(FILTER_ORIG_FLAGS, BY_PROTO_NUM))
    for entry in conntrack.dump(GET, head + nested(TUPLE_ORIG, udp) + only):
        found = dict(attributes(entry[len(head) :]))
        asked = Direction.read(found[TUPLE_ORIG])
        # flows in a zone belong to Open vSwitch
        if asked is None or asked.dport not in ports or ZONE in found:
            continue
        if (answered := Direction.read(found[TUPLE_REPLY])) is not None:
            yield found[TUPLE_ORIG], asked, answered
