"""tox, in an environment of its own; its work directory outlives this clone."""

from __future__ import annotations

import shutil

from lab.install import debian
from lab.install.interpreter import interpreter
from lab.paths import Paths, locked, write_atomic
from lab.process import run

TOX = "tox==4.67.13"


def ensure(paths: Paths) -> list[str]:
    """Install tox if it is missing; the command that runs its environments."""
    debian.install(paths, ("python3-venv", "gcc", "libc6-dev"))
    python = interpreter()
    made_of = f"{python} {run([python, '--version'])}"
    venv = paths.cache / "python" / TOX.replace("==", "-")
    marker = venv / "complete"  # says whose it is: tox makes its environments of the same
    with locked(paths.cache / "locks" / "tox"):
        if not marker.exists() or marker.read_text() != made_of:
            shutil.rmtree(venv, ignore_errors=True)
            run([python, "-m", "venv", str(venv)])
            run([str(venv / "bin/python"), "-m", "pip", "install", "-q", TOX], timeout=600)
            write_atomic(marker, made_of)
    return [str(venv / "bin/tox"), "run", "--workdir", str(paths.cache / "tox")]
