"""veth pairs: one end in the node's bridge, the other in a Pod."""

import socket
from collections.abc import Callable, Sequence
from typing import TypeVar

from kuryr_k8s.cni.netlink import device, namespace, rtnl
from kuryr_k8s.cni.netlink import parked_pairs as parked
from kuryr_k8s.cni.netlink.flows import Flows
from kuryr_k8s.cni.netlink.link_events import LinkEvents
from kuryr_k8s.cni.netlink.nested_links import NestedLinks
from kuryr_k8s.cni.netlink.node_link import NodeLinks
from kuryr_k8s.cni.netlink.threads import Threads
from kuryr_k8s.cni.netlink.virtual_functions import VirtualFunctions
from kuryr_k8s.cni.netlink.wiring import NamespaceError, Observed, Wiring

T = TypeVar("T")


class Links:
    """The interfaces of the node and of its Pods.

    All methods may be repeated; all raise :class:`LinkError` if the kernel refuses, and
    :class:`NamespaceError` if a Pod's namespace does not exist.

    :param threads: more threads only obstruct each other: both the interpreter and the kernel let
        one at a time work on interfaces.
    """

    def __init__(self, *, threads: int = 2) -> None:
        self._threads = Threads("netlink", threads)
        self._slow = Threads("netlink-delete", 2)  # 10-20 ms each: no ADD waits for that
        self.nested = NestedLinks(self._threads, self._slow)
        self.node = NodeLinks(self._slow)
        self._conntrack = Threads("conntrack", 1)  # a table of flows may be long
        self.flows = Flows(self._conntrack)
        self.events = LinkEvents()
        self.virtual_functions = VirtualFunctions(self._slow)

    def close(self) -> None:
        """Wait for the work that has begun, and end the threads."""
        self._threads.close()
        self._slow.close()
        self._conntrack.close()

    async def mounted_namespaces(self) -> dict[str, str]:
        """Return the paths of all mounted network namespaces by their last parts."""
        return await self._threads.run(namespace.mounted)

    async def create(self, host: str, alias: str, netns: str, wiring: Wiring) -> str:
        """Make a veth pair, with the Pod's end in its namespace at once, and prepare that end.

        An interface that has the name of the host's end already is a leftover, and is deleted.

        :param alias: identifies the host's end later on.
        :returns: the MAC of the host's end.
        """
        return await self._threads.run(lambda: _create(host, alias, netns, wiring))

    async def activate(self, netns: str, wiring: Wiring, *, host: str = "") -> None:
        """Set the Pod's end up, with its routes, and announce its addresses.

        :param host: the host's end, which is set up as well. It was up when it was made, but
            ovs-vswitchd may have set it down since: when a port of the same name was removed just
            before, ovs-vswitchd restores flags that it had read before.
        """
        await self._threads.run(lambda: _activate(netns, wiring, host))

    async def observe(self, netns: str, ifname: str) -> Observed | None:
        """Return the Pod's end as it is; None if it or the namespace does not exist."""
        return await self._threads.run(lambda: _observe(netns, ifname))

    async def delete(self, host: str, alias: str) -> None:
        """Delete the host's end, and the Pod's end with it.

        :param alias: it is deleted only with this alias, with or without a space and more.
        """
        await self._slow.run(lambda: _delete(host, alias))

    async def park(self, pairs: Sequence[parked.ParkedPair], alias: str) -> None:
        """Make pairs whose ends both stay on the node, the lower end down."""
        await self._slow.run(lambda: parked.park(pairs, alias))

    async def hand_over(
        self, host: str, alias: str, netns: str, wiring: Wiring, *, up: bool
    ) -> str:
        """Give a Pod a parked pair. If this fails, it is parked as before, but for its alias.

        :param alias: of the host's end as long as the Pod has the pair.
        :param up: let packets flow, and announce the addresses.
        :returns: the MAC of the host's end.
        """
        return await self._threads.run(lambda: parked.hand_over(host, alias, netns, wiring, up=up))

    async def activate_parked(self, host: str, netns: str, wiring: Wiring) -> None:
        """Do the work of :meth:`activate` for a pair that was handed over without ``up``."""
        await self._threads.run(lambda: parked.activate(host, netns, wiring))

    async def take_back(self, host: str, alias: str, netns: str, ifname: str) -> None:
        """Take a parked pair back from a Pod, with the Pod's addresses, and block it.

        :param alias: of the host's end from then on.
        """
        await self._slow.run(lambda: parked.take_back(host, alias, netns, ifname))

    async def block(self, host: str) -> bool:
        """Let nothing pass a parked pair.

        :returns: False if the pair does not exist.
        """
        return await self._threads.run(lambda: parked.block(host))

    def in_use(self, host: str) -> bool:
        """Return whether a Pod has a parked pair, and its end is up."""
        return parked.in_use(host)

    def occupied(self, host: str) -> bool:
        """Return whether a Pod has the interface of this name, or what is on its lower end."""
        return exists(host) and parked.occupied(host)

    async def connects(self, host: str, netns: str, ifname: str) -> bool:
        """Return whether an interface of a Pod is the other end of ``host``, or on its lower end.

        :raises NamespaceError: the Pod's namespace does not exist.
        """
        return await self._threads.run(lambda: _connects(host, netns, ifname))

    async def set_alias(self, host: str, alias: str) -> None:
        """Set the alias of an interface of the node."""
        await self._threads.run(lambda: _set_alias(host, alias))

    async def aliases_of(self, hosts: Sequence[str]) -> dict[str, str]:
        """Return the alias of each of these interfaces that exists and has one."""
        return await self._threads.run(lambda: _aliases_of(hosts))

    async def aliases(self) -> dict[str, str]:
        """Return the alias of every veth of the node that has one, by name."""
        return await self._threads.run(_aliases)

    async def mac(self, host: str) -> str | None:
        """Return the MAC of an interface of the node; None if it does not exist."""
        return await self._threads.run(lambda: _mac(host))

    def exists(self, host: str) -> bool:
        """Return whether the node has an interface of this name."""
        return exists(host)

    async def prepare(self, netns: str, wiring: Wiring) -> None:
        """Prepare an interface that is in a Pod's namespace: addresses and settings.

        For bindings that make interfaces by :meth:`inside`; :meth:`activate` comes after it.
        """
        await self._threads.run(lambda: _prepare(netns, wiring))

    async def inside(self, netns: str, work: Callable[[], T]) -> T:
        """Call a function in a thread that is in a Pod's namespace.

        For bindings of interfaces that this class does not make.
        """
        return await self._threads.run(lambda: _inside(netns, work))


