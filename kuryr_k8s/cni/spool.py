"""DEL requests that kuryr-cni left on disk while the daemon was down."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from kuryr_k8s.cni.protocol import BAD_CONFIG, BAD_ENVIRONMENT, DECODE_FAILURE, INCOMPATIBLE

LOG = logging.getLogger(__name__)
HOPELESS = (INCOMPATIBLE, BAD_ENVIRONMENT, DECODE_FAILURE, BAD_CONFIG)
Handle = Callable[[bytes], Awaitable[tuple[int, bytes]]]


class Spool:
    """A directory with one request in each file; files that are being written begin with a dot."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._names())

    def prepare(self) -> None:
        """Make the directory, for root alone."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def drain(self, handle: Handle) -> int:
        """Do the requests, and remove the file of each one that is done.

        A request that fails stays for the next time. A file that is not a request is renamed.

        :returns: how many files are left.
        """
        async with self._lock:
            for name in self._names():
                code, answer = await handle(self._read(name))
                if code == 0:
                    self._remove(name)
                    LOG.info("did the DEL of %s, put off while the daemon was down", name)
                elif json.loads(answer)["code"] in HOPELESS:
                    self._put_aside(name)
                    LOG.error("put-off DEL of %s is not a request: %s", name, answer.decode())
                else:
                    LOG.warning("put-off DEL of %s: %s", name, answer.decode())
            return len(self)

    def _names(self) -> list[str]:
        if not self._directory.is_dir():
            return []
        return sorted(p.name for p in self._directory.iterdir() if not p.name.startswith("."))

    def _read(self, name: str) -> bytes:
        return (self._directory / name).read_bytes()

    def _remove(self, name: str) -> None:
        (self._directory / name).unlink(missing_ok=True)

    def _put_aside(self, name: str) -> None:
        (self._directory / name).rename(self._directory / f".unreadable-{name}")
