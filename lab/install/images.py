"""Container images made by hand: there is no registry to pull from.

lab.local/pause:1 is the sandbox of every pod; lab.local/busybox:1 has a shell, httpd, nc, wget,
ping and ip, and a page in /www for httpd; lab.local/curl:1 has besides curl, which knows TLS,
and nslookup, which knows search domains as busybox's does not;
lab.local/coredns:1 is the cluster's DNS.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.install import binaries, debian
from lab.paths import Paths, locked, write_atomic
from lab.process import run

PAUSE, BUSYBOX = "lab.local/pause:1", "lab.local/busybox:1"
CURL, COREDNS = "lab.local/curl:1", "lab.local/coredns:1"
SMALL = (PAUSE, BUSYBOX)
IMAGES = (*SMALL, CURL, COREDNS)


def archives(paths: Paths) -> dict[str, Path]:
    """Make the images as docker archives, each on first use.

    :returns: the file of each image by its name.
    """
    result = {
        name: paths.cache / "images" / f"{name.rpartition('/')[2].replace(':', '-')}.tar"
        for name in IMAGES
    }
    with locked(paths.cache / "locks" / "images"):
        if not result[PAUSE].exists():
            write_atomic(result[PAUSE], program_archive(paths, PAUSE, "pause"))
        if not result[BUSYBOX].exists():
            write_atomic(result[BUSYBOX], archive(BUSYBOX, busybox_layer(paths), None, ["sh"]))
        if not result[CURL].exists():
            layer = programs_layer(paths, ("curl", "nslookup"))
            write_atomic(result[CURL], archive(CURL, layer, None, ["sh"]))
        if not result[COREDNS].exists():
            write_atomic(result[COREDNS], program_archive(paths, COREDNS, "coredns"))
    return result


def busybox(paths: Paths) -> Path:
    """Unpack the static busybox, which is also useful outside of containers.

    :returns: the program.
    """
    prefix = paths.cache / "debian" / "busybox"
    if not prefix.exists():
        debian.unpack(paths, "bookworm", ("busybox-static",), prefix)
    found = next(
        (path for path in (prefix / "bin/busybox", prefix / "usr/bin/busybox") if path.exists()),
        None,
    )
    if found is None:
        raise FileNotFoundError(f"no busybox in {prefix}")
    return found


def load(
    paths: Paths,
    containerd: Path,
    there: Callable[..., tuple[str, ...]] = lambda *argv: argv,
    names: Sequence[str] = IMAGES,
) -> None:
    """Import those of the images that this containerd does not have.

    :param there: turns a command line for the place of containerd into one for here.
    """
    known = archives(paths)
    for name in names:
        load_archive(paths, containerd, name, known[name], there)


def load_archive(
    paths: Paths,
    containerd: Path,
    name: str,
    archive: Path,
    there: Callable[..., tuple[str, ...]] = lambda *argv: argv,
) -> None:
    """Import one image from its archive, if this containerd does not have it."""
    ctr = _ctr(paths, containerd)
    if name not in run(there(*ctr, "ls", "-q")).split():
        import_archive(paths, containerd, archive, there)


def import_archive(
    paths: Paths,
    containerd: Path,
    archive: Path,
    there: Callable[..., tuple[str, ...]] = lambda *argv: argv,
) -> None:
    """Import one image from its archive, in place of any of its name."""
    run(there(*_ctr(paths, containerd), "import", "--local", str(archive)))


def remove_others(paths: Paths, containerd: Path, name: str) -> None:
    """Remove other tags of the image of this name, which a later build has replaced."""
    ctr, repository = _ctr(paths, containerd), name.partition(":")[0]
    present = [each for each in run([*ctr, "ls", "-q"]).split() if each != name]
    former = [each for each in present if each.startswith(f"{repository}:")]
    if former:
        run([*ctr, "rm", *former])


def _ctr(paths: Paths, containerd: Path) -> tuple[str, ...]:
    program = str(binaries.ensure(["ctr"], paths)["ctr"])
    return (program, "--address", str(containerd), "--namespace", "k8s.io", "images")


class Layer:
    """A layer under construction: a tar archive that depends on nothing but its content."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w")  # noqa: SIM115

    def directory(self, name: str, mode: int = 0o755) -> None:
        """Add a directory."""
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        self._tar.addfile(entry)

    def file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        """Add a file."""
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(content), mode
        self._tar.addfile(entry, io.BytesIO(content))

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        self._tar.addfile(entry)

    def bytes(self) -> bytes:
        """Return the archive, to which nothing can be added any more."""
        self._tar.close()
        return self._buffer.getvalue()


def busybox_layer(paths: Paths) -> Layer:
    """Build a layer of busybox, with a page for its httpd."""
    program = busybox(paths)
    layer = Layer()
    for name, mode in (
        ("bin", 0o755),
        ("etc", 0o755),
        ("root", 0o700),
        ("www", 0o755),
        ("tmp", 0o1777),
    ):
        layer.directory(name, mode)
    layer.file("bin/busybox", program.read_bytes(), 0o755)
    for applet in run([str(program), "--list"]).split():
        if applet != "busybox":
            layer.link(f"bin/{applet}", "busybox")
    layer.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    layer.file("etc/group", b"root:x:0:\n")
    layer.file("www/index.html", b"ok\n")
    return layer


def programs_layer(paths: Paths, names: Sequence[str]) -> Layer:
    """Build a layer of busybox and of the machine's own programs, which come first in PATH.

    :param names: of the programs; they come with the libraries that they load.
    """
    layer = busybox_layer(paths)
    programs = {name: _found(name) for name in names}
    for library in sorted(set(re.findall(r"(/\S+) \(0x", run(["ldd", *programs.values()])))):
        layer.file(library.removeprefix("/"), Path(library).read_bytes(), 0o755)
    for name, place in programs.items():
        layer.file(f"usr/bin/{name}", Path(place).read_bytes(), 0o755)
    layer.file("etc/nsswitch.conf", b"hosts: files dns\n")
    return layer


def _found(program: str) -> str:
    place = shutil.which(program)
    if place is None:
        raise FileNotFoundError(program)
    return place


def program_archive(paths: Paths, name: str, program: str) -> bytes:
    """Make a docker archive of an image that has and runs one program of the lab."""
    layer = Layer()
    layer.file(program, binaries.ensure([program], paths)[program].read_bytes(), 0o755)
    return archive(name, layer, [f"/{program}"], None)


def archive(
    name: str, layer: Layer, entrypoint: list[str] | None, command: list[str] | None
) -> bytes:
    """Make a docker archive of an image with one layer."""
    content = layer.bytes()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
                "Entrypoint": entrypoint,
                "Cmd": command,
            },
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"],
            },
        }
    )
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}])
    outer = Layer()
    outer.file("manifest.json", manifest.encode())
    outer.file("config.json", config.encode())
    outer.file("layer.tar", content)
    return outer.bytes()
