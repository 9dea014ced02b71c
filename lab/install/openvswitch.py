"""Open vSwitch 3.5 and OVN 25.03 from Debian 13, beside whatever the system has.

Debian 12's ovs-vswitchd 3.1.0 aborts in the userspace connection tracking under NAT and load
balancer traffic. The newer packages want a newer libc, so they are unpacked into a directory of
their own together with their libraries, and started through their own dynamic loader.
"""

from __future__ import annotations

from pathlib import Path

from lab.install import debian
from lab.paths import Paths

_SUITE = "trixie"
_PACKAGES = (
    "openvswitch-switch",
    "openvswitch-common",
    "ovn-central",
    "ovn-host",
    "ovn-common",
    "libc6",
    "libbpf1",
    "libcap-ng0",
    "libnuma1",
    "libssl3t64",
    "libunbound8",
    "libxdp1",
    "libudev1",
    "libelf1t64",
    "zlib1g",
    "libzstd1",
    "libevent-2.1-7t64",
    "libexpat1",
    "libnghttp2-14",
    "libprotobuf-c1",
    "libhogweed6t64",
    "libnettle8t64",
    "libgmp10",
    "libcap2",
    "libgcc-s1",
    "libatomic1",
)
_LOCATIONS = {
    "ovs-vswitchd": "usr/lib/openvswitch-switch/ovs-vswitchd",
    "ovsdb-server": "usr/sbin/ovsdb-server",
} | {
    name: f"usr/bin/{name}"
    for name in (
        "ovsdb-tool",
        "ovsdb-client",
        "ovs-vsctl",
        "ovs-appctl",
        "ovs-ofctl",
        "ovs-dpctl",
        "ovn-controller",
        "ovn-northd",
        "ovn-nbctl",
        "ovn-sbctl",
        "ovn-appctl",
        "ovn-trace",
    )
}
PROGRAMS = tuple(_LOCATIONS)


def install(paths: Paths) -> Path:
    """Unpack the packages once.

    :returns: the prefix, whose bin/ has the programs.
    """
    return debian.unpack_programs(paths, "openvswitch", _SUITE, _PACKAGES, _LOCATIONS)


def schema(paths: Paths, name: str) -> Path:
    """Find the database schema file of vswitch, ovn-nb or ovn-sb."""
    folder = "openvswitch" if name == "vswitch" else "ovn"
    return install(paths) / "usr/share" / folder / f"{name}.ovsschema"
