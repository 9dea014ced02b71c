"""Signals, exit codes, and the wait for an API at start, common to both programs."""

import asyncio
import fcntl
import logging
import os
import signal
import socket
import sys
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from oslo_config import cfg

from kuryr_k8s import config, errors
from kuryr_k8s.engine.systemd import notify
from kuryr_k8s.patience import PATIENCE, Patience

LOG = logging.getLogger(__name__)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Failures that waiting does not cure, in the words of the C library and of OpenSSL.
HOPELESS = (
    "Name or service not known",
    "No address associated",
    "nodename nor servname",
    "CERTIFICATE_VERIFY_FAILED",
    "WRONG_VERSION_NUMBER",
)


class Program(Protocol):
    """A program that can be started."""

    async def run(self) -> None:
        """Run until cancelled."""


def start(name: str, arguments: Sequence[str], make: Callable[[cfg.ConfigOpts], Program]) -> int:
    """Run a program until SIGTERM or SIGINT.

    :returns: the exit code: 2 for a wrong configuration, with a line on standard error.
    """
    try:
        conf = config.load(arguments, name)
        asyncio.run(_until_signal(make(conf)))
    except (errors.KuryrError, BaseExceptionGroup) as error:
        first = _first(error)
        if isinstance(first, errors.ConfigError):
            print(f"{name}: {' '.join(str(first).split())}", file=sys.stderr)
            return 2
        if isinstance(first, errors.KuryrError):
            LOG.error("%s", first)
            return 1
        raise
    return 0


async def _until_signal(program: Program) -> None:
    task = asyncio.current_task()
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        notify("STOPPING=1")
        if task is not None:
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        await program.run()
    except asyncio.CancelledError:
        if not stopped:
            raise
        LOG.info("stopped")


async def reach(
    what: str, call: Callable[[], Awaitable[Any]], patience: Patience = PATIENCE
) -> None:
    """Make the first call to an API; while it is merely down, wait and say so.

    :param what: the API's name, for users.
    :raises errors.ConfigError: waiting would not help: the name does not resolve, the certificate
        is not trusted, we are refused, or an object that an option names does not exist.
    """
    refused_since: float | None = None
    while True:
        try:
            await call()
        except (errors.ConfigError, errors.CloudError, errors.KubeError) as error:
            now = asyncio.get_running_loop().time()
            if not _may_be_loading(error):
                refused_since = None
            elif refused_since is None:
                refused_since = now  # the time in which it was down does not count
            if refused_since is None or now - refused_since > patience.start_grace:
                if isinstance(error, errors.ConfigError):
                    raise
                if is_hopeless(error):
                    raise errors.ConfigError(f"{what}: {error}") from error
            LOG.warning("waiting for %s: %s", what, error)
            notify(f"STATUS=waiting for {what}: {error}")
            await asyncio.sleep(patience.start_retry)
        else:
            return


def is_hopeless(error: errors.CloudError | errors.KubeError) -> bool:
    """Return whether an API is not merely down, but will never grant the call."""
    if 400 <= error.status < 500 and error.status not in (408, 409, 429):
        return True
    return any(sign in str(cause) for cause in _causes(error) for sign in HOPELESS)


def _may_be_loading(error: errors.KuryrError) -> bool:
    """Return whether an API that has just started may answer like this for a while."""
    if isinstance(error, errors.KubeError):
        return error.status == 403
    return any(isinstance(cause, errors.NotFound) for cause in _causes(error))


def _causes(error: BaseException | None) -> list[BaseException]:
    causes = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or error.__context__
    return causes


class HostLock:
    """A lock of this host that goes with its process.

    Whoever holds it may take over the Lease of an earlier process on this host.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None
        self.identity = f"{socket.gethostname()}_{uuid.uuid4()}"

    def __enter__(self) -> "HostLock":
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("w")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # this file on this machine: the lock of another file proves nothing
            file = os.fstat(self._file.fileno())
            boot = BOOT_ID.read_text().strip()
            self.identity = f"{socket.gethostname()}_{boot}_{file.st_dev}-{file.st_ino}"
        except BlockingIOError:
            LOG.warning("another controller runs on this host; this one stands by")
        except OSError as error:
            raise errors.ConfigError(f"[kubernetes] lock_file: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _first(error: BaseException) -> BaseException:
    """Return the error that ended the program, out of nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
