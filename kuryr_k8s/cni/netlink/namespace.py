"""Work inside a Pod's network namespace, done by a thread that enters it."""

import contextlib
import functools
import logging
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from kuryr_k8s.cni.netlink import device, rtnl
from kuryr_k8s.cni.netlink.pyroute import IPRoute, netns
from kuryr_k8s.cni.netlink.wiring import NamespaceError, Observed, Wiring

LOG = logging.getLogger(__name__)
OWN = "/proc/thread-self/ns/net"
SYSCTL = Path("/proc/sys/net")  # of the namespace that the reading thread is in
UP = 0x1


def mounted() -> dict[str, str]:
    """Return the paths at which network namespaces are mounted, by their last parts.

    See proc_pid_mountinfo(5): the root, the mount point, and after a hyphen the type.
    """
    found = {}
    for line in Path("/proc/thread-self/mountinfo").read_text().splitlines():
        fields, _, kind = line.partition(" - ")
        _id, _parent, _device, root, point, *_ = fields.split(" ")
        if kind.startswith("nsfs ") and root.startswith("net:"):
            path = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), point))
            found[path.name] = str(path)
    return found


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    """Open the namespace at ``path``, and yield its descriptor.

    :raises NamespaceError: there is none (a mere file may be left), or it is the node's own.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NamespaceError(f"network namespace {path}: {error.strerror}") from error
    try:
        found, own = os.fstat(file), os.stat(OWN)  # noqa: PTH116 - a descriptor
        if found.st_dev != own.st_dev:
            raise NamespaceError(f"{path} is not a network namespace")
        if os.path.samestat(found, own):
            raise NamespaceError(f"network namespace {path} is the node's own")
        yield file
    finally:
        os.close(file)


@contextlib.contextmanager
def entered(namespace: int) -> Iterator[rtnl.Rtnl]:
    """Enter a namespace for the body, and yield a netlink socket in it."""
    home = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            netns.setns(namespace)
        except OSError as error:
            raise NamespaceError(f"not a network namespace: {error.strerror}") from error
        try:
            with rtnl.Rtnl() as inside:
                yield inside
        finally:
            netns.setns(home)
    finally:
        os.close(home)


def isolate(host: str) -> None:
    """Isolate the node's own network stack from an end of a veth that stays on the node.

    A bridge in user space gets a copy of what arrives there, but the kernel gets it as well: a
    Pod could reach the node past its security groups, over a link-local address or by ARP. The
    kernel also gets the broadcasts to a Pod whose interface is on top of such an end.
    """
    for name, value in (
        (f"ipv6/conf/{host}/disable_ipv6", "1"),
        (f"ipv4/conf/{host}/arp_ignore", "8"),
        (f"ipv4/conf/{host}/rp_filter", "1"),
    ):
        try:
            _sysctl(name, value)
        except OSError as error:
            _report_not_isolated(error.strerror or str(error))


@functools.cache  # once, and not for every Pod
def _report_not_isolated(reason: str) -> None:
    LOG.error(
        "Pods can reach this node past their security groups, as the daemon cannot write to %s: "
        "%s. Allow that; a container must be privileged",
        SYSCTL,
        reason,
    )


def prepare(inside: rtnl.Rtnl, wiring: Wiring) -> None:
    """Do everything that can be done before packets flow; the link stays down.

    The IPv6 settings must be made before it goes up: no router may configure the Pod, not even one
    without IPv6 addresses, and addresses from Neutron need no detection of duplicates.
    """
    index = socket.if_nametoindex(wiring.ifname)
    device.set_up("lo")
    if not wiring.offload:
        device.checksums_off(wiring.ifname)
    _sysctl(f"ipv4/conf/{wiring.ifname}/arp_notify", "1")
    _sysctl(f"ipv6/conf/{wiring.ifname}/accept_ra", "0")
    if wiring.has_ipv6:
        _sysctl(f"ipv6/conf/{wiring.ifname}/disable_ipv6", "0")
        _sysctl(f"ipv6/conf/{wiring.ifname}/accept_dad", "0")
        _sysctl(f"ipv6/conf/{wiring.ifname}/ndisc_notify", "1")
    inside.do(*(rtnl.address(index, a) for a in wiring.addresses if ":" not in a))


def activate(inside: rtnl.Rtnl, wiring: Wiring) -> None:
    """Let packets flow and announce the addresses; call this when the bridge forwards.

    Neighbours may remember the addresses with the MAC of a Pod that had them before. The kernel
    announces IPv4 addresses when the link goes up (arp_notify), and IPv6 ones when they are
    added to a link that is up (ndisc_notify).
    """
    index = socket.if_nametoindex(wiring.ifname)
    addresses = [rtnl.address(index, a) for a in wiring.addresses if ":" in a]
    routes = [rtnl.route(index, r.destination, r.gateway) for r in wiring.routes]
    inside.do(rtnl.up(index), *addresses, *routes)


def observe(ifname: str) -> Observed | None:
    """Return an interface as it is, None if it does not exist."""
    try:
        index = socket.if_nametoindex(ifname)
    except OSError:
        return None
    with IPRoute() as route:
        link = next(iter(route.link("get", index=index)))
        addresses = [
            f"{item.get_attr('IFA_ADDRESS')}/{item['prefixlen']}"
            for item in route.get_addr(index=index)
        ]
    return Observed(
        mac=link.get_attr("IFLA_ADDRESS"),
        mtu=link.get_attr("IFLA_MTU"),
        up=bool(link["flags"] & UP),
        addresses=frozenset(addresses),
    )


def _sysctl(name: str, value: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
        (SYSCTL / name).write_text(value)
