"""The virtual environment with the OpenStack services and their command-line clients."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

from lab.paths import SOURCE, Paths, locked, write_atomic
from lab.process import run, succeeds

_REQUIREMENTS = SOURCE / "requirements-openstack.txt"
_DRIVER = SOURCE / "octavia_driver.py"
_DISTRIBUTION = "labdrivers-1.0.dist-info"


def location(paths: Paths) -> Path:
    """Where the environment is, or will be: its key is what is installed into it."""
    digest = hashlib.sha256(_REQUIREMENTS.read_bytes())
    return paths.cache / "python" / f"openstack-{digest.hexdigest()[:12]}"


def install(paths: Paths) -> Path:
    """Make the environment if it is not complete; return its path.

    It has to be made under its final name, which its scripts contain; so a marker, written last,
    says that it is complete, and what has no marker is removed and made again.
    """
    venv = location(paths)
    marker = venv / "complete"
    if marker.exists():
        _add_driver(venv)
        return venv
    with locked(paths.cache / "locks" / "python"):
        if marker.exists():
            return venv
        shutil.rmtree(venv, ignore_errors=True)
        run([_interpreter(), "-m", "venv", str(venv)])
        pip = [
            str(venv / "bin/python"),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "-q",
            "--no-warn-script-location",
        ]
        run([*pip, "-r", str(_REQUIREMENTS)], timeout=1800)
        _add_driver(venv)
        write_atomic(marker, "")
    return venv


def _interpreter() -> str:
    """Debian's Python where it is new enough; else the one that runs this."""
    system = "/usr/bin/python3"
    question = "import sys; raise SystemExit(sys.version_info < (3, 11))"
    return system if succeeds([system, "-c", question]) else sys.executable


def _add_driver(venv: Path) -> None:
    """Install octavia_driver.py so that Octavia finds it as an entry point."""
    site = next((venv / "lib").glob("python3*/site-packages"))
    write_atomic(site / "labdrivers.py", _DRIVER.read_text())
    write_atomic(
        site / _DISTRIBUTION / "METADATA",
        "Metadata-Version: 2.1\nName: labdrivers\nVersion: 1.0\n",
    )
    write_atomic(
        site / _DISTRIBUTION / "entry_points.txt",
        "[octavia.network.drivers]\nlab_network_driver = labdrivers:LabNetworkDriver\n",
    )
    write_atomic(site / _DISTRIBUTION / "RECORD", "")
