"""DEL requests that kuryr-cni left on disk, since the daemon was down or could not do them."""

import asyncio
import json
import logging
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

from kuryr_k8s.cni.protocol import BAD_CONFIG, BAD_ENVIRONMENT, DECODE_FAILURE, INCOMPATIBLE

LOG = logging.getLogger(__name__)
HOPELESS = (INCOMPATIBLE, BAD_ENVIRONMENT, DECODE_FAILURE, BAD_CONFIG)
Handle = Callable[[bytes], Awaitable[tuple[int, bytes]]]


class Spool:
    """A directory with one request in each file; files that are being written begin with a dot.

    The name of a file is the container, a dot and the interface, as kuryr-cni.c writes it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = asyncio.Lock()

    def prepare(self) -> None:
        """Make the directory, for root alone."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def drain(self, handle: Handle, container_id: str = "") -> int:
        """Do the requests, and remove the file of each one that is done.

        A request that fails stays for the next time. What is not a request is renamed.

        :param container_id: do the requests of this container alone.
        :returns: how many of them are left.
        """
        beginning = f"{container_id}." if container_id else ""
        if not self._names(beginning):
            return 0
        async with self._lock:
            for name in self._names(beginning):
                try:
                    await self._do(name, handle)
                except OSError as error:
                    LOG.error("put-off DEL %s: %s; remove it", self._directory / name, error)
            return len(self._names(beginning))

    async def _do(self, name: str, handle: Handle) -> None:
        try:
            request = self._read(name)
        except OSError as error:
            self._put_aside(name)
            LOG.error("put-off DEL of %s is not a request: %s", name, error)
            return
        code, answer = await handle(request)
        if code == 0:
            self._remove(name)
            LOG.info("did the DEL of %s, which had been put off", name)
        elif json.loads(answer)["code"] in HOPELESS:
            self._put_aside(name)
            LOG.error("put-off DEL of %s is not a request: %s", name, answer.decode())
        else:
            LOG.warning("put-off DEL of %s: %s", name, answer.decode())

    def _names(self, beginning: str = "") -> list[str]:
        if not self._directory.is_dir():
            return []
        names = (entry.name for entry in self._directory.iterdir())
        return sorted(n for n in names if n.startswith(beginning) and not n.startswith("."))

    def _read(self, name: str) -> bytes:
        """Read a DEL.

        :raises OSError: it is something else: another command, a directory, or a pipe, which would
            block.
        """
        path = self._directory / name
        if not stat.S_ISREG(path.lstat().st_mode):
            raise OSError("it is not a file")
        request = path.read_bytes()
        environment = request.partition(b"\0\0")[0].split(b"\0")
        commands = {entry for entry in environment if entry.startswith(b"CNI_COMMAND=")}
        if commands - {b"CNI_COMMAND=DEL"}:  # an ADD would wait for the end of itself
            raise OSError("it is another command")
        return request

    def _remove(self, name: str) -> None:
        (self._directory / name).unlink(missing_ok=True)

    def _put_aside(self, name: str) -> None:
        (self._directory / name).rename(self._directory / f".unreadable-{name}")
