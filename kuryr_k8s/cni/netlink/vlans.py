"""VLAN interfaces of Pods, on a link of the node."""

import contextlib
import errno
import os
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kuryr_k8s.cni.netlink import device, namespace
from kuryr_k8s.cni.netlink.pyroute import IPRoute, NetlinkError
from kuryr_k8s.cni.netlink.threads import Threads, translated
from kuryr_k8s.cni.netlink.wiring import LinkError, Wiring

# linux/netlink.h, rtnetlink.h, if_link.h, neighbour.h
_REQUEST_ACK_CREATE_EXCL = 0x1 | 0x4 | 0x400 | 0x200
_NEWLINK, _ERROR = 16, 2
_ADDRESS, _IFNAME, _MTU, _LINK, _LINKINFO, _NET_NS_FD = 1, 3, 4, 5, 18, 28
_INFO_KIND, _INFO_DATA, _VLAN_ID = 1, 2, 1
_NTF_USE = 0x1
_REACHED = 0x2 | 0x4 | 0x8 | 0x10  # REACHABLE, STALE, DELAY, PROBE: it has answered
# The kernel looks for the VLAN id first, and then refuses an MTU that is larger than its link's.
_NO_MTU = 65535
_ANSWER = 0.1  # seconds that a gateway gets to answer


