"""Capabilities that root keeps, and the promise that nothing gives more."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lab.kuryr.sandbox.kernel import prctl

_CAPBSET_DROP, _SET_NO_NEW_PRIVS, _CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 24, 38, 47, 4
# In the kernel's order: the place is the number (linux/capability.h).
_NAMES = """
CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER
SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE
SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP
MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF
CHECKPOINT_RESTORE
"""
NAMES = tuple(f"CAP_{name}" for name in _NAMES.split())


def bound(allowed: Iterable[str] | None) -> None:
    """Drop all other capabilities from the bounding set; they are lost with the next exec."""
    prctl(_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    if allowed is None:
        return
    keep = mask(allowed)
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for number in range(last + 1):
        if not keep >> number & 1:
            prctl(_CAPBSET_DROP, number)


def mask(names: Iterable[str]) -> int:
    """Build the number that stands for capabilities in /proc/PID/status."""
    return sum(1 << NAMES.index(name) for name in names)


def no_new_privileges() -> None:
    """Let no exec from now on give this process more privileges."""
    prctl(_SET_NO_NEW_PRIVS, 1)
