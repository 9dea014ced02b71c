"""The virtual environment with the OpenStack services and their command-line clients."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from lab.install.interpreter import interpreter
from lab.paths import Paths, locked, write_atomic
from lab.process import run

_REQUIREMENTS = Path(__file__).with_name("requirements-openstack.txt")
_DISTRIBUTION = "labdrivers-1.0.dist-info"
# The names under which Octavia's configuration asks for lab.openstack.amphora.
_ENTRY_POINTS = """\
[octavia.amphora.drivers]
lab_amphora_driver = lab.openstack.amphora.client:Driver
[octavia.compute.drivers]
lab_compute_driver = lab.openstack.amphora.compute:Compute
"""


def location(paths: Paths) -> Path:
    """Return the path of the environment, there or not: its key is what is installed into it."""
    digest = hashlib.sha256(_REQUIREMENTS.read_bytes())
    return paths.cache / "python" / f"openstack-{digest.hexdigest()[:12]}"


def install(paths: Paths) -> Path:
    """Make the environment unless it is complete.

    It has to be made under its final name, which its scripts contain; so a marker, written last,
    says that it is complete, and what has no marker is removed and made again.

    :returns: its path.
    """
    venv = location(paths)
    marker = venv / "complete"
    if marker.exists():
        _add_drivers(venv)
        return venv
    with locked(paths.cache / "locks" / "python"):
        if marker.exists():
            return venv
        shutil.rmtree(venv, ignore_errors=True)
        run([interpreter(), "-m", "venv", str(venv)])
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
        _add_drivers(venv)
        write_atomic(marker, "")
    return venv


def _add_drivers(venv: Path) -> None:
    """Register the lab's drivers with Octavia, whose path lab.openstack.services sets."""
    site = next((venv / "lib").glob("python3*/site-packages"))
    description = "Metadata-Version: 2.1\nName: labdrivers\nVersion: 1.0\n"
    write_atomic(site / _DISTRIBUTION / "METADATA", description)
    write_atomic(site / _DISTRIBUTION / "entry_points.txt", _ENTRY_POINTS)
    write_atomic(site / _DISTRIBUTION / "RECORD", "")
