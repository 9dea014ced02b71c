"""System calls that the standard library does not have."""

from __future__ import annotations

import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)


def checked(what: str, result: int) -> int:
    """Pass on the result of a system call.

    :raises OSError: the call failed.
    """
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int = 0, extra: int = 0) -> int:
    """Change an attribute of this process by the system call prctl.

    :raises OSError: the call failed.
    """
    numbers = [ctypes.c_ulong(number) for number in (value, extra, 0, 0)]
    return checked(f"prctl {option}", _LIBC.prctl(option, *numbers))


def unshare(flags: int) -> None:
    """Move this process into new namespaces.

    :raises OSError: the call failed.
    """
    checked("unshare", _LIBC.unshare(flags))


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Mount a file system, with the arguments of the system call.

    :raises OSError: the call failed.
    """
    arguments = [text.encode() or None for text in (source, target, kind)]
    done = _LIBC.mount(*arguments, ctypes.c_ulong(flags), data.encode() or None)
    checked(f"mount {target}", done)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns", ctypes.c_uint64),
    )


def set_read_only(path: str, *, read_only: bool) -> None:
    """Change a mount and all mounts below it (mount_setattr, Linux 5.12).

    :raises OSError: the call failed.
    """
    at_fdcwd, recursive, bit = -100, 0x8000, 1
    attributes = _MountAttributes(set=bit if read_only else 0, clear=0 if read_only else bit)
    done = _LIBC.syscall(
        442,
        at_fdcwd,
        path.encode(),
        recursive,
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    checked(f"mount_setattr {path}", done)
