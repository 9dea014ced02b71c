"""The product's programs under the restrictions of their systemd units: see lab.kuryr.sandbox.

The launcher and the units are copied beside the installation: the lab can be restarted by another
clone of the repository than the one that installed the product.
"""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

from lab.kuryr.sandbox.unit import Unit
from lab.paths import REPOSITORY, write_atomic
from lab.process import run

_PACKAGE = Path("lab/kuryr/sandbox")
UNITS = REPOSITORY / "etc" / "systemd"


class Hardening:
    """The restrictions of the installation in one directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._launcher = root / "sandbox"

    def install(self) -> None:
        """Copy the launcher and the units, and add the accounts that the units name."""
        for path in (REPOSITORY / _PACKAGE).iterdir():
            if path.is_file():
                write_atomic(self._launcher / _PACKAGE / path.name, path.read_bytes())
        for parent in _PACKAGE.parents[:-1]:
            write_atomic(self._launcher / parent / "__init__.py", "")
        for path in UNITS.glob("*.service"):
            shutil.copyfile(path, self._unit(path.stem))
            _ensure_account(Unit.read(path).text("User", "root"))

    def command(self, program: str, directories: Path) -> tuple[str, ...]:
        """Build the words that precede the program's own command line.

        :param directories: where run/NAME and lib/NAME stand for /run and /var/lib.
        """
        code = f"import sys; sys.path.insert(0, {str(self._launcher)!r}); "
        code += "from lab.kuryr.sandbox.__main__ import main; main()"
        python = ("/usr/bin/env", "python3", "-I", "-c", code)
        return (*python, f"--directories={directories}", str(self._unit(program)))

    def files(self, program: str) -> tuple[str, ...]:
        """List the files that the program depends on besides: a change of them wants a restart."""
        parts = sorted((self._launcher / _PACKAGE).glob("*"))
        return (str(self._unit(program)), *(str(path) for path in parts if path.is_file()))

    def give(self, path: Path, program: str) -> None:
        """Let the program's account own a file."""
        account = pwd.getpwnam(Unit.read(self._unit(program)).text("User", "root"))
        os.chown(path, account.pw_uid, account.pw_gid)

    def _unit(self, program: str) -> Path:
        return self._root / f"{program}.service"


def _ensure_account(name: str) -> None:
    """Add the account as the unit tells the administrator to add it."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        nowhere = ("--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin")
        run(["useradd", "--system", *nowhere, name])
