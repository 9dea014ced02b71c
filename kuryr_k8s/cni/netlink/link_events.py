"""Reports of the kernel about interfaces that go, in the namespaces of the node and of Pods."""

import asyncio
import errno
import logging
import socket
import struct
from collections.abc import Callable

from kuryr_k8s.cni.netlink import rtnl
from kuryr_k8s.cni.netlink.messages import ROOM, attributes, messages

LOG = logging.getLogger(__name__)
# linux/netlink.h, linux/rtnetlink.h
_SOL_NETLINK, _LISTEN_ALL_NSID = 270, 8
_GROUP_LINK = 1
_BUFFER = 1 << 20  # bytes: hundreds of interfaces may go at once
_HEAD = 16  # bytes of struct ifinfomsg

Gone = Callable[[str, int | None], None]


class LinkEvents:
    """Calls subscribers with the name of each interface that has gone.

    The number of its namespace comes with it, None for the node's own: the kernel reports the
    interfaces of each namespace that has a number here. The lower end of a parked pair counts as
    gone when nothing is on top of it any more. The name is empty when reports have been lost.
    """

    def __init__(self) -> None:
        self._subscribers: list[Gone] = []

    def subscribe(self, subscriber: Gone) -> None:
        """Call a function whenever an interface has gone."""
        self._subscribers.append(subscriber)

    async def run(self) -> None:
        """Listen until cancelled."""
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE) as kernel:
            kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            _listen_to_pods(kernel)
            kernel.bind((0, _GROUP_LINK))
            loop = asyncio.get_running_loop()
            loop.add_reader(kernel, self._read, kernel)
            try:
                await asyncio.Event().wait()
            finally:
                loop.remove_reader(kernel)

    def _read(self, kernel: socket.socket) -> None:
        try:
            data, extra, _flags, _sender = kernel.recvmsg(ROOM, socket.CMSG_SPACE(4))
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            LOG.debug("the kernel has reported more interfaces than fit in the buffer")
            self._tell("", None)
            return
        number = None
        for level, kind, value in extra:
            if (level, kind) == (_SOL_NETLINK, _LISTEN_ALL_NSID):
                (number,) = struct.unpack("=i", value[:4])
        for kind, _sequence, body in messages(data):
            if kind in (rtnl.NEWLINK, rtnl.DELLINK):
                self._examine(kind, body, number)

    def _examine(self, kind: int, body: bytes, number: int | None) -> None:
        found = dict(attributes(body[_HEAD:])) if kind == rtnl.DELLINK else _lower_end(body)
        name = rtnl.text(found.get(rtnl.IFNAME, b""))
        if name:
            self._tell(name, number)

    def _tell(self, name: str, number: int | None) -> None:
        for subscriber in self._subscribers:
            subscriber(name, number)


def _listen_to_pods(kernel: socket.socket) -> None:
    """Hear of the interfaces in the namespaces of Pods as well, if that is permitted."""
    try:
        kernel.setsockopt(_SOL_NETLINK, _LISTEN_ALL_NSID, 1)
    except PermissionError:
        LOG.warning(
            "without CAP_NET_BROADCAST the daemon may take a minute to notice that a VLAN "
            "interface of a Pod was deleted; add it to CapabilityBoundingSet of the daemon's unit"
        )


def _lower_end(body: bytes) -> dict[int, bytes]:
    """Return the attributes of a lower end that has nothing on top of it, else nothing.

    The name is the first attribute of such a report; most reports are of other interfaces.
    """
    if not body.startswith(b"park", _HEAD + 4):
        return {}
    found = dict(attributes(body[_HEAD:]))
    unused = rtnl.PROMISCUITY in found and not rtnl.number(found[rtnl.PROMISCUITY])
    return found if unused else {}
