"""Debian packages: installed with apt, or unpacked into a directory of their own.

Unpacking is for programs that the machine's release has only in an older version (Open vSwitch,
OVN, perhaps Go): the system's own libraries stay as they are. Where packages come from is read
from the machine's apt configuration.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.paths import Paths, locked, write_atomic
from lab.process import CommandError, run

# What the lab runs or calls and does not build or unpack itself.
PACKAGES = (
    "bind9-dnsutils",
    "ca-certificates",
    "curl",
    "ethtool",
    "gcc",
    "haproxy",
    "iproute2",
    "iptables",
    "iputils-ping",
    "libc6-dev",
    "mariadb-server",
    "nftables",
    "openssl",
    "procps",
    "python3-venv",
    "runc",
    "tcpdump",
    "util-linux",
)
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# in the packages of a release with a newer libc
_LOADER = "usr/lib64/ld-linux-x86-64.so.2"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_POLICY = Path("/usr/sbin/policy-rc.d")
_POLICY_TEXT = "#!/bin/sh\n# kuryr lab: packages must not start their services\nexit 101\n"
# Other users of apt hold its locks for a while: wait for them.
_WAIT = ("-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3")


def install(paths: Paths, packages: Sequence[str] = PACKAGES) -> None:
    """Install the packages that are missing, without starting any service."""
    if not _missing(packages):
        return
    with locked(paths.cache / "locks" / "apt"):
        missing = _missing(packages)
        if not missing:
            return
        _forbid_services()
        try:
            for attempt in range(3):
                try:
                    _install(paths, missing)
                    break
                except CommandError:
                    if attempt == 2:
                        raise
        finally:
            if _POLICY.exists() and _POLICY.read_text() == _POLICY_TEXT:
                _POLICY.unlink()


def unpack(
    paths: Paths, suite: str, packages: Sequence[str], target: Path, *, depended: bool = False
) -> None:
    """Unpack packages of a Debian suite into the directory target, and nothing else into it.

    The directory appears under its name only when it is complete.

    :param depended: unpack not the packages but what they depend on: the kernel's package has
        another name with each release, which only an empty package beside it knows.
    """
    with tempfile.TemporaryDirectory(dir=paths.cache, prefix=".unpack-") as directory:
        work = Path(directory)
        for part in ("lists/partial", "cache/archives/partial", "debs", "root"):
            (work / part).mkdir(parents=True)
        # apt drops its rights for downloads; this needs no write access for anybody else.
        settings = {
            "Dir::Etc::sourcelist": f"{work}/suite.sources",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State::lists": f"{work}/lists",
            "Dir::Cache": f"{work}/cache",
            "APT::Sandbox::User": "root",
        }
        options = ["-qq", *_WAIT]
        for name, value in settings.items():
            options += ["-o", f"{name}={value}"]
        (work / "suite.sources").write_text(
            f"Types: deb\nURIs: {mirror()}\nSuites: {suite}\nComponents: main\n"
            f"Signed-By: {_KEYRING}\n"
        )
        env = _environment(paths)
        run(["apt-get", *options, "update"], env=env, timeout=300)
        if depended:
            printed = run(["apt-cache", *options, "depends", *packages], env=env)
            packages = re.findall(r"(?m)^\s*Depends: ([^\s<]+)$", printed)
        wanted = [f"{package}/{suite}" for package in packages]
        run(["apt-get", *options, "download", *wanted], env=env, cwd=work / "debs", timeout=600)
        for archive in sorted((work / "debs").glob("*.deb")):
            run(["dpkg", "-x", str(archive), str(work / "root")])
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        (work / "root").rename(target)


def unpack_programs(
    paths: Paths, name: str, suite: str, packages: Sequence[str], programs: Mapping[str, str]
) -> Path:
    """Unpack programs of a newer Debian with their libraries, once.

    They want a newer libc, too, so each is started through its own dynamic loader.

    :param name: of the bundle.
    :param programs: where each of them is in the packages.
    :returns: the prefix, whose bin/ has the programs.
    """
    digest = hashlib.sha256(" ".join((suite, *packages, *programs.values())).encode())
    prefix = paths.cache / "debian" / f"{name}-{digest.hexdigest()[:12]}"
    marker = prefix / "complete"
    if not marker.exists():
        with locked(paths.cache / "locks" / name):
            if not marker.exists():
                unpack(paths, suite, packages, prefix)
                _write_wrappers(prefix, programs)
                write_atomic(marker, "")
    return prefix


def _write_wrappers(prefix: Path, programs: Mapping[str, str]) -> None:
    for name, location in programs.items():
        program = prefix / location
        if program.exists():
            # Utilities in Python would need the prefix's modules as well; none is listed.
            write_atomic(
                prefix / "bin" / name,
                f"#!/bin/sh\nexec {prefix / _LOADER} --argv0 {name} "
                f'--library-path {prefix / _LIBRARIES} {program} "$@"\n',
                0o755,
            )


def _install(paths: Paths, missing: Sequence[str]) -> None:
    archives = paths.cache / "apt"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    env = _environment(paths)
    # Someone may have been interrupted before: dpkg refuses everything until this is done.
    run(["dpkg", "--force-confold", "--configure", "-a"], env=env, check=False, timeout=600)
    # Sources of others may be unreachable: what counts is whether the install works.
    run(["apt-get", *_WAIT, "update"], env=env, check=False, timeout=600)
    common = [
        *_WAIT,
        "-o",
        f"Dir::Cache::Archives={archives}",
        "-o",
        "APT::Sandbox::User=root",
        "-y",
        "--no-install-recommends",
    ]
    run(["apt-get", *common, "--fix-broken", "install"], env=env, check=False, timeout=900)
    run(["apt-get", *common, "install", *missing], env=env, timeout=900)


def _environment(paths: Paths) -> dict[str, str]:
    """Return variables for apt: the machine's configuration without its hooks.

    Container images have hooks that delete the archives after every update and install: two runs
    of apt at the same time then delete each other's.
    """
    settings, start = paths.cache / "apt.conf", paths.cache / "apt-start.conf"
    own = Path("/etc/apt/apt.conf")
    write_atomic(
        settings,
        "".join(
            (
                f'#include "{own}";\n' if own.exists() else "",
                "#clear DPkg::Post-Invoke;\n#clear APT::Update::Post-Invoke;\n",
                "#clear APT::Update::Post-Invoke-Success;\n",
            )
        ),
    )
    # Read before everything else; it names the file that is read after everything else.
    write_atomic(start, f'Dir::Etc::main "{settings}";\n')
    return {"DEBIAN_FRONTEND": "noninteractive", "APT_CONFIG": str(start)}


def _missing(packages: Sequence[str]) -> list[str]:
    output = run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n", *packages], check=False
    )
    fields = (line.split() for line in output.splitlines())
    present = {field[0] for field in fields if field[1:2] == ["ii"]}
    return [package for package in packages if package not in present]


def _forbid_services() -> None:
    if not _POLICY.exists():
        _POLICY.write_text(_POLICY_TEXT)
        _POLICY.chmod(0o755)


def mirror() -> str:
    """Return the address of the Debian archive that this machine uses."""
    sources = Path("/etc/apt")
    files = [sources / "sources.list", *sorted((sources / "sources.list.d").glob("*"))]
    for file in files:
        text = file.read_text() if file.is_file() else ""
        for match in re.finditer(
            r"^(?:URIs:\s*|deb\s+(?:\[[^]]*\]\s*)?)(\S+/debian)/?(?=\s|$)", text, re.MULTILINE
        ):
            return match.group(1)
    raise CommandError(f"no Debian archive in {sources}; is this Debian? ({os.uname().version})")