def exists(host: str) -> bool:
    """Return whether the caller's namespace has an interface of this name."""
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
            namespace.isolate(host)
            home.do(rtnl.up(socket.if_nametoindex(host)))
            with namespace.entered(target) as inside:
                namespace.prepare(inside, wiring)
            return device.mac(host)
        except BaseException:
            _delete_quietly(home, host)
            raise


def _activate(netns: str, wiring: Wiring, host: str) -> None:
    with namespace.opened(netns) as target:
        if host:
            with rtnl.Rtnl() as home:
                home.do(rtnl.up(socket.if_nametoindex(host)))
        with namespace.entered(target) as inside:
            namespace.activate(inside, wiring)


def _prepare(netns: str, wiring: Wiring) -> None:
    with namespace.opened(netns) as target, namespace.entered(target) as inside:
        namespace.prepare(inside, wiring)


def _inside(netns: str, work: Callable[[], T]) -> T:
    with namespace.opened(netns) as target, namespace.entered(target):
        return work()


def _observe(netns: str, ifname: str) -> Observed | None:
    try:
        with namespace.opened(netns) as target, namespace.entered(target):
            return namespace.observe(ifname)
    except NamespaceError:
        return None


def _delete(host: str, alias: str) -> None:
    with rtnl.Rtnl() as home:
        found = _alias(home, host)
        if found == alias or found.startswith(alias + " "):
            _delete_quietly(home, host)


def _alias(home: rtnl.Rtnl, host: str) -> str:
    found = home.attributes(host) or {}
    return rtnl.text(found.get(rtnl.IFALIAS, b""))


def _aliases_of(hosts: Sequence[str]) -> dict[str, str]:
    with rtnl.Rtnl() as home:
        return {host: alias for host in hosts if (alias := _alias(home, host))}


def _set_alias(host: str, alias: str) -> None:
    with rtnl.Rtnl() as home:
        home.do(rtnl.alias(host, alias))


def _connects(host: str, netns: str, ifname: str) -> bool:
    with namespace.opened(netns) as target:
        below = parked.lower(host)
        upper = socket.if_nametoindex(host) if exists(host) else 0
        under = socket.if_nametoindex(below) if exists(below) else 0
        with namespace.entered(target) as inside:
            if under:
                return parked.is_upper(inside, ifname, under)
            found = inside.attributes(ifname) or {}
            return bool(upper and rtnl.LINK in found and rtnl.number(found[rtnl.LINK]) == upper)


def _delete_quietly(home: rtnl.Rtnl, ifname: str) -> None:
    try:
        index = socket.if_nametoindex(ifname)
    except OSError:
        return
    home.do(rtnl.delete(index))


def _aliases() -> dict[str, str]:
    with rtnl.Rtnl() as home:
        veths = (found for found in home.links() if rtnl.kind(found) == "veth")
        return {
            rtnl.text(found[rtnl.IFNAME]): rtnl.text(found[rtnl.IFALIAS])
            for found in veths
            if rtnl.IFALIAS in found
        }


def _mac(host: str) -> str | None:
    return device.mac(host) if exists(host) else None
