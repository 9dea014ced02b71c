"""Signals, exit codes, the watchdog, and the wait for an API, common to both programs."""

import asyncio
import faulthandler
import fcntl
import logging
import os
import signal
import socket
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from oslo_config import cfg
from prometheus_client import Gauge
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kuryr_k8s import config, errors
from kuryr_k8s.engine import systemd
from kuryr_k8s.engine.clock import CLOCK, Clock
from kuryr_k8s.patience import PATIENCE, Patience

LOG = logging.getLogger(__name__)
LONGEST_STATE = 300  # characters; a page of a proxy does not belong into systemctl status
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
WAITED = (errors.CloudError, errors.KubeError, errors.Refused, errors.Wait)


class Program(Protocol):
    """A program that can be started."""

    async def run(self) -> None:
        """Run until cancelled."""


def start(name: str, arguments: Sequence[str], make: Callable[[cfg.ConfigOpts], Program]) -> int:
    """Run a program until SIGTERM or SIGINT.

    :returns: the exit code: 2 for a wrong configuration, with a line on standard error.
    """
    faulthandler.enable()  # the watchdog's SIGABRT then leaves in the log where the program hangs
    try:
        conf = config.load(arguments, name)
        asyncio.run(_until_signal(make(conf), conf))
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


def notify(state: str) -> None:
    """Tell systemd a state, as one short line: what an API says may be anything.

    No program ends because systemd is not reached.
    """
    line = " ".join(state.split())[:LONGEST_STATE].encode(errors="replace").decode()
    try:
        systemd.notify(line)
    except OSError as error:
        LOG.warning("systemd was not told «%s»: %s", state.partition("=")[0], error)


async def _until_signal(program: Program, conf: cfg.ConfigOpts) -> None:
    task = asyncio.current_task()
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        notify("STOPPING=1")
        if task is not None:
            task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, _reload, conf)
    try:
        async with asyncio.TaskGroup() as group:
            watchdog = group.create_task(_feed_watchdog(), name="watchdog")
            await program.run()
            watchdog.cancel()
    except asyncio.CancelledError:
        if not stopped:
            raise
        LOG.info("stopped")


def _reload(conf: cfg.ConfigOpts) -> None:
    """Read the files again, and apply the options that may change while the program runs."""
    try:
        changed = conf.mutate_config_files()
    except Exception as error:  # whatever is in the files: the program works on with the old ones
        LOG.error("the configuration was not read again: %s", error)
    else:
        names = ", ".join(sorted(name for _, name in changed)) or "none"
        LOG.info("the configuration was read again; options that changed: %s", names)


async def _feed_watchdog() -> None:
    """Tell systemd that the event loop turns. If it is not told, it kills and restarts us."""
    interval = systemd.watchdog_interval()
    while interval is not None:
        notify("WATCHDOG=1")
        await asyncio.sleep(interval)


class Waiting(Collector):
    """The waits of a program, as a metric and as its status in systemd.

    The status names the latest wait that lasts, or else what the program does.
    """

    def __init__(self) -> None:
        self._gauge = Gauge(
            "kuryr_start_waiting",
            "Calls to an API that must succeed before the program works, and have not yet",
            ["api"],
            registry=None,
        )
        self._doing = ""
        self._waits: dict[object, str] = {}
        self._told = ""

    def collect(self) -> Iterable[Metric]:
        """Count those who wait, by API."""
        return self._gauge.collect()

    def does(self, doing: str) -> None:
        """Note what the program does while it waits for nothing."""
        self._doing = doing
        self._tell()

    @contextmanager
    def wait(self, what: str) -> Iterator[Callable[[str], None]]:
        """Count a wait, which ends with the block; several may wait for the same API.

        :returns: a function that notes the reason.
        """
        own = object()

        def say(reason: str) -> None:
            self._waits[own] = f"waiting for {what}: {reason}"
            self._tell()

        waiting = self._gauge.labels(what)
        waiting.inc()
        try:
            yield say
        finally:
            waiting.dec()
            self._waits.pop(own, None)
            self._tell()

    def _tell(self) -> None:
        text = next(reversed(self._waits.values()), self._doing)
        if text != self._told:
            self._told = text
            notify(f"STATUS={text}")


async def reach(
    what: str,
    call: Callable[[], Awaitable[Any]],
    waiting: Waiting,
    patience: Patience = PATIENCE,
    clock: Clock = CLOCK,
) -> None:
    """Make the first call to an API; until it succeeds, wait, and say for what.

    No answer of an API ends a program. What is refused now may be granted later: an account is
    locked out for a minute, a resource is not defined yet, a name does not resolve. A node whose
    daemon gave up would stay without a network.

    :param what: the API's name, for users.
    :raises errors.ConfigError: a file of the configuration is wrong, whatever an API shows.
    """
    delay, said_at = patience.start_retry, 0.0
    said: tuple[type[errors.KuryrError], int] | None = None
    with waiting.wait(what) as say:
        while True:
            try:
                await call()
            except WAITED as error:
                kind = type(error), getattr(error, "status", 0)  # the text names each request
                if kind != said or clock.now() - said_at >= patience.start_said:
                    said, said_at = kind, clock.now()
                    LOG.warning("waiting for %s: %s", what, error)
                    say(str(error))
                await clock.sleep(delay)
                delay = min(patience.longest_start_retry, delay * 2)
            else:
                break
    if said is not None:
        LOG.info("%s: what was waited for is there", what)


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
