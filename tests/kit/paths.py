"""Directories of the repository."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ETC = REPOSITORY / "etc"
GOLDEN = REPOSITORY / "tests" / "golden"
