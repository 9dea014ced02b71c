"""Virtual functions (VFs) of network cards: their settings on the card, their way into Pods."""

import contextlib
import errno
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kuryr_k8s.cni.netlink import device, namespace, rtnl
from kuryr_k8s.cni.netlink.pyroute import IPRoute, NetlinkError
from kuryr_k8s.cni.netlink.threads import Threads
from kuryr_k8s.cni.netlink.wiring import LinkError, NamespaceError, Wiring

NAME_LENGTH = 14  # of the name on the way into a Pod
_AUTO = 0  # link state: that of the card
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a VF on its card.

    :param vlan: which the card adds and removes; 0 for none.
    :param spoof_check: whether it drops what bears another MAC.
    """

    mac: str
    vlan: int
    spoof_check: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """How the interface of a VF is when no Pod has it."""

    ifname: str
    mac: str
    mtu: int


class VirtualFunctions:
    """The VFs of the node's cards.

    All methods may be repeated; all raise :class:`LinkError` if the kernel refuses, and
    :class:`NamespaceError` if a Pod's namespace does not exist.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    async def settings(self, card: str, number: int) -> Settings:
        """Return the present settings of a VF.

        :param card: the interface of the card.
        """
        return await self._threads.run(lambda: _settings(card, number))

    async def set(self, card: str, number: int, wanted: Settings) -> None:
        """Give a VF these settings."""
        await self._threads.run(lambda: _set(card, number, wanted))

    async def home(self, ifname: str) -> Home:
        """Return how an interface in the node's own namespace is."""
        return await self._threads.run(lambda: _home(ifname))

    async def plug(self, ifname: str, passing: str, netns: str, wiring: Wiring) -> None:
        """Move an interface of the node into a Pod's namespace, and prepare it.

        :param passing: its name on the way, which no other interface has: in the node's own
            namespace the name in the Pod, in the Pod's that on the node may be taken.
        """
        await self._threads.run(lambda: _plug(ifname, passing, netns, wiring))

    async def find(self, pci_slot: str, netns: str) -> str:
        """Return the name of a VF's interface in a Pod's namespace; empty if it is not there."""
        return await self._threads.run(lambda: _find_in(pci_slot, netns))

    async def unplug(self, pci_slot: str, passing: str, netns: str) -> None:
        """Move a VF's interface from a Pod's namespace into the node's own, if it is there."""
        await self._threads.run(lambda: _unplug(pci_slot, passing, netns))

    async def restore(self, ifname: str, home: Home) -> None:
        """Make an interface in the node's own namespace what it was, and set it down."""
        await self._threads.run(lambda: _restore(ifname, home))


def _settings(card: str, number: int) -> Settings:
    with IPRoute() as route:
        (link,) = route.link("get", index=_index(card), ext_mask=1)
        listed = link.get_attr("IFLA_VFINFO_LIST")
        for info in listed.get_attrs("IFLA_VF_INFO") if listed else ():
            found = dict(_attributes(info))
            if found["IFLA_VF_MAC"]["vf"] == number:
                return Settings(
                    mac=found["IFLA_VF_MAC"]["mac"][:17],
                    vlan=found["IFLA_VF_VLAN"]["vlan"],
                    spoof_check=bool(found["IFLA_VF_SPOOFCHK"]["spoofchk"] == 1),
                )
    raise LinkError(f"{card} has no VF {number}")


def _attributes(info: Any) -> Iterator[tuple[str, Any]]:
    for pair in info["attrs"]:
        yield pair[0], pair[1]


def _set(card: str, number: int, wanted: Settings) -> None:
    index = _index(card)
    with IPRoute() as route:
        # one after another: a driver that lacks one of them would refuse all
        route.link("set", index=index, vf={"vf": number, "vlan": wanted.vlan})
        route.link("set", index=index, vf={"vf": number, "mac": wanted.mac})
        for setting in ({"spoofchk": int(wanted.spoof_check)}, {"link_state": _AUTO}):
            try:
                route.link("set", index=index, vf={"vf": number, **setting})
            except NetlinkError as error:
                if error.code not in _NOT_SUPPORTED:
                    raise


