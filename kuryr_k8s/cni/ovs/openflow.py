"""Asks ovs-vswitchd to forget the connections of a port, by OpenFlow (1.3, and Nicira's message
NXT_CT_FLUSH_ZONE) over the bridge's management socket.

A port that goes from Pod to Pod keeps its address and its zone of connection tracking: what the
last Pod had allowed by speaking first must not be let through to the next one.
"""

import asyncio
import struct
from pathlib import Path

from kuryr_k8s import errors

VERSION = 4  # OpenFlow 1.3
HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, EXPERIMENTER = 0, 1, 2, 3, 4
BARRIER_REQUEST, BARRIER_REPLY = 20, 21
NICIRA, CT_FLUSH_ZONE = 0x2320, 29
PATIENCE = 5.0  # seconds


class OpenFlowError(errors.KuryrError):
    """ovs-vswitchd refused, or did not answer in time."""


class OpenFlow:
    """:param directory: where ovs-vswitchd has its sockets; None if that is not known."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    @classmethod
    def beside(cls, ovsdb: str) -> "OpenFlow":
        """For the ovs-vswitchd of a database, where that is at ``unix:`` and a path."""
        kind, _, path = ovsdb.partition(":")
        return cls(Path(path).parent if kind == "unix" else None)

    async def forget_connections(self, bridge: str, zone: int) -> None:
        """Returns when it is done.

        :raises OpenFlowError: it is not known to be done.
        """
        if self._directory is None:
            raise OpenFlowError("it is not known where ovs-vswitchd has its sockets")
        flush = struct.pack("!II6xH", NICIRA, CT_FLUSH_ZONE, zone)
        try:
            async with asyncio.timeout(PATIENCE):
                await _ask(self._directory / f"{bridge}.mgmt", _message(EXPERIMENTER, 2, flush))
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            why = str(error) or type(error).__name__
            raise OpenFlowError(f"ovs-vswitchd, bridge {bridge}: {why}") from error


async def _ask(path: Path, message: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(_message(HELLO, 1) + message + _message(BARRIER_REQUEST, 3))
        while True:
            _version, kind, length, number = struct.unpack("!BBHI", await reader.readexactly(8))
            body = await reader.readexactly(length - 8)
            if kind == ERROR:
                raise OpenFlowError(f"ovs-vswitchd refuses: {body[:4].hex()}")
            if kind == ECHO_REQUEST:
                writer.write(_message(ECHO_REPLY, number, body))
            if kind == BARRIER_REPLY:
                return
    finally:
        writer.close()


def _message(kind: int, number: int, body: bytes = b"") -> bytes:
    return struct.pack("!BBHI", VERSION, kind, 8 + len(body), number) + body
