"""Python 3.13 from Debian 13, beside whatever the system has.

Its libc is newer than Debian 12's. The packages are unpacked into a directory of their own, and
the interpreter is told to use the loader and the libraries there; what it starts uses the system's
as ever.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from lab.install import debian
from lab.paths import Paths, locked, write_atomic
from lab.process import run

_SUITE = "trixie"
_PACKAGES = (
    "python3.13",
    "python3.13-minimal",
    "python3.13-venv",
    "python3.13-dev",
    "libpython3.13",
    "libpython3.13-dev",
    "libpython3.13-minimal",
    "libpython3.13-stdlib",
    "libc6",
    "libgcc-s1",
    "libstdc++6",
    "libbz2-1.0",
    "libdb5.3t64",
    "libexpat1",
    "libffi8",
    "liblzma5",
    "libncursesw6",
    "libreadline8t64",
    "libsqlite3-0",
    "libssl3t64",
    "libtinfo6",
    "libuuid1",
    "libzstd1",
    "zlib1g",
)
_LOADER = "usr/lib64/ld-linux-x86-64.so.2"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"


def install(paths: Paths) -> Path:
    """Unpack the packages once.

    :returns: the interpreter.
    """
    digest = hashlib.sha256(" ".join((_SUITE, *_PACKAGES)).encode()).hexdigest()
    prefix = paths.cache / "debian" / f"python3.13-{digest[:12]}"
    program, marker = prefix / "usr/bin/python3.13", prefix / "complete"
    with locked(paths.cache / "locks" / "python3.13"):
        if not marker.exists():
            debian.install(paths, ("patchelf",))
            debian.unpack(paths, _SUITE, _PACKAGES, prefix)
            loader = ("--set-interpreter", str(prefix / _LOADER))
            # RPATH rather than RUNPATH: it counts for what the libraries load, too
            libraries = ("--force-rpath", "--set-rpath", str(prefix / _LIBRARIES))
            run(["patchelf", *loader, *libraries, str(program)])
            run([str(program), "-c", "import ctypes, lzma, sqlite3, ssl, venv"])
            write_atomic(marker, "")
    return program
