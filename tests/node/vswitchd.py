"""The management socket of a bridge, as ovs-vswitchd has it: it takes requests to forget."""

import asyncio
import contextlib
import struct

HELLO, ERROR, EXPERIMENTER, BARRIER_REQUEST, BARRIER_REPLY = 0, 1, 4, 20, 21
FLUSH = struct.pack("!II6x", 0x2320, 29)


class VSwitchd:
    """`forgotten` are the zones; with `refuses` set it answers with an error."""

    def __init__(self, directory, bridge="br-int"):
        self._path = directory / f"{bridge}.mgmt"
        self.forgotten = []
        self.refuses = False

    async def run(self):
        """Until cancelled."""
        server = await asyncio.start_unix_server(self._serve, self._path)
        async with server:
            await server.serve_forever()

    async def _serve(self, reader, writer):
        writer.write(struct.pack("!BBHI", 4, HELLO, 8, 0))
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                _version, kind, length, number = struct.unpack(
                    "!BBHI", await reader.readexactly(8)
                )
                body = await reader.readexactly(length - 8)
                if kind == EXPERIMENTER and self.refuses:
                    writer.write(struct.pack("!BBHIHH", 4, ERROR, 12, number, 1, 3))
                elif kind == EXPERIMENTER:
                    assert body.startswith(FLUSH)
                    self.forgotten += struct.unpack_from("!H", body, len(FLUSH))
                elif kind == BARRIER_REQUEST:
                    writer.write(struct.pack("!BBHI", 4, BARRIER_REPLY, 8, number))
        writer.close()
