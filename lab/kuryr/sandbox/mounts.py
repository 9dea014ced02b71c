"""The file system as a restricted program sees it, in a mount namespace of its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lab.kuryr.sandbox.kernel import mount, set_read_only, unshare
from lab.kuryr.sandbox.unit import Unit

_NEWNS, _NEWUTS = 0x00020000, 0x04000000
_NOSUID, _NODEV, _NOEXEC, _BIND, _MOVE, _REC, _SLAVE = 2, 4, 8, 4096, 8192, 16384, 1 << 19
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_HOMES = ("/home", "/root", "/run/user")
_MODULES = ("/lib/modules", "/usr/lib/modules")
_TUNABLES = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/sys")
# What asks for a mount namespace.
_PRIVATE = (
    "PrivateTmp",
    "PrivateDevices",
    "ProtectHome",
    "ProtectControlGroups",
    "ProtectKernelLogs",
    "ProtectKernelModules",
    "ProtectKernelTunables",
)


def enter(unit: Unit, writable: Iterable[Path]) -> None:
    """Hide and protect what the unit says; `writable` stays so.

    Later mounts of the machine are seen here too, but not the other way round.
    """
    if unit.flag("ProtectHostname"):
        unshare(_NEWUTS)
    strict = unit.text("ProtectSystem", "no") == "strict"
    invisible = unit.text("ProtectProc", "default") == "invisible"
    if not (strict or invisible or any(unit.flag(option) for option in _PRIVATE)):
        return
    unshare(_NEWNS)
    mount("", "/", "", _REC | _SLAVE)
    if unit.flag("ProtectHome"):
        _hide(_HOMES)
    if unit.flag("ProtectKernelModules"):
        _hide(_MODULES)
    if invisible:
        mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC, "hidepid=invisible")
    if strict:
        set_read_only("/", read_only=True)
        for path in ("/dev", "/proc", "/sys"):
            set_read_only(path, read_only=False)
        for path in map(str, writable):
            mount(path, path, "", _BIND)
            set_read_only(path, read_only=False)
    if unit.flag("PrivateDevices"):
        _own_devices()
    if unit.flag("PrivateTmp"):
        for path in ("/tmp", "/var/tmp"):
            mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV, "mode=1777")
    if unit.flag("ProtectKernelLogs"):
        mount("/dev/null", "/proc/kmsg", "", _BIND)
    if unit.flag("ProtectKernelTunables"):
        _read_only(_TUNABLES)
    if unit.flag("ProtectControlGroups"):
        _read_only(("/sys/fs/cgroup",))


def _hide(paths: Iterable[str]) -> None:
    for path in paths:
        if Path(path).is_dir() and not Path(path).is_symlink():
            mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV | _NOEXEC, "mode=0000,size=4k")


def _read_only(paths: Iterable[str]) -> None:
    for path in paths:
        if Path(path).exists():
            mount(path, path, "", _BIND | _REC)
            set_read_only(path, read_only=True)


def _own_devices() -> None:
    """Mount a /dev with the devices that every program may use, and shared memory of its own."""
    new = Path("/tmp")  # which is hidden at once by the private one, or shown again by the move
    mount("tmpfs", str(new), "tmpfs", _NOSUID, "mode=0755")
    for name in _DEVICES:
        place = new / name
        place.touch()
        mount(f"/dev/{name}", str(place), "", _BIND)
    (new / "shm").mkdir()
    mount("tmpfs", str(new / "shm"), "tmpfs", _NOSUID | _NODEV, "mode=1777")
    mount(str(new), "/dev", "", _MOVE)
