"""The CNI configuration that the daemon installs: kuryr-cni, then portmap for hostPort."""

import json
import os
from pathlib import Path
from typing import Any

NAME = "10-kuryr.conflist"
SOCKET = "/run/kuryr/cni.sock"  # as in kuryr-cni.c
SPOOL = "/var/lib/kuryr/spool"


def render(socket: str = SOCKET, spool: str = SPOOL) -> str:
    """The configuration's text. The paths always stand in it: kuryr-cni takes the first mention,
    and so no text that came from a Pod.
    """
    kuryr: dict[str, Any] = {"type": "kuryr-cni", "kuryr_socket": socket, "kuryr_spool": spool}
    portmap = {
        "type": "portmap",
        "capabilities": {"portMappings": True},
        "snat": True,
        "masqAll": True,
    }
    conflist = {
        "cniVersion": "1.0.0",
        "cniVersions": ["1.0.0", "1.1.0"],
        "name": "kuryr",
        "plugins": [kuryr, portmap],
    }
    return json.dumps(conflist, indent=2) + "\n"


def install_plugin(directory: Path) -> None:
    """Copy kuryr-cni to where the runtime looks for plugins: it needs nothing else there."""
    program = Path(__file__).with_name("kuryr-cni")
    _write(directory / program.name, program.read_bytes(), 0o755)


def install(directory: Path, text: str) -> None:
    """Write the configuration: from now on the runtime sends requests."""
    _write(directory / NAME, text.encode(), 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file whole or not at all; one that is the same already is left alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file() and path.read_bytes() == content and path.stat().st_mode & 0o777 == mode:
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    temporary.rename(path)
