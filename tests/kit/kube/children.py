"""Child processes that end with their parent, however that ends."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_ports = (20000 + (997 * os.getpid() + step) % 10000 for step in itertools.count())


class Launcher:
    """Starts programs that the kernel kills when this process is gone, even by SIGKILL.

    The kernel sends that signal when the *thread* ends that started the child, so one thread
    that lives as long as the launcher starts them all.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="launcher")

    def start(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        """Start the program; what it prints goes to the end of `log`."""
        return self._thread.submit(_start, command, log).result()

    def close(self) -> None:
        """End the thread, and with it every program that still runs."""
        self._thread.shutdown()


def stop(process: subprocess.Popen[bytes], *, kill: bool = False) -> None:
    """End the program and wait for it; `kill` is without notice."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_ports(number: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on, other ones at each call and in each process.

    None of those that the kernel gives to whoever asks for any: a server that is restarted must
    find its own free again.
    """
    return list(itertools.islice(filter(_is_free, _ports), number))


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
