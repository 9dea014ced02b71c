"""The node's own interface in the network of its Pods: its addresses, and the routes out of it.

The routes are in a table of their own, before the main one and before the rules of others. Packets
with a mark pass that table by: they answer somebody who did not come through the interface.
"""

import contextlib
import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kuryr_k8s.cni.netlink import rtnl
from kuryr_k8s.cni.netlink.messages import (
    ACK,
    CREATE,
    EXCL,
    REQUEST,
    Request,
    attribute,
    attributes,
    unsigned,
)
from kuryr_k8s.cni.netlink.threads import Threads
from kuryr_k8s.cni.netlink.wiring import LinkError

# linux/rtnetlink.h, linux/fib_rules.h, linux/if_addr.h
DELADDR, GETADDR, DELROUTE, NEWRULE, DELRULE, GETRULE = 21, 22, 25, 32, 33, 34
FRA_GOTO, FRA_PRIORITY, FRA_MARK, FRA_TABLE, FRA_MASK, FRA_PROTOCOL = 4, 6, 10, 15, 16, 21
TO_TABLE, GO_TO, NOTHING = 1, 2, 3
IFA_FLAGS, NODAD, NOPREFIXROUTE = 8, 0x02, 0x200
RT_LINK, ONLINK = 253, 4
# What tells our routes and rules from those of others; iproute2 shows the number.
TABLE = PROTOCOL = 107
# The rules' priorities: what passes the table by, the table, where the first goes on; «main» has
# 32766, and operators' own rules usually lie between.
PASS, LOOKUP, GO_ON = 10_700, 10_701, 10_702
# In this order they are made: nothing that must pass the table by ever meets it.
RULES = (GO_ON, PASS, LOOKUP)
# The bit of the marks of packets that pass by, and of their connections.
PASSING_MARK = 0x200000
SYSCTL = Path("/proc/sys/net")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class NoLink(LinkError):
    """The node has no interface of this name."""


@dataclass(frozen=True, slots=True)
class NodeRoute:
    """A route out of the interface; without a gateway the destination is on its link."""

    destination: Network
    gateway: Address | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLink:
    """The interface as it should be, or as it is."""

    mac: str
    mtu: int
    addresses: frozenset[Interface]
    routes: frozenset[NodeRoute]

    @property
    def versions(self) -> frozenset[int]:
        """Return the versions of IP that the interface has addresses of."""
        return frozenset(address.version for address in self.addresses)


