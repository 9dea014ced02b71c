"""Pairs that are ready for a Pod, and how one gets into a Pod and out of it again.

Both ends of a parked veth stay on the node: one in the bridge, the other, its lower end, set
down, so that nothing passes. A Pod gets a macvlan of mode passthru on top of the lower end:
it is made in the Pod's namespace in a millisecond and goes with it, while moving an end of a
veth takes twenty, one at a time. Only one macvlan of this mode can be on an interface: what is
in one Pod can be in no other.
"""

import contextlib
import dataclasses
import socket
from collections.abc import Iterable

from kuryr_k8s.cni.netlink import device, namespace, rtnl
from kuryr_k8s.cni.netlink.wiring import LinkError, NamespaceError, Wiring


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A veth to park: ``host`` is the end in the bridge; ``mac`` is the other's, and a Pod's to
    be. ``mtu`` is in bytes (None: as it comes), ``offload`` as in :class:`Wiring`.
    """

    host: str
    mac: str
    mtu: int | None
    offload: bool

    @property
    def lower(self) -> str:
        return lower(self.host)


def lower(host: str) -> str:
    """Name of the other end, of 15 letters at the most."""
    return f"park{host.removeprefix('tap')}"[:15]


def park(pairs: Iterable[Pair], alias: str) -> None:
    """Make the pairs; what has the name of one of their ends is a leftover, and is deleted."""
    with rtnl.Rtnl() as home:
        for pair in pairs:
            _park(home, pair, alias)


def _park(home: rtnl.Rtnl, pair: Pair, alias: str) -> None:
    wanted = (
        rtnl.veth(pair.host, pair.lower, pair.mac, pair.mtu),
        rtnl.alias(pair.host, alias),
    )
    try:
        home.do(*wanted)
    except FileExistsError:
        for name in (pair.host, pair.lower):
            _delete(home, name)
        home.do(*wanted)
    namespace.deafen(pair.host)
    namespace.deafen(pair.lower)
    if not pair.offload:
        device.checksums_off(pair.lower)
    home.do(rtnl.up(socket.if_nametoindex(pair.host)))


def hand_over(host: str, netns: str, wiring: Wiring, *, up: bool) -> str:
    """Give a Pod the lower end; with ``up`` set it up as well.

    :returns: MAC of the host's end.
    :raises NamespaceError: the Pod's namespace is gone. It is parked as before.
    :raises LinkError: it is not what was parked, or the kernel refuses; likewise.
    """
    below = lower(host)
    with namespace.opened(netns) as target, rtnl.Rtnl() as home:
        index = socket.if_nametoindex(below)
        wiring = dataclasses.replace(wiring, offload=True)  # the lower end sees to checksums
        if device.mac(below) != wiring.mac.lower():
            raise LinkError(f"the MAC of {below} has been changed")
        home.do(rtnl.passthru(wiring.ifname, index, wiring.mtu, target))
        try:
            with namespace.entered(target) as inside:
                namespace.prepare(inside, wiring)
                if up:
                    home.do(rtnl.up(index))
                    namespace.activate(inside, wiring)
            return device.mac(host)
        except BaseException:
            withdraw(host, netns, wiring.ifname)
            raise


def activate(host: str, netns: str, wiring: Wiring) -> None:
    """Set a Pod's end up that was handed over without."""
    with namespace.opened(netns) as target, rtnl.Rtnl() as home:
        home.do(rtnl.up(socket.if_nametoindex(lower(host))))
        with namespace.entered(target) as inside:
            namespace.activate(inside, wiring)


def withdraw(host: str, netns: str, ifname: str) -> None:
    """Take the lower end from a Pod: nothing passes any more, then the Pod's interface goes, with
    its addresses, routes and neighbours.

    Where the namespace cannot be entered any more it has gone, as a rule with all that was in it;
    were it not so, the next hand-over would be refused.

    :raises OSError: there is no such pair.
    """
    index = socket.if_nametoindex(lower(host))
    with rtnl.Rtnl() as home:
        home.do(rtnl.down(index))
    with (
        contextlib.suppress(NamespaceError),
        namespace.opened(netns) as target,
        namespace.entered(target) as inside,
    ):
        found = inside.attributes(ifname)
        if found is None or rtnl.kind(found) != "macvlan":
            return
        if rtnl.number(found[rtnl.LINK]) == index:
            inside.do(rtnl.delete(socket.if_nametoindex(ifname)))


def rest(host: str) -> bool:
    """See to it that nothing passes. Whether both ends are there."""
    try:
        socket.if_nametoindex(host)
        index = socket.if_nametoindex(lower(host))
    except OSError:
        return False
    with rtnl.Rtnl() as home:
        home.do(rtnl.down(index))
    return True


def in_use(host: str) -> bool:
    """Is there an interface of a Pod upon the lower end, and up?"""
    with rtnl.Rtnl() as home:
        found = home.attributes(lower(host))
    return found is not None and rtnl.number(found[rtnl.PROMISCUITY]) > 0


def _delete(home: rtnl.Rtnl, ifname: str) -> None:
    with contextlib.suppress(OSError):
        home.do(rtnl.delete(socket.if_nametoindex(ifname)))
