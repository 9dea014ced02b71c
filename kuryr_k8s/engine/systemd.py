"""sd_notify(3): tells systemd, where it runs us, that we are ready or stopping."""

import os
import socket


def notify(state: str) -> None:
    """Send ``READY=1``, ``STOPPING=1`` or ``STATUS=…``; without systemd nothing happens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        channel.connect(address)
        channel.sendall(state.encode())