class Taken(LinkError):
    """Another interface has this VLAN id already, in some namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vlan:
    """A VLAN of a link of the node. The kernel has at most one interface for it."""

    link: str
    vlan_id: int


class Vlans:
    """The VLAN interfaces of Pods.

    All methods may be repeated; all raise :class:`LinkError` if the kernel refuses.
    """

    def __init__(self, threads: Threads, slow: Threads) -> None:
        self._threads = threads
        self._slow = slow

    async def default_link(self) -> str:
        """Return the link of the node's default route.

        :raises LinkError: there is none.
        """
        return await self._threads.run(_default_link)

    async def number(self, netns: str) -> int:
        """Return the number of a Pod's namespace in the node's namespace.

        The number is valid as long as the Pod's namespace exists, with or without its path; then
        the kernel reuses it.
        """
        return await self._threads.run(lambda: _number(netns))

    async def create(self, vlan: Vlan, name: str, netns: str, wiring: Wiring) -> str:
        """Make the interface, in its namespace at once, and prepare it.

        :param name: a name that no interface of the node has, for a start: the kernel refuses
            the name of the node's own eth0.
        :returns: the MAC of the link.
        :raises Taken: there is one already.
        """
        return await self._threads.run(lambda: _create(vlan, name, netns, wiring))

    async def delete(self, vlan: Vlan, number: int, *names: str) -> None:
        """Delete the interface if it has one of these names in the namespace of this number."""
        await self._slow.run(lambda: _delete(vlan, number, names))

    def exists(self, vlan: Vlan) -> bool:
        """Return whether there is an interface for the VLAN, in any namespace."""
        with translated():
            return _exists(vlan)

    async def answers(self, netns: str, ifname: str, gateways: Sequence[str]) -> bool:
        """Ask the gateways for their MACs.

        :returns: whether each of them answers now.
        """
        return await self._slow.run(lambda: _answers(netns, ifname, gateways))

    async def announce(self, netns: str, wiring: Wiring) -> None:
        """Announce the addresses once more."""
        await self._threads.run(lambda: _announce(netns, wiring))


def _default_link() -> str:
    with IPRoute() as route:
        for family in (socket.AF_INET, socket.AF_INET6):
            routes = route.get_default_routes(family=family)
            links = [
                (found.get_attr("RTA_PRIORITY") or 0, index)
                for found in routes
                if (index := found.get_attr("RTA_OIF")) is not None
            ]
            if links:
                return socket.if_indextoname(min(links)[1])
    raise LinkError("the node has no default route")


def _number(netns: str) -> int:
    with namespace.opened(netns) as target, IPRoute() as route:
        try:
            route.set_netnsid(fd=target)
        except NetlinkError as error:
            if error.code != errno.EEXIST:
                raise
        return int(route.get_netnsid(fd=target)["nsid"])


def _create(vlan: Vlan, name: str, netns: str, wiring: Wiring) -> str:
    with namespace.opened(netns) as target:
        code = _new(vlan, name, wiring.mtu, mac=wiring.mac, netns=target)
        if code == errno.EEXIST and _exists(vlan):
            raise Taken(f"VLAN {vlan.vlan_id} of {vlan.link} has an interface already")
        if code:
            raise OSError(code, os.strerror(code))
        with namespace.entered(target) as inside:
            with IPRoute() as route:
                route.link("set", index=socket.if_nametoindex(name), ifname=wiring.ifname)
            namespace.prepare(inside, wiring)
    return device.mac(vlan.link)


def _exists(vlan: Vlan) -> bool:
    """Find out by an attempt that cannot succeed. Without the link no interface is on it."""
    try:
        return _new(vlan, "kuryr-vlan", _NO_MTU) == errno.EEXIST
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        return False


def _index(link: str) -> int:
    """Return the number of a link; before Python 3.12 the standard function gives no errno."""
    try:
        return socket.if_nametoindex(link)
    except OSError as error:
        raise OSError(errno.ENODEV, f"there is no link {link}") from error


def _new(vlan: Vlan, ifname: str, mtu: int | None, *, mac: str = "", netns: int = -1) -> int:
    """Make the interface in one message, so that it never appears in the node's own namespace.

    :returns: the kernel's error, 0 for success.
    """
    info = _attribute(_INFO_KIND, b"vlan") + _attribute(
        _INFO_DATA, _attribute(_VLAN_ID, struct.pack("H", vlan.vlan_id))
    )
    body = struct.pack("BxHiII", 0, 0, 0, 0, 0)
    body += _attribute(_IFNAME, ifname.encode() + b"\0")
    body += _attribute(_LINK, struct.pack("I", _index(vlan.link)))
    body += _attribute(_LINKINFO, info)
    if mtu is not None:
        body += _attribute(_MTU, struct.pack("I", mtu))
    if mac:
        body += _attribute(_ADDRESS, bytes.fromhex(mac.replace(":", "")))
    if netns >= 0:
        body += _attribute(_NET_NS_FD, struct.pack("I", netns))
    head = struct.pack("IHHII", 16 + len(body), _NEWLINK, _REQUEST_ACK_CREATE_EXCL, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as kernel:
        kernel.send(head + body)
        answer = kernel.recv(65536)
    assert struct.unpack_from("H", answer, 4) == (_ERROR,)
    (code,) = struct.unpack_from("i", answer, 16)
    return int(-code)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _delete(vlan: Vlan, number: int, names: Sequence[str]) -> None:
    with IPRoute() as route:
        for name in names:
            try:
                link = next(iter(route.link("get", ifname=name, if_netnsid=number)))
                if _is(link, vlan):
                    route.link("del", index=link["index"], if_netnsid=number)
            except NetlinkError as error:
                if error.code not in (errno.ENODEV, errno.EINVAL):  # EINVAL: no such namespace
                    raise


def _is(link, vlan: Vlan) -> bool:  # type: ignore[no-untyped-def]
    """Return whether a link is of this very VLAN; that of another may have the same numbers."""
    if link.get_attr("IFLA_LINK_NETNSID") is None:
        return False  # the Pod's own
    try:
        parent = socket.if_nametoindex(vlan.link)
    except OSError:
        return False
    found = link.get_nested("IFLA_LINKINFO", "IFLA_INFO_DATA", "IFLA_VLAN_ID")
    return bool(link.get_attr("IFLA_LINK") == parent and found == vlan.vlan_id)


def _answers(netns: str, ifname: str, gateways: Sequence[str]) -> bool:
    with (
        namespace.opened(netns) as target,
        namespace.entered(target),
        IPRoute() as route,
    ):
        index = socket.if_nametoindex(ifname)
        for gateway in gateways:
            # it may be known: a Pod whose interface is made again goes on asking
            route.neigh("replace", dst=gateway, ifindex=index, flags=_NTF_USE, state=0)
        end = time.monotonic() + _ANSWER
        while silent := [address for address in gateways if not _known(route, index, address)]:
            if time.monotonic() > end:
                for gateway in silent:  # so that the kernel asks again at once
                    with contextlib.suppress(NetlinkError):
                        route.neigh("del", dst=gateway, ifindex=index)
                return False
            time.sleep(0.005)
        return True


def _known(route: IPRoute, index: int, gateway: str) -> bool:
    family = socket.AF_INET6 if ":" in gateway else socket.AF_INET
    return any(
        found["state"] & _REACHED
        for found in route.get_neighbours(family=family, ifindex=index, dst=gateway)
    )


def _announce(netns: str, wiring: Wiring) -> None:
    """Set the MAC, even the same: then the kernel announces (arp_notify, ndisc_notify)."""
    with (
        namespace.opened(netns) as target,
        namespace.entered(target),
        IPRoute() as route,
    ):
        route.link("set", index=socket.if_nametoindex(wiring.ifname), address=wiring.mac)