def _home(ifname: str) -> Home:
    with rtnl.Rtnl() as kernel:
        found = kernel.attributes(ifname)
    if found is None:
        raise LinkError(f"there is no interface {ifname}")
    return Home(ifname=ifname, mac=found[rtnl.ADDRESS].hex(":"), mtu=rtnl.number(found[rtnl.MTU]))


def _plug(ifname: str, passing: str, netns: str, wiring: Wiring) -> None:
    with namespace.opened(netns) as target:
        with IPRoute() as route:
            index = _index(ifname)
            route.link("set", index=index, state="down")
            if ifname != passing:
                route.link("set", index=index, ifname=passing)
            route.link("set", index=index, net_ns_fd=target)
        with namespace.entered(target) as inside:
            with IPRoute() as route:
                index = _index(passing)
                route.link("set", index=index, ifname=wiring.ifname)
                if wiring.mtu is not None:
                    route.link("set", index=index, mtu=wiring.mtu)
                # last: by its name and its MAC an interface is known to be complete
                _set_mac(route, index, wiring.ifname, wiring.mac)
                if device.mac(wiring.ifname) != wiring.mac:
                    raise LinkError(f"{wiring.ifname} refuses MAC {wiring.mac}")
            namespace.prepare(inside, wiring)


def _set_mac(route: IPRoute, index: int, ifname: str, mac: str) -> None:
    """Give a VF's interface, which is down, a MAC, unless its card has been told another one.

    Some drivers (igbvf) let nobody set the MAC that the card has been told either, and take it
    over themselves when the interface goes down.
    """
    if device.mac(ifname) == mac:
        return
    try:
        route.link("set", index=index, address=mac)
    except NetlinkError as error:
        if error.code != errno.EADDRNOTAVAIL:
            raise
        route.link("set", index=index, state="up")
        route.link("set", index=index, state="down")


def _find_in(pci_slot: str, netns: str) -> str:
    with namespace.opened(netns) as target, namespace.entered(target):
        return _named(pci_slot)


def _named(pci_slot: str) -> str:
    """Return the interface of a PCI device in the present namespace; its Pod may rename it."""
    with rtnl.Rtnl() as kernel:
        for found in kernel.links():
            if rtnl.text(found.get(rtnl.PARENT_DEVICE, b"")) == pci_slot:
                return rtnl.text(found[rtnl.IFNAME])
    return ""


def _unplug(pci_slot: str, passing: str, netns: str) -> None:
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(open("/proc/thread-self/ns/net"))  # noqa: PTH123
        try:
            target = stack.enter_context(namespace.opened(netns))
        except NamespaceError:
            return  # the kernel moves what was in it
        with namespace.entered(target), IPRoute() as route:
            if not (ifname := _named(pci_slot)):
                return
            index = _index(ifname)
            route.link("set", index=index, state="down")
            if ifname != passing:
                route.link("set", index=index, ifname=passing)
            route.link("set", index=index, net_ns_fd=home.fileno())


def _restore(ifname: str, home: Home) -> None:
    with IPRoute() as route:
        index = _index(ifname)
        route.link("set", index=index, state="down")
        route.link("set", index=index, mtu=home.mtu)
        _set_mac(route, index, ifname, home.mac)
        if ifname != home.ifname:
            with contextlib.suppress(FileExistsError):  # another interface has its name
                _rename(route, index, home.ifname)


def _rename(route: IPRoute, index: int, name: str) -> None:
    """Rename an interface, also where it bears the name as an alternative one: udev gives those.

    :raises FileExistsError: another interface has the name.
    """
    for _ in range(2):
        try:
            route.link("set", index=index, ifname=name)
        except NetlinkError as error:
            if error.code != errno.EEXIST:
                raise
            if _index(name) != index:
                raise FileExistsError(name) from error
            route.link("property_del", index=index, altname=name)
        else:
            return


def _index(ifname: str) -> int:
    try:
        return socket.if_nametoindex(ifname)
    except OSError as error:
        raise LinkError(f"there is no interface {ifname}") from error
