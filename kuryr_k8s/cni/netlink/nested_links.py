"""Interfaces of Pods on a link of the node: VLANs and macvlans."""

import contextlib
import errno
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from kuryr_k8s.cni.netlink import device, namespace, rtnl
from kuryr_k8s.cni.netlink.pyroute import IPRoute, NetlinkError
from kuryr_k8s.cni.netlink.threads import Threads, translated
from kuryr_k8s.cni.netlink.wiring import LinkError, Wiring

# linux/neighbour.h
_NTF_USE = 0x1
_REACHED = 0x2 | 0x4 | 0x8 | 0x10  # REACHABLE, STALE, DELAY, PROBE: it has answered
# The kernel looks for the VLAN id first, and then refuses an MTU that is larger than its link's.
_NO_MTU = 65535
_GONE = (errno.ENODEV, errno.EINVAL)  # EINVAL: there is no such namespace
_ANSWER = 0.1  # seconds that a gateway gets to answer


class Taken(LinkError):
    """Another interface has this VLAN id already, in some namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vlan:
    """A VLAN of a link of the node. The kernel has at most one interface for it.

    :param covered: whether the Pod's interface is a macvlan on top of it, in its namespace.
    """

    link: str
    vlan_id: int
    covered: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"VLAN {self.vlan_id} of {self.link}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Macvlan:
    """A macvlan of a link of the node, known by its MAC or by its alias.

    Its Pod may change the MAC, the name or the alias: all but one of MAC and alias.
    """

    link: str
    mac: str
    alias: str

    def __str__(self) -> str:
        return f"macvlan {self.mac} of {self.link}"


Nested = Vlan | Macvlan


class NestedLinks:
    """The interfaces of Pods on links of the node.

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

    async def create(self, nested: Nested, name: str, netns: str, wiring: Wiring) -> str:
        """Make the interface, in its namespace at once, and prepare it.

        :param name: a name that no interface of the node has, for a start: the kernel refuses
            the name of the node's own eth0.
        :returns: the MAC of the link.
        :raises Taken: there is one already.
        """
        return await self._threads.run(lambda: _create(nested, name, netns, wiring))

    async def delete(self, nested: Nested, number: int) -> None:
        """Delete the interface if it is in the namespace of this number."""
        await self._slow.run(lambda: _delete(nested, number))

    def exists(self, nested: Nested, number: int) -> bool:
        """Return whether there is the interface: a VLAN's in any namespace.

        :param number: of the namespace in which a macvlan is looked for.
        """
        with translated():
            if isinstance(nested, Vlan):
                return _exists(nested)
            return _find(nested, number) is not None

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


def _create(nested: Nested, name: str, netns: str, wiring: Wiring) -> str:
    with namespace.opened(netns) as target:
        mtu = _possible(nested, wiring.mtu)
        covered = isinstance(nested, Vlan) and nested.covered
        code = _new(nested, name, mtu, mac="" if covered else wiring.mac, netns=target)
        if code == errno.EEXIST and isinstance(nested, Vlan) and _exists(nested):
            raise Taken(f"{nested} has an interface already")
        if code:
            raise OSError(code, os.strerror(code))
        with namespace.entered(target) as inside:
            if covered:
                _cover(inside, name, mtu, wiring)
            else:
                with IPRoute() as route:
                    index = socket.if_nametoindex(name)
                    if isinstance(nested, Macvlan):
                        route.link("set", index=index, ifalias=nested.alias)
                    route.link("set", index=index, ifname=wiring.ifname)
            namespace.prepare(inside, wiring)
    return device.mac(nested.link)


def _cover(inside: rtnl.Rtnl, lower: str, mtu: int | None, wiring: Wiring) -> None:
    """Make the Pod's interface on top of one that keeps its name, and has no addresses.

    It goes with the lower one.
    """
    index = socket.if_nametoindex(lower)
    namespace.isolate(lower)
    top = rtnl.macvlan(wiring.ifname, index, rtnl.BRIDGE, mtu, mac=wiring.mac)
    inside.do(rtnl.up(index), top)


def _possible(nested: Nested, mtu: int | None) -> int | None:
    """Return the MTU that the interface can have: a macvlan's is none above that of its link."""
    if isinstance(nested, Vlan) or mtu is None:
        return mtu
    with rtnl.Rtnl() as kernel:
        found = kernel.attributes(nested.link) or {}
    return min(mtu, rtnl.number(found[rtnl.MTU])) if rtnl.MTU in found else mtu


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


def _new(
    nested: Nested, ifname: str, mtu: int | None, *, mac: str = "", netns: int | None = None
) -> int:
    """Make the interface.

    :returns: the kernel's error, 0 for success.
    """
    lower = _index(nested.link)
    if isinstance(nested, Vlan):
        request = rtnl.vlan(ifname, lower, nested.vlan_id, mtu, mac=mac, netns=netns)
    else:  # Pods of one node reach each other
        request = rtnl.macvlan(ifname, lower, rtnl.BRIDGE, mtu, mac=mac, netns=netns)
    with rtnl.Rtnl() as kernel:
        try:
            kernel.do(request)
        except OSError as error:
            return error.errno or errno.EIO
    return 0


def _delete(nested: Nested, number: int) -> None:
    index = _find(nested, number)
    if index is None:
        return
    with IPRoute() as route:
        try:
            route.link("del", index=index, if_netnsid=number)
        except NetlinkError as error:
            if error.code not in _GONE:
                raise


def _find(nested: Nested, number: int) -> int | None:
    """Return the index of the interface in the namespace of this number; None: it is not there.

    Its Pod may have given it another name.
    """
    with rtnl.Rtnl() as kernel:
        for index, found in kernel.links_in(number):
            if _is(found, nested):
                return index
    return None


def _is(found: dict[int, bytes], nested: Nested) -> bool:
    """Return whether an interface is this very one; another one's may have the same numbers.

    :param found: its attributes.
    """
    if rtnl.LINK_NETNSID not in found:
        return False  # the Pod's own
    try:
        parent = socket.if_nametoindex(nested.link)
    except OSError:
        return False
    if rtnl.LINK not in found or rtnl.number(found[rtnl.LINK]) != parent:
        return False
    if isinstance(nested, Vlan):
        return rtnl.vlan_id(found) == nested.vlan_id
    mac = found.get(rtnl.ADDRESS, b"").hex(":")
    alias = rtnl.text(found.get(rtnl.IFALIAS, b""))
    return rtnl.kind(found) == "macvlan" and (mac == nested.mac or alias == nested.alias)


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
