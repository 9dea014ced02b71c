"""The product as a wheel in a virtual environment of its own, as a user would install it."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from lab.install.interpreter import interpreter
from lab.paths import REPOSITORY, write_atomic
from lab.process import run
from lab.progress import Progress

# What the wheel is made of; a change of it is a new installation.
_SOURCES = ("kuryr_k8s", "setup.cfg", "setup.py", "pyproject.toml", "requirements.txt")
# What others may have built in between them
_BUILT = ("__pycache__", "kuryr-cni")
_BUILD_BACKEND = "setuptools>=70.1"  # as in pyproject.toml


def install(root: Path, progress: Progress) -> bool:
    """Build the wheel and install it below `root`, if the sources changed.

    :returns: whether they did.
    """
    python = interpreter()
    version, basis = _digest(python), f"{python} {_BUILD_BACKEND}"
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
        copy = Path(directory) / "source"
        for name in (*_SOURCES, "README.md", "LICENSE"):
            _copy(REPOSITORY / name, copy / name)
        build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", directory]
        run([*build, str(copy)], timeout=600)
        (wheel,) = Path(directory).glob("*.whl")
        run([*pip, "install", str(wheel)], timeout=900)  # with its dependencies
        run([*pip, "install", "--force-reinstall", "--no-deps", str(wheel)], timeout=600)
        progress.note(f"installed {wheel.name}")
    write_atomic(marker, version)
    return True


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*_BUILT))
    elif source.exists():
        shutil.copyfile(source, target)


def _digest(python: str) -> str:
    """Hash the sources and the version of Python."""
    version = run([python, "-c", "import sys; print(sys.version)"])
    digest = hashlib.sha256(version.encode())
    for name in _SOURCES:
        root = REPOSITORY / name
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file() and not {*_BUILT} & {*path.parts}:
                digest.update(str(path.relative_to(REPOSITORY)).encode() + path.read_bytes())
    return digest.hexdigest()
