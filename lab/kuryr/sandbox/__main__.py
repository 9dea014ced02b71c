"""The launcher: the restrictions of a unit on this process, which then becomes the program."""

from __future__ import annotations

import argparse
import os
import pwd
from pathlib import Path

from lab.kuryr.sandbox import capabilities, filters, mounts
from lab.kuryr.sandbox.unit import Unit


def main() -> None:
    """Run the program of the command line under the restrictions of its unit."""
    parser = argparse.ArgumentParser(prog="lab.kuryr.sandbox")
    parser.add_argument(
        "--directories", type=Path, help="where run/NAME and lib/NAME stand for /run and /var/lib"
    )
    parser.add_argument("unit", type=Path)
    parser.add_argument("program", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    enter(Unit.read(arguments.unit), arguments.directories)
    os.execv(arguments.program[0], arguments.program)


def enter(unit: Unit, directories: Path | None) -> None:
    """Restrict this process to what the unit allows.

    The order matters: each step needs what a later one takes away.
    """
    user = pwd.getpwnam(unit.text("User", "root"))
    writable = _directories(unit, directories, user) if directories else []
    mounts.enter(unit, writable)
    capabilities.bound(unit.capabilities())
    if user.pw_uid != 0:
        os.setgroups([])
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
        os.environ.update(HOME=user.pw_dir, USER=user.pw_name, LOGNAME=user.pw_name)
    if unit.flag("PrivateTmp"):
        os.environ["TMPDIR"] = "/tmp"
    os.umask(int(unit.text("UMask", "0022"), 8))
    os.chdir("/")
    if unit.flag("NoNewPrivileges"):
        capabilities.no_new_privileges()
    filters.load(unit)


def _directories(unit: Unit, root: Path, user: pwd.struct_passwd) -> list[Path]:
    """Make RuntimeDirectory and StateDirectory, owned by the user."""
    made = []
    for option, parent in (("RuntimeDirectory", "run"), ("StateDirectory", "lib")):
        for name in unit.words(option):
            path = root / parent / name
            path.mkdir(parents=True, exist_ok=True)
            os.chown(path, user.pw_uid, user.pw_gid)
            made.append(path)
    return made


if __name__ == "__main__":
    main()
