"""veth pairs: one end in the node's bridge, the other in a Pod."""

import errno
import socket

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from kuryr_k8s.cni.netlink import device, namespace
from kuryr_k8s.cni.netlink.refusals import guarded as _guarded
from kuryr_k8s.cni.netlink.threads import Threads
from kuryr_k8s.cni.netlink.vlans import Vlans
from kuryr_k8s.cni.netlink.wiring import NamespaceError, Observed, Wiring


class Links:
    """All methods may be repeated; all raise :class:`LinkError` where the kernel refuses.

    :param threads: more only get in each other's way: both the interpreter and the kernel let
        one at a time work on interfaces.
    """

    def __init__(self, *, threads: int = 2) -> None:
        self._threads = Threads("netlink", threads)
        self._slow = Threads("netlink-delete", 2)  # 10-20 ms each: not before anybody's ADD
        self.vlans = Vlans(self._threads, self._slow)

    def close(self) -> None:
        self._threads.close()
        self._slow.close()

    async def create(self, host: str, alias: str, netns: str, wiring: Wiring) -> str:
        """Make the pair, the Pod's end in its namespace at once, and prepare that end.

        What has the name of the host's end already is a leftover, and is deleted.

        :param alias: is set on the host's end, to recognise it by.
        :returns: MAC of the host's end.
        """
        return await self._threads.run(_guarded(lambda: _create(host, alias, netns, wiring)))

    async def activate(self, netns: str, wiring: Wiring) -> None:
        """Set the Pod's end up, with its routes, and announce its addresses."""
        await self._threads.run(_guarded(lambda: _activate(netns, wiring)))

    async def observe(self, netns: str, ifname: str) -> Observed | None:
        """The Pod's end as it is; None if it, or the namespace, is not there."""
        return await self._threads.run(_guarded(lambda: _observe(netns, ifname)))

    async def delete(self, host: str, alias: str) -> None:
        """Delete the host's end, and the Pod's with it, if it has this alias."""
        await self._slow.run(_guarded(lambda: _delete(host, alias)))

    async def aliases(self) -> dict[str, str]:
        """The alias of every veth of the node that has one, by name."""
        return await self._threads.run(_guarded(_aliases))

    async def mac(self, host: str) -> str | None:
        """MAC of the host's end, None if it is not there."""
        return await self._threads.run(_guarded(lambda: _mac(host)))

    def exists(self, host: str) -> bool:
        """Is there a host's end of this name?"""
        return exists(host)


def exists(host: str) -> bool:
    try:
        socket.if_nametoindex(host)
    except OSError:
        return False
    return True


def _create(host: str, alias: str, netns: str, wiring: Wiring) -> str:
    with namespace.opened(netns) as target, IPRoute() as route:
        try:
            _add(route, host, target, wiring)
        except NetlinkError as error:
            if error.code != errno.EEXIST or not exists(host):
                raise
            _delete_quietly(route, host)
            _add(route, host, target, wiring)
        try:
            namespace.deafen(host)
            route.link("set", ifname=host, ifalias=alias, state="up")
            with namespace.entered(target) as inside:
                namespace.prepare(inside, wiring)
            return device.mac(host)
        except BaseException:
            _delete_quietly(route, host)
            raise


def _add(route: IPRoute, host: str, target: int, wiring: Wiring) -> None:
    mtu = {} if wiring.mtu is None else {"mtu": wiring.mtu}
    peer = {"ifname": wiring.ifname, "net_ns_fd": target, "address": wiring.mac} | mtu
    route.link("add", ifname=host, kind="veth", peer=peer, **mtu)


def _activate(netns: str, wiring: Wiring) -> None:
    with namespace.opened(netns) as target, namespace.entered(target) as inside:
        namespace.activate(inside, wiring)


def _observe(netns: str, ifname: str) -> Observed | None:
    try:
        with namespace.opened(netns) as target, namespace.entered(target) as inside:
            return namespace.observe(inside, ifname)
    except NamespaceError:
        return None


def _delete(host: str, alias: str) -> None:
    if not exists(host):
        return
    with IPRoute() as route:
        try:
            link = next(iter(route.link("get", ifname=host)))
            if link.get_attr("IFLA_IFALIAS") == alias:
                route.link("del", index=link["index"])
        except NetlinkError as error:
            if error.code != errno.ENODEV:
                raise


def _delete_quietly(route: IPRoute, ifname: str) -> None:
    try:
        route.link("del", ifname=ifname)
    except NetlinkError as error:
        if error.code != errno.ENODEV:
            raise


def _aliases() -> dict[str, str]:
    with IPRoute() as route:
        pairs = (
            (link.get_attr("IFLA_IFNAME"), link.get_attr("IFLA_IFALIAS"))
            for link in route.link("dump", kind="veth")
        )
        return {name: alias for name, alias in pairs if alias}


def _mac(host: str) -> str | None:
    return device.mac(host) if exists(host) else None
