"""Network namespaces, veth pairs, addresses and routes of the lab in the kernel."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from lab.process import run, succeeds

_NETNS = Path("/run/netns")


def share_namespace_directory() -> None:
    """Make /run/netns a shared mount, as the first `ip netns add` does.

    Done later, it would hide a network namespace that a container runtime had mounted there, which
    then can never be removed.
    """
    _NETNS.mkdir(parents=True, exist_ok=True)
    if not succeeds(["mountpoint", "-q", str(_NETNS)]):
        run(["mount", "--bind", str(_NETNS), str(_NETNS)])
        run(["mount", "--make-shared", str(_NETNS)])


def add_namespace(name: str) -> None:
    """Add a network namespace unless it exists; one that is only a dead file is made again."""
    path = _NETNS / name
    if path.exists() and not succeeds(["nsenter", f"--net={path}", "true"]):
        run(["umount", "-l", str(path)], check=False)
        path.unlink()
    if not path.exists():
        run(["ip", "netns", "add", name])
    run(["ip", "link", "set", "lo", "up"], netns=name)
    # Duplicate address detection would leave addresses unusable for a second.
    _sysctl(
        {
            "net.ipv4.ip_forward": "1",
            "net.ipv6.conf.all.forwarding": "1",
            "net.ipv6.conf.default.accept_dad": "0",
            "net.ipv6.conf.all.accept_dad": "0",
            "net.ipv6.conf.default.accept_ra": "0",
        },
        netns=name,
    )


def enable_forwarding() -> None:
    """Let the machine's own namespace forward packets, as the gateway of the nodes' pods.

    It has node ports besides. Routes that it has from advertisements stay: a router takes them
    only where it is told to.
    """
    for path in Path("/proc/sys/net/ipv6/conf").glob("*/accept_ra"):
        if path.read_text().strip() == "1":
            path.write_text("2")
    _sysctl({"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1"}, netns=None)


def delete_namespace(name: str) -> None:
    """Delete a network namespace if it exists."""
    if (_NETNS / name).exists():
        run(["ip", "netns", "del", name], check=False)


def namespaces(prefix: str) -> list[str]:
    """List the network namespaces whose names begin so."""
    return sorted(path.name for path in _NETNS.glob(f"{prefix}*"))


def link_exists(name: str, netns: str | None) -> bool:
    """Return whether the namespace has a link of this name."""
    return succeeds(["ip", "link", "show", "dev", name], netns=netns)


def add_veth(name: str, peer: str, *, netns: str | None, peer_netns: str | None, mtu: int) -> None:
    """Add a veth pair between two namespaces, up, without offloads; replace a broken half."""
    if not (link_exists(name, netns) and link_exists(peer, peer_netns)):
        run(["ip", "link", "del", name], netns=netns, check=False)
        run(["ip", "link", "del", peer], netns=peer_netns, check=False)
        # The peer is born in its namespace: moving it there later is ten times slower.
        inner = [] if peer_netns == netns else ["netns", _handle(peer_netns)]
        run(
            [
                "ip",
                "link",
                "add",
                name,
                "mtu",
                str(mtu),
                "type",
                "veth",
                "peer",
                "name",
                peer,
                "mtu",
                str(mtu),
                *inner,
            ],
            netns=netns,
        )
    for device, namespace in ((name, netns), (peer, peer_netns)):
        run(["ip", "link", "set", device, "mtu", str(mtu), "up"], netns=namespace)
        checksums_in_software(device, namespace)


def checksums_in_software(device: str, netns: str | None) -> None:
    """Turn checksum offloading off: the userspace datapath forwards frames as they are."""
    run(["ethtool", "-K", device, "tx", "off"], netns=netns, check=False)


def configure(
    device: str,
    addresses: Iterable[str],
    *,
    netns: str | None,
    mac: str | None = None,
    mtu: int | None = None,
) -> None:
    """Give the device its MAC and addresses (with prefix length) and set it up."""
    _sysctl(
        {f"net.ipv6.conf.{device}.accept_dad": "0", f"net.ipv6.conf.{device}.accept_ra": "0"},
        netns,
    )
    changes = [*(["address", mac] if mac else []), *(["mtu", str(mtu)] if mtu else [])]
    run(["ip", "link", "set", device, *changes, "up"], netns=netns)
    for address in addresses:
        family = ["-6"] if ":" in address else ["-4"]
        extra = ["nodad"] if ":" in address else []
        run(["ip", *family, "addr", "replace", address, "dev", device, *extra], netns=netns)


def route(
    destination: str, via: str | None, device: str, *, netns: str | None, mtu: int | None = None
) -> None:
    """Set a route; via may be None for a destination on the link."""
    family = "-6" if ":" in destination else "-4"
    gateway = ["via", via] if via else []
    size = ["mtu", str(mtu)] if mtu else []
    run(
        ["ip", family, "route", "replace", destination, *gateway, "dev", device, *size],
        netns=netns,
    )


def delete_link(name: str, netns: str | None = None) -> None:
    """Delete a link if it exists."""
    run(["ip", "link", "del", name], netns=netns, check=False)


def delete_leftovers_of_the_daemon(netns: str | None) -> None:
    """Delete what the product's daemon keeps for its node beyond its end.

    That is what leads node ports to Services, and what leads to and from `kuryr0`.
    """
    for table in ("kuryr-node-ports", "kuryr-node"):
        run(["nft", "delete", "table", "inet", table], netns=netns, check=False)
    for family in ("-4", "-6"):
        while succeeds(["ip", family, "rule", "del", "protocol", "107"], netns=netns):
            pass
        run(["ip", family, "route", "flush", "table", "107"], netns=netns, check=False)


def links() -> list[str]:
    """List the names of the links in the machine's own namespace."""
    return [link["ifname"] for link in json.loads(run(["ip", "-j", "link", "show"]))]


def _handle(netns: str | None) -> str:
    """Return the name by which `ip` knows a namespace, or 1 for that of the first process."""
    return netns if netns is not None else "1"


def _sysctl(values: dict[str, str], netns: str | None) -> None:
    # -e: a kernel without IPv6 lacks some of them.
    run(
        ["sysctl", "-q", "-e", "-w", *(f"{name}={value}" for name, value in values.items())],
        netns=netns,
    )
