"""A stand-in for the runtime of secure containers, as Kata's takes over a Pod's network.

Kata looks at the links of the Pod's namespace once, when the sandbox starts. For each link with an
address it makes a tap beside it and redirects all frames of either one to the other (its model
`tcfilter`). The virtual machine behind the tap has the link's MAC, MTU, addresses and routes; the
namespace's own stack sees no frame any more. (`virtcontainers/network_linux.go`)

Here another namespace stands for the virtual machine; a process carries the frames between its tap
and the one in the Pod's namespace, as the hypervisor does.
"""

import contextlib
import fcntl
import json
import os
import select
import struct
import subprocess
import sys

from pyroute2.netns import setns

from lab.paths import REPOSITORY
from lab.process import run

TAP = "tap0_kata"
# The kinds of links that Kata's runtime in Go takes ("" is a physical one); its runtime in Rust
# takes VLANs, too. (`virtcontainers/network_linux.go`, createEndpoint)
TAKEN = ("", "veth", "macvlan", "ipvlan", "tuntap")
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
LONGEST = 65536  # bytes of a frame


class Link:
    """A link as the runtime sees it."""

    def __init__(self, shown, routes):
        self.name, self.mac, self.mtu = shown["ifname"], shown["address"], shown["mtu"]
        self.kind = shown.get("linkinfo", {}).get("info_kind", "")
        self.addresses = [
            f"{each['local']}/{each['prefixlen']}"
            for each in shown["addr_info"]
            if each["scope"] == "global"
        ]
        self.routes = [each for each in routes if each.get("dev") == self.name]

    def __str__(self):
        taken = "taken" if self.kind in TAKEN else "refused"
        addresses = ", ".join(self.addresses)
        return (
            f"{self.name}: {self.kind or 'device'} ({taken}), {self.mac}, {self.mtu}, {addresses}"
        )


def links_of(netns):
    """Return the links with addresses of a Pod's namespace, which a path names."""
    inside = ["nsenter", f"--net={netns}", "--", "ip", "-json", "-details"]
    routes = [
        route
        for family in ("-4", "-6")
        for route in json.loads(run([*inside, family, "route", "show"]))
    ]
    found = [Link(each, routes) for each in json.loads(run([*inside, "address", "show"]))]
    return [link for link in found if link.addresses]


@contextlib.contextmanager
def running(netns, name):
    """Run a secure container with the only link of a Pod's namespace.

    :returns: the network namespace that stands for its virtual machine.
    """
    (link,) = links_of(netns)
    guest = f"kata-{name}"
    run(["ip", "netns", "add", guest])
    carrier = None
    try:
        command = [sys.executable, "-m", __name__, netns, f"/run/netns/{guest}", link.name]
        carrier = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE)
        assert carrier.stdout.read(1) == b"1", "the taps are not there"
        _redirect(netns, link)
        _configure(guest, link)
        yield guest
    finally:
        if carrier is not None:
            carrier.kill()
            carrier.communicate()
        run(["ip", "netns", "del", guest])


def _redirect(netns, link):
    inside = ["nsenter", f"--net={netns}", "--"]
    run([*inside, "ip", "link", "set", TAP, "mtu", str(link.mtu), "up"])
    for one, other in ((link.name, TAP), (TAP, link.name)):
        run([*inside, "tc", "qdisc", "add", "dev", one, "ingress"])
        matching = ["parent", "ffff:", "protocol", "all", "u32", "match", "u8", "0", "0"]
        redirected = ["action", "mirred", "egress", "redirect", "dev", other]
        run([*inside, "tc", "filter", "add", "dev", one, *matching, *redirected])


def _configure(guest, link):
    """Give the machine what the link has, as Kata's agent does."""
    ip = ["ip", "-n", guest]
    run([*ip, "link", "set", "lo", "up"])
    settings = ["address", link.mac, "mtu", str(link.mtu), "up"]
    run([*ip, "link", "set", link.name, *settings])
    for address in link.addresses:
        run([*ip, "address", "add", address, "dev", link.name, "nodad"])
    for route in sorted(link.routes, key=lambda each: "gateway" in each):
        if route.get("protocol") != "kernel" and route["dst"] != "fe80::/64":
            via = ["via", route["gateway"]] if "gateway" in route else ["scope", "link"]
            run([*ip, "route", "replace", route["dst"], *via, "dev", link.name])


def _tap(netns, name):
    """Make a tap in a namespace; a file of its frames, which keeps it there."""
    setns(netns)
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def main(netns, guest, name):
    """Carry frames until this process is killed."""
    taps = [_tap(netns, TAP), _tap(guest, name)]
    other = dict(zip(taps, reversed(taps), strict=True))
    os.write(1, b"1")
    while True:
        for tap in select.select(taps, [], [])[0]:
            with contextlib.suppress(OSError):  # the other one is down
                os.write(other[tap], os.read(tap, LONGEST))


if __name__ == "__main__":
    main(*sys.argv[1:])
