"""Notification of systemd, see sd_notify(3) and sd_watchdog_enabled(3)."""

import os
import socket

BEATS = 3  # per limit of the watchdog: one that is late does not end the program


def notify(state: str) -> None:
    """Send a state such as ``READY=1`` or ``STATUS=…``; do nothing without systemd.

    :raises OSError: systemd is not reached.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        channel.connect(address)
        channel.sendall(state.encode())


def watchdog_interval() -> float | None:
    """Return the seconds between two ``WATCHDOG=1``; None if systemd waits for none of ours."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    limit = os.environ.get("WATCHDOG_USEC", "")
    return int(limit) / 1e6 / BEATS if limit.isdecimal() and int(limit) else None
