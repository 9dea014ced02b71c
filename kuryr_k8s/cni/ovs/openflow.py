"""OpenFlow to ovs-vswitchd over a bridge's management socket: forget the connections of a port.

The protocol is OpenFlow 1.3 with Nicira's message NXT_CT_FLUSH_ZONE. A port that goes from Pod to
Pod keeps its address and its zone of connection tracking: the next Pod must not receive what the
last Pod has allowed by opening a connection.
"""

import asyncio
import struct
from pathlib import Path

from kuryr_k8s import errors
from kuryr_k8s.cni.patience import USUAL, Patience

VERSION = 4  # OpenFlow 1.3
HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, EXPERIMENTER = 0, 1, 2, 3, 4
BARRIER_REQUEST, BARRIER_REPLY = 20, 21
NICIRA, CT_FLUSH_ZONE = 0x2320, 29


class OpenFlowError(errors.KuryrError):
    """ovs-vswitchd refused, or did not answer in time."""


class OpenFlow:
    """The management sockets of ovs-vswitchd.

    :param directory: where they are; None if that is unknown.
    """

    def __init__(self, directory: Path | None, patience: Patience = USUAL) -> None:
        self._directory = directory
        self._patience = patience.openflow

    @classmethod
    def beside(cls, ovsdb: str, patience: Patience = USUAL) -> "OpenFlow":
        """Make the sockets of the ovs-vswitchd that uses a database at ``unix:`` and a path."""
        kind, _, path = ovsdb.partition(":")
        return cls(Path(path).parent if kind == "unix" else None, patience)

    async def forget_connections(self, bridge: str, zone: int) -> None:
        """Have ovs-vswitchd forget all connections of a zone, and wait until it has.

        :raises OpenFlowError: it may not have forgotten them.
        """
        if self._directory is None:
            raise OpenFlowError("it is not known where ovs-vswitchd has its sockets")
        flush = struct.pack("!II6xH", NICIRA, CT_FLUSH_ZONE, zone)
        try:
            async with asyncio.timeout(self._patience):
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
