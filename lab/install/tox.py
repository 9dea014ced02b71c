"""tox in an environment of its own, and the environment of tests that it makes.

The work directory lies in the cache: it outlives a clone and serves every clone.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from lab.install import debian
from lab.install.interpreter import interpreter
from lab.paths import Paths, locked, write_atomic
from lab.process import run

TOX = "tox==4.67.13"
PACKAGES = ("python3-venv", "gcc", "libc6-dev")


def ensure(paths: Paths) -> Path:
    """Install tox if it is missing.

    :returns: the program.
    """
    debian.install(paths, PACKAGES)
    python = interpreter()
    made_of = f"{python} {run([python, '--version'])}"
    venv = paths.cache / "python" / TOX.replace("==", "-")
    marker = venv / "complete"  # names the Python of which tox makes its environments, too
    with locked(paths.cache / "locks" / "tox"):
        if not marker.exists() or marker.read_text() != made_of:
            shutil.rmtree(venv, ignore_errors=True)
            run([python, "-m", "venv", str(venv)])
            run([str(venv / "bin/python"), "-m", "pip", "install", "-q", TOX], timeout=600)
            write_atomic(marker, made_of)
    return venv / "bin/tox"


def prepare(paths: Paths, program: Path, name: str = "py") -> list[str]:
    """Build the command line that makes one environment.

    :param name: of the environment; `py` has the machine's Python.
    """
    return [str(program), "run", *_work(paths), "--notest", "-e", name]


def inside(paths: Paths, program: Path, name: str = "py") -> list[str]:
    """Build the words that precede a command that runs in an environment."""
    return [str(program), "exec", "-q", *_work(paths), "--skip-env-install", "-e", name, "--"]


def entry_points(paths: Paths, program: Path) -> list[str]:
    """Build the command line that writes the metadata by which entry points are found."""
    return [*inside(paths, program), "python", "setup.py", "-q", "egg_info"]


def _work(paths: Paths) -> list[str]:
    return ["--workdir", str(paths.cache / "tox")]
