"""veth pairs: one end in the node's bridge, the other in a Pod."""

import socket
from collections.abc import Sequence

from pyroute2 import IPRoute

from kuryr_k8s.cni.netlink import device, namespace, rtnl
from kuryr_k8s.cni.netlink import parked_pairs as parked
from kuryr_k8s.cni.netlink.flows import Flows
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
        self._conntrack = Threads("conntrack", 1)  # a table of flows may be long
        self.flows = Flows(self._conntrack)

    def close(self) -> None:
        self._threads.close()
        self._slow.close()
        self._conntrack.close()

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

    async def park(self, pairs: Sequence[parked.Pair], alias: str) -> None:
        """Make pairs of which both ends stay on the node, the lower one down."""
        await self._slow.run(_guarded(lambda: parked.park(pairs, alias)))

    async def hand_over(self, host: str, netns: str, wiring: Wiring, *, up: bool) -> str:
        """Give a Pod a parked pair, and with ``up`` let packets flow and announce its addresses.
        Where this fails, it is parked as before.

        :returns: MAC of the host's end.
        """
        work = _guarded(lambda: parked.hand_over(host, netns, wiring, up=up))
        return await self._threads.run(work)

    async def activate_parked(self, host: str, netns: str, wiring: Wiring) -> None:
        """:meth:`activate` for what was handed over without ``up``."""
        await self._threads.run(_guarded(lambda: parked.activate(host, netns, wiring)))

    async def withdraw(self, host: str, netns: str, ifname: str) -> None:
        """Take a parked pair back from a Pod: nothing passes any more, its addresses are gone."""
        await self._slow.run(_guarded(lambda: parked.withdraw(host, netns, ifname)))

    async def rest(self, host: str) -> bool:
        """See to it that nothing passes a parked pair; False where it is not there."""
        return await self._threads.run(_guarded(lambda: parked.rest(host)))

    def in_use(self, host: str) -> bool:
        """Has a Pod a parked pair, with its end up?"""
        return parked.in_use(host)

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
    with namespace.opened(netns) as target, rtnl.Rtnl() as home:
        wanted = (
            rtnl.veth(host, wiring.ifname, wiring.mac, wiring.mtu, netns=target),
            rtnl.alias(host, alias),
        )
        try:
            home.do(*wanted)
        except FileExistsError:
            if not exists(host):
                raise
            _delete_quietly(home, host)
            home.do(*wanted)
        try:
            namespace.deafen(host)
            home.do(rtnl.up(socket.if_nametoindex(host)))
            with namespace.entered(target) as inside:
                namespace.prepare(inside, wiring)
            return device.mac(host)
        except BaseException:
            _delete_quietly(home, host)
            raise


def _activate(netns: str, wiring: Wiring) -> None:
    with namespace.opened(netns) as target, namespace.entered(target) as inside:
        namespace.activate(inside, wiring)


def _observe(netns: str, ifname: str) -> Observed | None:
    try:
        with namespace.opened(netns) as target, namespace.entered(target):
            return namespace.observe(ifname)
    except NamespaceError:
        return None


def _delete(host: str, alias: str) -> None:
    with rtnl.Rtnl() as home:
        found = home.attributes(host)
        if found is not None and found.get(rtnl.IFALIAS, b"").rstrip(b"\0") == alias.encode():
            _delete_quietly(home, host)


def _delete_quietly(home: rtnl.Rtnl, ifname: str) -> None:
    try:
        index = socket.if_nametoindex(ifname)
    except OSError:
        return
    home.do(rtnl.delete(index))


def _aliases() -> dict[str, str]:
    with IPRoute() as route:
        pairs = (
            (link.get_attr("IFLA_IFNAME"), link.get_attr("IFLA_IFALIAS"))
            for link in route.link("dump", kind="veth")
        )
        return {name: alias for name, alias in pairs if alias}


def _mac(host: str) -> str | None:
    return device.mac(host) if exists(host) else None
