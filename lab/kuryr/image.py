"""The image of the Containerfile, built from Debian packages: there is no registry to pull from.

debootstrap makes the image of Debian that the Containerfile starts from, and buildah carries out
the Containerfile. Neither needs a daemon.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from lab.install import debian
from lab.kuryr import wheel
from lab.paths import REPOSITORY, Paths, locked, write_atomic
from lab.process import run
from lab.progress import Progress

_PACKAGES = ("buildah", "debootstrap")
_SOURCES = (*wheel.SOURCES, "Containerfile", "LICENSE", "README.md")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# Where the machine's certificates are while the image is built. The package indexes may be behind
# a proxy of the machine's network, with a certificate of its own.
_THERE = "/run/build-certificates.crt"
_POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}\n'  # nothing is pulled


def ensure(paths: Paths, progress: Progress) -> tuple[str, Path]:
    """Build the image of this tree, if its sources changed.

    :returns: its name, and an archive that container runtimes import.
    """
    version = wheel.digest(_SOURCES)[:12]
    name = f"lab.local/kuryr-k8s:{version}"
    archive = paths.cache / "images" / f"kuryr-k8s-{version}.tar"
    with locked(paths.cache / "locks" / "kuryr-image"):
        if archive.exists():
            return name, archive
        debian.install(paths, _PACKAGES)
        for former in archive.parent.glob("kuryr-k8s-*.tar"):
            former.unlink()
        with tempfile.TemporaryDirectory(dir=paths.cache, prefix=".image-") as directory:
            work = Path(directory)
            buildah = _buildah(paths, work)
            with progress.during("build the image"):
                _ensure_base(buildah, work)
                _build(buildah, work, name)
            made = work / "image.tar"
            buildah("push", name, f"docker-archive:{made}:{name}")
            buildah("rmi", name)  # its layers stay for the next build
            archive.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(made, archive)
    progress.note(f"built the image {name}")
    return name, archive


def _buildah(paths: Paths, work: Path) -> Callable[..., str]:
    """Return a function that runs buildah with a storage of its own in the cache."""
    policy = work / "policy.json"
    write_atomic(policy, _POLICY)
    storage = paths.cache / "buildah"
    where = ("--root", str(storage), "--runroot", str(work / "run"))

    def buildah(command: str, *arguments: str) -> str:
        trust = ("--signature-policy", str(policy)) if command in _TRUSTING else ()
        return run(["buildah", *where, command, *trust, *arguments], timeout=1200)

    return buildah


_TRUSTING = ("build", "commit", "from", "push")  # the commands that have the option


def _ensure_base(buildah: Callable[..., str], work: Path) -> None:
    """Make the image of Debian that the Containerfile starts from, if it is not there."""
    found = re.search(r"(?m)^ARG BASE=(debian:(\w+)-slim)$", _containerfile().read_text())
    assert found is not None
    base, suite = f"docker.io/library/{found[1]}", found[2]
    if base in buildah("images", "--format", "{{.Name}}:{{.Tag}}").split():
        return
    root = work / "root"
    mirror = debian.mirror()
    run(["debootstrap", "--variant=minbase", suite, str(root), mirror], timeout=900)
    for package in (root / "var/cache/apt/archives").glob("*.deb"):
        package.unlink()
    container = buildah("from", "scratch").strip()
    buildah("add", "--quiet", container, str(root), "/")
    buildah("commit", "--quiet", "--rm", container, base)


def _build(buildah: Callable[..., str], work: Path, name: str) -> None:
    settings = ["[global]"]
    mounts = []
    if _CERTIFICATES.exists():
        settings.append(f"cert = {_THERE}")
        mounts.append(f"--volume={_CERTIFICATES}:{_THERE}:ro")
    if index := os.environ.get("PIP_INDEX_URL"):
        settings.append(f"index-url = {index}")
    write_atomic(work / "pip.conf", "\n".join(settings) + "\n")
    mounts.append(f"--volume={work / 'pip.conf'}:/etc/pip.conf:ro")
    here = ("--isolation=chroot", "--network=host", "--pull-never", "--layers")
    context = work / "context"
    wheel.copy(_SOURCES, context)
    buildah("build", *here, *mounts, f"--tag={name}", str(context))


def _containerfile() -> Path:
    return REPOSITORY / "Containerfile"
