"""kuryr-kubernetes, the project that this one succeeds, in an environment of its own.

Only the benchmark that measures both side by side needs it (`bench ancestor`). Its CRDs are in no
wheel; they come from the source distribution on PyPI.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab.install.interpreter import interpreter
from lab.paths import Paths, locked, write_atomic
from lab.process import run

VERSION = "10.0.0"
_RELEASE = f"kuryr-kubernetes=={VERSION}"
_REQUIREMENTS = Path(__file__).with_name("requirements-ancestor.txt")
_CRDS = f"kuryr-kubernetes-{VERSION}/kubernetes_crds/kuryr_crds/"


@dataclass(frozen=True)
class Ancestor:
    """An installation of kuryr-kubernetes: an environment, and in it the manifests."""

    venv: Path

    @property
    def controller(self) -> Path:
        return self.venv / "bin" / "kuryr-k8s-controller"

    @property
    def crds(self) -> Path:
        return self.venv / "crds"


def ensure(paths: Paths) -> Ancestor:
    """Install kuryr-kubernetes unless a marker, written last, says that it is complete.

    The key of the environment is the list of what is installed into it.
    """
    digest = hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()[:12]
    found = Ancestor(paths.cache / "python" / f"ancestor-{digest}")
    marker = found.venv / "complete"
    with locked(paths.cache / "locks" / "ancestor"):
        if not marker.exists():
            shutil.rmtree(found.venv, ignore_errors=True)
            run([interpreter(), "-m", "venv", str(found.venv)])
            pip = [str(found.venv / "bin/python"), "-m", "pip", "--disable-pip-version-check"]
            run([*pip, "install", "-q", "-r", str(_REQUIREMENTS)], timeout=1800)
            _unpack_crds(pip, found.crds)
            write_atomic(marker, "")
    return found


def _unpack_crds(pip: list[str], directory: Path) -> None:
    directory.mkdir()
    with tempfile.TemporaryDirectory() as download:
        source = ["--no-deps", "--no-binary", "kuryr-kubernetes", "-d", download, _RELEASE]
        run([*pip, "download", "-q", *source], timeout=600)
        (archive,) = Path(download).glob("*.tar.gz")
        with tarfile.open(archive) as files:
            for member in files:
                content = files.extractfile(member) if member.name.startswith(_CRDS) else None
                if content is not None:
                    (directory / Path(member.name).name).write_bytes(content.read())
