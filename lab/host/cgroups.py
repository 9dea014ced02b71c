"""Control groups of the nodes' pods: two kubelets on one would kill each other's pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lab.process import Identity, start_time, wait_until

_ROOT = Path("/sys/fs/cgroup")


def create(cgroup: str) -> None:
    """Make the cgroup in every hierarchy, ready for processes and children."""
    for hierarchy in _hierarchies():
        parent = hierarchy
        for part in cgroup.strip("/").split("/"):
            if _unified(hierarchy):
                _delegate(parent)
            child = parent / part
            child.mkdir(exist_ok=True)
            # A cpuset of version 1 takes no process before it has processors and memory.
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (child / name).exists() and not (child / name).read_text().strip():
                    (child / name).write_text((parent / name).read_text())
            parent = child


def processes(cgroup: str) -> list[Identity]:
    """List every process in the cgroup or below it."""
    pids = {
        int(pid)
        for directory in _directories(cgroup)
        for pid in _read(directory / "cgroup.procs").split()
    }
    return [Identity(pid, start) for pid in pids if (start := start_time(pid)) is not None]


def remove(cgroup: str) -> None:
    """Remove the cgroup and what is below it; the kernel may need a moment after the last kill."""
    wait_until(
        lambda: not [path for path in _directories(cgroup) if not _remove_empty(path)], timeout=3
    )


def _directories(cgroup: str) -> Iterator[Path]:
    """List the cgroup's directories in every hierarchy, children before their parents."""
    for hierarchy in _hierarchies():
        top = hierarchy / cgroup.strip("/")
        if top.is_dir():
            yield from sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True)
            yield top


def _hierarchies() -> list[Path]:
    if _unified(_ROOT):
        return [_ROOT]
    return sorted(path for path in _ROOT.iterdir() if (path / "cgroup.procs").exists())


def _unified(hierarchy: Path) -> bool:
    return (hierarchy / "cgroup.controllers").exists()


def _delegate(parent: Path) -> None:
    """Let children have the controllers (version 2); one that is refused is not essential."""
    for controller in _read(parent / "cgroup.controllers").split():
        try:
            (parent / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError:
            continue


def _remove_empty(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
