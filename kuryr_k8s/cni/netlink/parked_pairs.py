"""Parked pairs: veth pairs that are ready for a Pod, and how a Pod gets one.

Both ends of a parked pair stay on the node. One is in the bridge; the other, the lower end, is
down, so that nothing passes. A Pod gets a macvlan of mode passthru on top of the lower end. It is
made in the Pod's namespace in a millisecond, and goes with the namespace, while moving an end of
a veth takes twenty, and only one at a time. An interface can carry only one macvlan of this mode,
so no two Pods can have the same pair.
"""

import contextlib
import dataclasses
import socket
from collections.abc import Iterable

from kuryr_k8s.cni.netlink import device, namespace, rtnl
from kuryr_k8s.cni.netlink.wiring import LinkError, NamespaceError, Wiring


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ParkedPair:
    """A veth pair to park.

    :param host: the name of the end in the bridge.
    :param mac: the MAC of the lower end, and later of the Pod.
    :param mtu: in bytes; None for the kernel's default.
    :param offload: as in :class:`Wiring`.
    """

    host: str
    mac: str
    mtu: int | None
    offload: bool

    @property
    def lower(self) -> str:
        """Return the name of the lower end."""
        return lower(self.host)


def lower(host: str) -> str:
    """Return the name of the lower end, of 15 letters at the most."""
    return f"park{host.removeprefix('tap')}"[:15]


def park(pairs: Iterable[ParkedPair], alias: str) -> None:
    """Make pairs, in place of leftovers that have the name of one of their ends.

    :raises LinkError: a Pod has an interface of that name; it stays.
    """
    with rtnl.Rtnl() as home:
        for pair in pairs:
            _park(home, pair, alias)


def _park(home: rtnl.Rtnl, pair: ParkedPair, alias: str) -> None:
    wanted = (
        rtnl.veth(pair.host, pair.lower, pair.mac, pair.mtu),
        rtnl.alias(pair.host, alias),
    )
    try:
        home.do(*wanted)
    except FileExistsError:
        if _occupied(home, pair.host):
            raise LinkError(f"a Pod has {pair.host}") from None
        for name in (pair.host, pair.lower):
            _delete(home, name)
        home.do(*wanted)
    namespace.isolate(pair.host)
    namespace.isolate(pair.lower)
    if not pair.offload:
        device.checksums_off(pair.lower)
    home.do(rtnl.up(socket.if_nametoindex(pair.host)))


def hand_over(host: str, alias: str, netns: str, wiring: Wiring, *, up: bool) -> str:
    """Give a Pod the lower end. If this fails, the pair is parked as before, but for its alias.

    :param alias: of the end in the bridge as long as the Pod has the pair.
    :param up: set the Pod's end up as well.
    :returns: the MAC of the host's end.
    :raises NamespaceError: the Pod's namespace does not exist.
    :raises LinkError: the pair has been changed, or the kernel refuses.
    """
    below = lower(host)
    with namespace.opened(netns) as target, rtnl.Rtnl() as home:
        upper, index = _indexes(host)
        wiring = dataclasses.replace(wiring, offload=True)  # the lower end computes checksums
        if device.mac(below) != wiring.mac.lower():
            raise LinkError(f"the MAC of {below} has been changed")
        if wiring.mtu is not None:  # the network's may have changed since the port was parked
            for end in (host, below):
                device.set_mtu(end, wiring.mtu)
        home.do(
            rtnl.alias(host, alias),
            rtnl.macvlan(wiring.ifname, index, rtnl.PASSTHRU, wiring.mtu, netns=target),
        )
        try:
            with namespace.entered(target) as inside:
                namespace.prepare(inside, wiring)
                if up:
                    home.do(rtnl.up(upper), rtnl.up(index))
                    namespace.activate(inside, wiring)
            return device.mac(host)
        except BaseException:
            take_back(host, alias, netns, wiring.ifname)
            raise


def activate(host: str, netns: str, wiring: Wiring) -> None:
    """Set a Pod's end up that was handed over down."""
    with namespace.opened(netns) as target, rtnl.Rtnl() as home:
        home.do(*map(rtnl.up, _indexes(host)))
        with namespace.entered(target) as inside:
            namespace.activate(inside, wiring)


def take_back(host: str, alias: str, netns: str, ifname: str) -> None:
    """Block the lower end, then delete the Pod's interface, addresses and routes included.

    The alias is set last: as long as the Pod has something, the pair looks like the Pod's.

    A namespace that cannot be entered has gone, as a rule with everything in it. If something
    were left, the kernel would refuse the next hand-over.

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
            if is_upper(inside, ifname, index):
                inside.do(rtnl.delete(socket.if_nametoindex(ifname)))
        home.do(rtnl.alias(host, alias))


def is_upper(inside: rtnl.Rtnl, ifname: str, index: int) -> bool:
    """Return whether an interface of a Pod is a macvlan on the lower end of this index."""
    found = inside.attributes(ifname)
    if found is None or rtnl.kind(found) != "macvlan":
        return False
    return rtnl.number(found[rtnl.LINK]) == index


def block(host: str) -> bool:
    """Let nothing pass a pair.

    :returns: whether both ends exist.
    """
    try:
        _, index = _indexes(host)
    except OSError:
        return False
    with rtnl.Rtnl() as home:
        home.do(rtnl.down(index))
    return True


def in_use(host: str) -> bool:
    """Return whether a Pod has an interface on top of the lower end, and it is up."""
    with rtnl.Rtnl() as home:
        found = home.attributes(lower(host))
    return found is not None and rtnl.number(found[rtnl.PROMISCUITY]) > 0


def occupied(host: str) -> bool:
    """Return whether a Pod has the interface of this name, or what is on its lower end."""
    with rtnl.Rtnl() as home:
        return _occupied(home, host)


def _occupied(home: rtnl.Rtnl, host: str) -> bool:
    upper = home.attributes(host)
    if upper is None:
        return False
    below = home.attributes(lower(host))
    if below is not None:
        return rtnl.number(below[rtnl.PROMISCUITY]) > 0
    return rtnl.LINK_NETNSID in upper  # its peer is in another namespace


def _indexes(host: str) -> tuple[int, int]:
    """Return the indexes of the end in the bridge and of the lower end.

    Whoever sets the lower end up sets both up, for the reason in :meth:`Links.activate`.
    """
    return socket.if_nametoindex(host), socket.if_nametoindex(lower(host))


def _delete(home: rtnl.Rtnl, ifname: str) -> None:
    with contextlib.suppress(OSError):
        home.do(rtnl.delete(socket.if_nametoindex(ifname)))