class NodeLinks:
    """The node's own interface; all methods raise :class:`LinkError` if the kernel refuses."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    async def configure(self, name: str, wanted: NodeLink) -> list[str]:
        """Make the interface what is wanted, and remove what is not.

        :returns: what had to be changed.
        :raises NoLink: it does not exist.
        """
        return await self._threads.run(lambda: _configure(name, wanted))

    async def remove_routing(self) -> bool:
        """Remove all routes and rules that :meth:`configure` made, whether the link exists or not.

        :returns: whether there were any.
        """
        return await self._threads.run(_remove_routing)

    async def has_routing(self) -> bool:
        """Return whether there is a rule that :meth:`configure` made."""
        return await self._threads.run(_has_routing)

    async def others(self, name: str) -> list[Interface]:
        """Return the node's addresses on all interfaces but this one, the loopback's left out."""
        return await self._threads.run(lambda: _others(name))


@contextlib.contextmanager
def _opened() -> Iterator[rtnl.Rtnl]:
    with rtnl.Rtnl() as home:
        home.choose()  # a node may have a million routes
        yield home


def _configure(name: str, wanted: NodeLink) -> list[str]:
    with _opened() as home:
        found = home.link(name)
        if found is None:
            raise NoLink(f"the node has no interface {name}")
        index, flags, values = found
        changes = list(_settings(name))
        changes += _of_link(home, index, flags, values, wanted)
        for text, request in _of_addresses(home, index, wanted):
            _do(home, text, request)
            changes.append(text)
        for text, request in (*_of_rules(home, wanted), *_of_routes(home, index, wanted)):
            _do(home, text, request)
            changes.append(text)
    return changes


def _do(home: rtnl.Rtnl, text: str, request: Request) -> None:
    try:
        home.do(request)
    except OSError as error:
        raise LinkError(f"{text}: {os.strerror(error.errno or 0)}") from error


def _settings(name: str) -> Iterator[str]:
    """Set the interface's sysctls; all must be right before it is up.

    No router configures it, its addresses come from Neutron and need no detection of duplicates,
    and packets may come in whose answers go out elsewhere.
    """
    for path, value in (
        (f"ipv4/conf/{name}/rp_filter", "2"),
        (f"ipv6/conf/{name}/accept_ra", "0"),
        (f"ipv6/conf/{name}/accept_dad", "0"),
        (f"ipv6/conf/{name}/disable_ipv6", "0"),
    ):
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
            if (SYSCTL / path).read_text().strip() != value:
                (SYSCTL / path).write_text(value)
                yield f"{path} = {value}"


def _of_link(
    home: rtnl.Rtnl, index: int, flags: int, values: dict[int, bytes], wanted: NodeLink
) -> Iterator[str]:
    mac = bytes.fromhex(wanted.mac.replace(":", ""))
    if values.get(rtnl.ADDRESS) != mac:
        _do(home, f"MAC {wanted.mac}", _set(index, attribute(rtnl.ADDRESS, mac)))
        yield f"MAC {wanted.mac}"
    if rtnl.number(values[rtnl.MTU]) != wanted.mtu:
        _do(home, f"MTU {wanted.mtu}", _set(index, unsigned(rtnl.MTU, wanted.mtu)))
        yield f"MTU {wanted.mtu}"
    if not flags & rtnl.UP:
        _do(home, "up", rtnl.up(index))
        yield "up"


def _of_addresses(home: rtnl.Rtnl, index: int, wanted: NodeLink) -> Iterator[tuple[str, Request]]:
    """Yield the changes of addresses: those in the way first."""
    found = {address for owner, address in _addresses(home, index) if owner == index}
    for address in found - wanted.addresses:
        yield f"no address {address}", _address(DELADDR, index, address)
    for address in wanted.addresses - found:
        yield f"address {address}", _address(rtnl.NEWADDR, index, address)


def _of_routes(home: rtnl.Rtnl, index: int, wanted: NodeLink) -> Iterator[tuple[str, Request]]:
    """Yield the changes of routes: those to the link first, which lead to the gateways."""
    found = {route for version in (4, 6) for route in _routes(home, version)}
    keep = {(index, route) for route in wanted.routes}
    for owner, route in found - keep:
        yield f"no route to {route.destination}", _route(DELROUTE, owner, route)
    for _, route in sorted(keep - found, key=lambda each: each[1].gateway is not None):
        yield f"route to {route.destination}", _route(rtnl.NEWROUTE, index, route)


def _of_rules(home: rtnl.Rtnl, wanted: NodeLink) -> Iterator[tuple[str, Request]]:
    for version in (4, 6):
        found = _rules(home, version)
        if version not in wanted.versions:
            for priority in reversed(found):
                yield f"no rule {priority} of IPv{version}", _rule(DELRULE, version, priority)
            continue
        for priority in RULES:
            if priority not in found:
                yield f"rule {priority} of IPv{version}", _rule(NEWRULE, version, priority)


def _remove_routing() -> bool:
    removed = False
    with _opened() as home:
        for version in (4, 6):
            requests = [_route(DELROUTE, owner, route) for owner, route in _routes(home, version)]
            rules = reversed(_rules(home, version))
            requests += [_rule(DELRULE, version, priority) for priority in rules]
            home.do(*requests)
            removed = removed or bool(requests)
    return removed


def _has_routing() -> bool:
    with _opened() as home:
        return any(list(_rules(home, version)) for version in (4, 6))


def _others(name: str) -> list[Interface]:
    own = {_index(name), _index("lo")}
    with _opened() as home:
        return [address for index, address in _addresses(home, 0) if index not in own]


def _index(name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return 0


def _addresses(home: rtnl.Rtnl, index: int) -> list[tuple[int, Interface]]:
    """List (index of the interface, address), link-local ones left out; 0: of all interfaces."""
    found: list[tuple[int, Interface]] = []
    for body in _dump(home, GETADDR, struct.pack("=BBBBI", socket.AF_UNSPEC, 0, 0, 0, index)):
        _family, length, _flags, _scope, owner = struct.unpack_from("=BBBBI", body)
        values = dict(attributes(body[8:]))
        packed = values.get(rtnl.IFA_LOCAL) or values.get(rtnl.IFA_ADDRESS)
        if packed is None or len(packed) not in (4, 16):
            continue
        address = ipaddress.ip_interface((packed, length))
        if not address.is_link_local:
            found.append((owner, address))
    return found


def _routes(home: rtnl.Rtnl, version: int) -> list[tuple[int, NodeRoute]]:
    """List (index of the interface, route) of our table."""
    family = rtnl.FAMILY[version]
    any_route = bytes(4 if version == 4 else 16)
    found = []
    head = struct.pack("=BBBBBBBBI", family, 0, 0, 0, TABLE, PROTOCOL, 0, 0, 0)
    for body in _dump(home, rtnl.GETROUTE, head):
        of, length, _, _, table, protocol = struct.unpack_from("=BBBBBB", body)
        if (of, table, protocol) != (family, TABLE, PROTOCOL):
            continue  # a kernel that does not choose
        values = dict(attributes(body[12:]))
        gateway = values.get(rtnl.RTA_GATEWAY)
        destination = (values.get(rtnl.RTA_DST, any_route), length)
        route = NodeRoute(
            ipaddress.ip_network(destination), ipaddress.ip_address(gateway) if gateway else None
        )
        found.append((rtnl.number(values[rtnl.RTA_OIF]), route))
    return found


def _rules(home: rtnl.Rtnl, version: int) -> list[int]:
    """List the priorities of our rules in the order in which they are made."""
    found = set()
    family = rtnl.FAMILY[version]
    for body in _dump(home, GETRULE, struct.pack("=BBBBBBBBI", family, 0, 0, 0, 0, 0, 0, 0, 0)):
        values = dict(attributes(body[12:]))
        if body[0] == family and values.get(FRA_PROTOCOL) == bytes([PROTOCOL]):
            found.add(rtnl.number(values[FRA_PRIORITY]))
    return [priority for priority in RULES if priority in found]


def _dump(home: rtnl.Rtnl, kind: int, body: bytes) -> list[bytes]:
    try:
        return list(home.dump(kind, body))
    except OSError as error:
        # no such table yet; a kernel without this version of IP
        if error.errno not in (errno.ENOENT, errno.EAFNOSUPPORT, errno.EOPNOTSUPP):
            raise
        return []


def _set(index: int, values: bytes) -> Request:
    return Request(
        rtnl.SETLINK,
        REQUEST | ACK,
        struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, 0, 0) + values,
    )


def _address(kind: int, index: int, address: Interface) -> Request:
    head = struct.pack(
        "=BBBBI", rtnl.FAMILY[address.version], address.network.prefixlen, 0, 0, index
    )
    packed = address.ip.packed
    body = head + attribute(rtnl.IFA_LOCAL, packed) + attribute(rtnl.IFA_ADDRESS, packed)
    body += unsigned(IFA_FLAGS, NOPREFIXROUTE | (NODAD if address.version == 6 else 0))
    return _change(kind, rtnl.NEWADDR, body, errno.EADDRNOTAVAIL)


def _route(kind: int, index: int, route: NodeRoute) -> Request:
    to, via = route.destination, route.gateway
    # IPv6 asks the main table where such a gateway is, which may lead there by another interface;
    # without the flag it asks ours.
    on_link = ONLINK if via is not None and to.version == 4 else 0
    scope = RT_LINK if via is None and to.version == 4 else 0
    head = struct.pack(
        "=BBBBBBBBI",
        *(rtnl.FAMILY[to.version], to.prefixlen, 0, 0, TABLE, PROTOCOL, scope, rtnl.UNICAST),
        on_link,
    )
    body = head + attribute(rtnl.RTA_DST, to.network_address.packed)
    body += attribute(rtnl.RTA_GATEWAY, via.packed) if via else b""
    return _change(kind, rtnl.NEWROUTE, body + unsigned(rtnl.RTA_OIF, index), errno.ESRCH)


def _rule(kind: int, version: int, priority: int) -> Request:
    table = TABLE if priority == LOOKUP else 0
    action = {PASS: GO_TO, LOOKUP: TO_TABLE, GO_ON: NOTHING}[priority]
    head = struct.pack("=BBBBBBBBI", rtnl.FAMILY[version], 0, 0, 0, table, 0, 0, action, 0)
    body = head + unsigned(FRA_PRIORITY, priority) + attribute(FRA_PROTOCOL, bytes([PROTOCOL]))
    if priority == PASS:
        body += unsigned(FRA_GOTO, GO_ON)
        body += unsigned(FRA_MARK, PASSING_MARK) + unsigned(FRA_MASK, PASSING_MARK)
    if priority == LOOKUP:
        body += unsigned(FRA_TABLE, TABLE)
    return _change(kind, NEWRULE, body, errno.ENOENT)


def _change(kind: int, new: int, body: bytes, gone: int) -> Request:
    """Return a request that makes something, or that removes it, which may be gone."""
    if kind == new:
        return Request(kind, REQUEST | ACK | CREATE | EXCL, body, (errno.EEXIST,))
    return Request(kind, REQUEST | ACK, body, (gone,))
