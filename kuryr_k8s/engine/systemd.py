"""Notification of systemd, see sd_notify(3)."""

import os
import socket


def notify(state: str) -> None:
    """Send ``READY=1``, ``STOPPING=1`` or ``STATUS=…``; do nothing without systemd."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        channel.connect(address)
        channel.sendall(state.encode())
