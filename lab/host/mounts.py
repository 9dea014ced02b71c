"""Mounts that daemons made below the lab's directories."""

from __future__ import annotations

from pathlib import Path

from lab.process import run


def below(directory: Path) -> list[str]:
    """List every mount point below the directory, the innermost first."""
    points = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        # The kernel writes a space as \\040 and so on.
        point = line.split()[1].encode().decode("unicode_escape")
        if point.startswith(f"{directory}/"):
            points.append(point)
    return sorted(points, reverse=True)


def unmount_below(directory: Path) -> None:
    """Detach every mount below the directory, whoever still uses it."""
    points = below(directory)
    for start in range(0, len(points), 100):
        run(["umount", "-l", *points[start : start + 100]], check=False)
