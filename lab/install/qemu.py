"""QEMU 10 from Debian 13, beside whatever the system has.

Debian 12's QEMU 7.2 emulates no network card with virtual functions; since 8.0 there is one (igb).
"""

from __future__ import annotations

from lab.install import debian
from lab.paths import Paths

# Debian 12's package has the program that shares directories with a machine (virtiofsd).
SYSTEM_PACKAGES = ("qemu-system-common",)
_PACKAGES = (
    "qemu-system-x86",
    "qemu-system-data",
    "seabios",
    "libaio1t64",
    "libatomic1",
    "libblkid1",
    "libbpf1",
    "libc6",
    "libcap2",
    "libcapstone5",
    "libdaxctl1",
    "libelf1t64",
    "libfdt1",
    "libffi8",
    "libfuse3-4",
    "libglib2.0-0t64",
    "libgmp10",
    "libgnutls30t64",
    "libhogweed6t64",
    "libibverbs1",
    "libidn2-0",
    "libjpeg62-turbo",
    "libkmod2",
    "libmount1",
    "libndctl6",
    "libnettle8t64",
    "libnl-3-200",
    "libnl-route-3-200",
    "libnuma1",
    "libp11-kit0",
    "libpcre2-8-0",
    "libpixman-1-0",
    "libpmem1",
    "libpng16-16t64",
    "librdmacm1t64",
    "libsasl2-2",
    "libseccomp2",
    "libselinux1",
    "libslirp0",
    "libssl3t64",
    "libtasn1-6",
    "libudev1",
    "libunistring5",
    "liburing2",
    "libuuid1",
    "libvdeplug2t64",
    "libzstd1",
    "zlib1g",
)
_PROGRAM = "qemu-system-x86_64"


def install(paths: Paths) -> tuple[str, ...]:
    """Unpack the packages once.

    :returns: the beginning of the command line: the program, and where its firmware is.
    """
    debian.install(paths, SYSTEM_PACKAGES)
    prefix = debian.unpack_programs(
        paths, "qemu", "trixie", _PACKAGES, {_PROGRAM: f"usr/bin/{_PROGRAM}"}
    )
    data = prefix / "usr/share"
    firmware = ("-L", str(data / "qemu"), "-L", str(data / "seabios"))
    return (str(prefix / "bin" / _PROGRAM), *firmware)
