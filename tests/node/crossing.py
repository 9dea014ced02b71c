"""A node between a client and the addresses of Services: three network namespaces.

The test's own is the node. Behind it are the addresses of Services, which know the way to the
node alone: what reaches them with a client's address is never answered.
"""

import contextlib
import socket
import threading
from collections import Counter
from pathlib import Path

from pyroute2 import netns

from tests.node.workbench import shell

CLIENT, NODE = ("192.0.2.2", "2001:db8:1::2"), ("192.0.2.1", "2001:db8:1::1")
FACING = ("198.51.100.1", "2001:db8:2::1")  # the node's, towards the Services
SERVICES = ("198.51.100.2", "2001:db8:2::2")
WEB, OTHER = ("10.96.0.10", "fd96::10"), ("10.96.0.11", "fd96::11")  # ClusterIPs
V4, V6 = 0, 1
ANSWER = 60.0  # seconds for an answer: who gives it may have to wait for a processor


class Crossing:
    """:param client, services: names of namespaces that are empty so far."""

    def __init__(self, client, services):
        self.client, self.services = client, services
        for name, device, ours, theirs in (
            (client, "client0", NODE, CLIENT),
            (services, "services0", FACING, SERVICES),
        ):
            shell(f"ip link add {device} type veth peer name eth0 netns {name}")
            for inside, link, addresses in (("", device, ours), (f"-n {name}", "eth0", theirs)):
                shell(f"ip {inside} link set lo up")
                shell(f"ip {inside} link set {link} up")
                shell(f"ip {inside} address add {addresses[V4]}/24 dev {link}")
                shell(f"ip {inside} address add {addresses[V6]}/64 dev {link} nodad")
        shell("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
        # however long it takes until a flow's next datagram: the node still remembers it
        for setting in Path("/proc/sys/net/netfilter").glob("nf_conntrack_udp_timeout*"):
            setting.write_text("3600")
        for version, ranges in ((V4, "10.96.0.0/16"), (V6, "fd96::/112")):
            shell(f"ip route add {ranges} via {SERVICES[version]}")
            shell(f"ip -n {client} route add default via {NODE[version]}")
        for address in (*WEB, *OTHER):
            length = 128 if ":" in address else 32
            shell(f"ip -n {services} address add {address}/{length} dev lo")

    def open(self, namespace, kind, address):
        """A socket in a namespace, wherever it is used; None: the node's."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if namespace is None:
            return socket.socket(family, kind)
        with inside(namespace):
            return socket.socket(family, kind)

    def ask(self, address, port, kind=socket.SOCK_STREAM, *, at=..., timeout=ANSWER):
        """(who answered, whom it took us for), or None where nobody answers. At the client, or in
        another namespace."""
        with self.open(self.client if at is ... else at, kind, address) as channel:
            channel.settimeout(timeout)
            try:
                channel.connect((address, port))
                channel.send(b"?")
                return tuple(channel.recv(200).decode().split())
            except OSError:
                return None


@contextlib.contextmanager
def inside(namespace):
    with Path("/proc/thread-self/ns/net").open() as home:
        netns.setns(namespace)
        try:
            yield
        finally:
            netns.setns(home.fileno())


class Answering:
    """Answers at an address to all that comes: its own name, and the other's address."""

    def __init__(self, crossing, name, address, port, kind=socket.SOCK_STREAM, *, at=...):
        self.name = name
        self.asked = Counter()
        where = crossing.services if at is ... else at
        self._channel = crossing.open(where, kind, address)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._channel.bind((address, port))
        if kind == socket.SOCK_STREAM:
            self._channel.listen(500)
        serve = self._stream if kind == socket.SOCK_STREAM else self._datagrams
        threading.Thread(target=serve, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        self._channel.close()

    def _stream(self):
        with contextlib.suppress(OSError):
            while True:
                channel, peer = self._channel.accept()
                threading.Thread(target=self._talk, args=(channel, peer), daemon=True).start()

    def _talk(self, channel, peer):
        with channel, contextlib.suppress(OSError):
            while channel.recv(1):
                channel.send(self._answer(peer))

    def _datagrams(self):
        with contextlib.suppress(OSError):
            while True:
                _, peer = self._channel.recvfrom(1)
                if peer is None:
                    return  # shut down
                self._channel.sendto(self._answer(peer), peer)

    def _answer(self, peer):
        self.asked[peer[0]] += 1
        return f"{self.name} {peer[0]}".encode()
