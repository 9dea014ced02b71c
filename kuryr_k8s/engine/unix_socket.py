"""UNIX sockets that only their owner may use, and the accounts at their other ends."""

import os
import socket
import struct
from pathlib import Path
from typing import Protocol

from kuryr_k8s import errors


class Channel(Protocol):
    """The part of a socket that :func:`user_of` needs; asyncio hands out no more of it."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """Return an option of the socket."""


def bind(path: Path) -> socket.socket:
    """Make a socket that only its owner may use, in place of one that a dead process left.

    :raises errors.ConfigError: another process serves it, or it cannot be made.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_served(path):
            raise errors.ConfigError(f"{path} is served by another process")
        temporary = path.with_name(f".{path.name}")
        temporary.unlink(missing_ok=True)
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        channel.bind(str(temporary))
        temporary.chmod(0o600)
        channel.listen(1024)  # before it has its name: whoever finds it can connect
        temporary.rename(path)
    except OSError as error:
        raise errors.ConfigError(f"{path}: {error.strerror or error}") from error
    return channel


def user_of(channel: Channel) -> int:
    """Return the numeric id of the user who connected, as the kernel noted it then."""
    credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    _pid, user, _group = struct.unpack("iii", credentials)
    return int(user)


def _is_served(path: Path) -> bool:
    if not path.exists():
        return False
    if not path.is_socket():
        raise errors.ConfigError(f"{path} exists, and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True
