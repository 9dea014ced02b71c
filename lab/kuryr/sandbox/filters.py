"""Filters of system calls, as systemd's units have them, through seccomp."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from lab.kuryr.sandbox.unit import Unit, UnitError

_ALLOW = 0x7FFF0000
_NE, _EQ, _GT, _MASKED = 1, 4, 6, 7
# Namespaces by the name that RestrictNamespaces has for them.
_NAMESPACES = {
    "cgroup": 0x02000000,
    "ipc": 0x08000000,
    "mnt": 0x00020000,
    "net": 0x40000000,
    "pid": 0x20000000,
    "user": 0x10000000,
    "uts": 0x04000000,
}
_FAMILIES = 46  # the kernel's AF_MAX
_SUID_SGID = (0o4000, 0o2000)
_EXEC, _WRITE, _O_CREAT, _SHM_EXEC = 4, 2, os.O_CREAT, 0o100000


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operation", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


class _Filter:
    """One seccomp filter. Filters add up: a call must be allowed by all of them."""

    def __init__(self, default: int) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2")
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.seccomp_init(default))

    def rule(self, action: int, call: str, *comparisons: tuple[int, int, int, int]) -> None:
        """Take this action where the call's arguments compare: (which, how, a, b)."""
        number = self._library.seccomp_syscall_resolve_name(call.encode())
        if number == -1:
            return  # newer than the library, which cannot let it pass then
        array = (_Comparison * len(comparisons))(*(_Comparison(*fields) for fields in comparisons))
        done = self._library.seccomp_rule_add_array(
            self._context, action, number, len(comparisons), array
        )
        # negative numbers stand for calls that this architecture does not have
        if done < 0 and number >= 0:
            raise OSError(-done, f"seccomp: {call}")

    def refuse(self, call: str, *comparisons: tuple[int, int, int, int], with_: int = 1) -> None:
        self.rule(_refusal(with_), call, *comparisons)

    def load(self) -> None:
        done = self._library.seccomp_load(self._context)
        if done < 0:
            raise OSError(-done, f"seccomp_load: {os.strerror(-done)}")
        self._library.seccomp_release(self._context)


def load(unit: Unit) -> None:
    """Put all filters of the unit on this process; they outlive exec.

    A filter refuses calls of foreign architectures in any case.
    """
    parts: Sequence[tuple[str, Callable[[_Filter], None]]] = (
        ("LockPersonality", lambda f: f.refuse("personality", (0, _NE, 0, 0))),
        ("MemoryDenyWriteExecute", _memory),
        ("RestrictRealtime", _realtime),
        ("RestrictSUIDSGID", _suid),
    )
    for option, fill in parts:
        if unit.flag(option):
            _loaded(fill)
    if families := unit.words("RestrictAddressFamilies"):
        _loaded(lambda f: _families(f, families))
    if unit.words("RestrictNamespaces") and unit.text("RestrictNamespaces", "no") != "no":
        words = unit.words("RestrictNamespaces")
        _loaded(lambda f: _namespaces(f, () if unit.flag("RestrictNamespaces") else words))
    if calls := unit.words("SystemCallFilter"):
        number = getattr(errno, unit.text("SystemCallErrorNumber", "EPERM"))
        allowing = _Filter(_refusal(number))
        for call in _expanded(calls):
            allowing.rule(_ALLOW, call)
        allowing.load()  # last: loading a filter is not among what is allowed


def _loaded(fill: Callable[[_Filter], None]) -> None:
    filter_ = _Filter(_ALLOW)
    fill(filter_)
    filter_.load()


def _refusal(number: int) -> int:
    return 0x00050000 | number


def _expanded(words: Iterable[str]) -> list[str]:
    """List the calls of `SystemCallFilter=`.

    Of the groups only the one that services use is known, as `systemd-analyze syscall-filter` of
    systemd 252 shows it.
    """
    calls: list[str] = []
    for word in words:
        if word == "@system-service":
            calls += Path(__file__).with_name("system-service.txt").read_text().split()
        elif word.startswith("@"):
            raise UnitError(f"SystemCallFilter: the sandbox does not know the group {word}")
        else:
            calls.append(word)
    return calls


def _families(filter_: _Filter, names: Iterable[str]) -> None:
    allowed = {int(getattr(socket, name)) for name in names}
    for family in set(range(_FAMILIES + 1)) - allowed:
        filter_.refuse("socket", (0, _EQ, family, 0), with_=errno.EAFNOSUPPORT)
    filter_.refuse("socket", (0, _GT, _FAMILIES, 0), with_=errno.EAFNOSUPPORT)


def _namespaces(filter_: _Filter, allowed: Iterable[str]) -> None:
    for name, flag in _NAMESPACES.items():
        if name not in allowed:
            for call, argument in (("unshare", 0), ("clone", 0), ("setns", 1)):
                filter_.refuse(call, (argument, _MASKED, flag, flag))
    filter_.refuse("setns", (1, _EQ, 0, 0))  # which kind it is, cannot be seen
    filter_.refuse("clone3", with_=errno.ENOSYS)  # its flags cannot be seen; libc takes clone


def _memory(filter_: _Filter) -> None:
    both = _EXEC | _WRITE
    filter_.refuse("mmap", (2, _MASKED, both, both))
    for call in ("mprotect", "pkey_mprotect"):
        filter_.refuse(call, (2, _MASKED, _EXEC, _EXEC))
    filter_.refuse("shmat", (2, _MASKED, _SHM_EXEC, _SHM_EXEC))


def _realtime(filter_: _Filter) -> None:
    for policy in (1, 2, 4, 6):  # all but SCHED_OTHER, SCHED_BATCH and SCHED_IDLE
        filter_.refuse("sched_setscheduler", (1, _EQ, policy, 0))
    filter_.refuse("sched_setscheduler", (1, _GT, 6, 0))


def _suid(filter_: _Filter) -> None:
    modes = (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("mkdir", 1), ("mkdirat", 2))
    nodes = (("mknod", 1), ("mknodat", 2), ("creat", 1))
    for bit in _SUID_SGID:
        for call, argument in (*modes, *nodes):
            filter_.refuse(call, (argument, _MASKED, bit, bit))
        for call, flags in (("open", 1), ("openat", 2)):
            creates = (flags, _MASKED, _O_CREAT, _O_CREAT)
            filter_.refuse(call, creates, (flags + 1, _MASKED, bit, bit))
    filter_.refuse("openat2", with_=errno.ENOSYS)
