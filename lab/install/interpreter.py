"""The Python for virtual environments of the lab."""

from __future__ import annotations

import sys

from lab.process import succeeds

_SYSTEM = "/usr/bin/python3"
_FITS = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"


def interpreter() -> str:
    """Return Debian's Python if it is new enough (and has python3-venv); else the running one.

    One in somebody's home is hidden from the controller, by ProtectHome, and often built without
    the optimisations that make Debian's half as fast again.
    """
    return _SYSTEM if succeeds([_SYSTEM, "-c", _FITS]) else sys.executable
