"""The version from which upgrades are tested, taken from the history of the repository."""

import subprocess
import sys

from tests.kit.paths import REPOSITORY

COMMIT = "44d7fcc"


def unpack(directory):
    """Put the sources of that version into a directory, with their entry points.

    :raises AssertionError: the clone does not have the commit.
    """
    packed = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", "--format=tar", COMMIT],
        capture_output=True,
        check=False,
    )
    if packed.returncode:
        raise AssertionError(
            f"this clone lacks the commit {COMMIT}, from which the upgrade is tested; get the "
            f"whole history (git fetch --unshallow): {packed.stderr.decode().strip()}"
        )
    subprocess.run(["tar", "--extract"], input=packed.stdout, cwd=directory, check=True)
    subprocess.run([sys.executable, "setup.py", "-q", "egg_info"], cwd=directory, check=True)
    return directory
