"""The product as a wheel in a virtual environment of its own, as a user would install it."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from lab.install.interpreter import interpreter
from lab.paths import REPOSITORY, write_atomic
from lab.process import run
from lab.progress import Progress

# What the wheel is made of; a change of it is a new installation.
SOURCES = ("kuryr_k8s", "etc", "setup.cfg", "setup.py", "pyproject.toml", "requirements.txt")
# What others may have built in between them
_BUILT = ("__pycache__", "kuryr-cni")
_BUILD_BACKEND = "setuptools>=70.1"  # as in pyproject.toml


def install(root: Path, progress: Progress, tree: Path = REPOSITORY) -> bool:
    """Build the wheel and install it below `root`, if the sources changed.

    :param tree: where the sources are.
    :returns: whether they did.
    """
    python = interpreter()
    root.mkdir(exist_ok=True)
    version = digest(SOURCES, run([python, "-c", "import sys; print(sys.version)"]), tree)
    basis = f"{python} {_BUILD_BACKEND}"
    marker = root / "installed"
    if marker.exists() and marker.read_text() == version:
        return False
    marker.unlink(missing_ok=True)
    venv = root / "venv"
    pip = [str(venv / "bin/python"), "-m", "pip", "--disable-pip-version-check", "-q"]
    complete = venv / "complete"
    if not complete.exists() or complete.read_text() != basis:
        shutil.rmtree(venv, ignore_errors=True)
        run([python, "-m", "venv", str(venv)])
        run([*pip, "install", _BUILD_BACKEND], timeout=600)
        write_atomic(complete, basis)
    with tempfile.TemporaryDirectory(dir=root) as directory:
        # built from a copy: the build must not leave its own directories in the sources
        source = Path(directory) / "source"
        copy((*SOURCES, "README.md", "LICENSE"), source, tree)
        build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", directory]
        run([*build, str(source)], timeout=600)
        (wheel,) = Path(directory).glob("*.whl")
        run([*pip, "install", str(wheel)], timeout=900)  # with its dependencies
        run([*pip, "install", "--force-reinstall", "--no-deps", str(wheel)], timeout=600)
        progress.note(f"installed {wheel.name}")
    write_atomic(marker, version)
    return True


def shipped(root: Path) -> Path:
    """Return the directory of the files of etc/ in the installation below `root`."""
    return root / "venv" / "share" / "kuryr-k8s"


def copy(names: Iterable[str], target: Path, tree: Path = REPOSITORY) -> None:
    """Copy those of these files and directories that there are, without what was built there."""
    for name in names:
        source = tree / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns(*_BUILT))
        elif source.exists():
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target / name)


def digest(names: Iterable[str], salt: str = "", tree: Path = REPOSITORY) -> str:
    """Hash these files and directories of the sources."""
    found = hashlib.sha256(salt.encode())
    for name in names:
        root = tree / name
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file() and not {*_BUILT} & {*path.parts}:
                found.update(str(path.relative_to(tree)).encode() + path.read_bytes())
    return found.hexdigest()
