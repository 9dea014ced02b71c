"""Commands that are run, and processes found by what they are, not by a number that is reused.

Every process of the lab carries two marks in its environment: which lab started it (LAB_MARK, the
state directory) and as which component (COMPONENT_MARK). A child inherits them, so that orphans
can be found after everything that knew their pid is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LAB_MARK = "KURYR_LAB"
COMPONENT_MARK = "KURYR_LAB_COMPONENT"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CommandError(Exception):
    """A command ended with an error, or took too long."""


@dataclass(frozen=True)
class Identity:
    """A process: a pid together with its start time, which no later process shares."""

    pid: int
    start: int

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.start


def in_namespace(argv: Sequence[str], netns: str | None) -> list[str]:
    """Put a command into a network namespace, and only that: mounts stay shared with everyone."""
    if netns is None:
        return list(argv)
    return ["nsenter", f"--net=/run/netns/{netns}", "--", *argv]


def run(
    argv: Sequence[str],
    *,
    netns: str | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    timeout: float = 120,
    stdin: str | None = None,
    cwd: Path | None = None,
) -> str:
    """Run a command to its end and return what it printed; env adds to the environment.

    :raises CommandError: it cannot be run, takes too long, or fails (unless `check` is off).
    """
    environment = {**os.environ, **(env or {})}
    try:
        done = subprocess.run(
            in_namespace(argv, netns),
            input=stdin,
            env=environment,
            cwd=cwd,
            timeout=timeout,
            capture_output=True,
            text=True,
            check=False,
            errors="replace",
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{' '.join(argv)}: no end after {timeout:.0f} s") from error
    except OSError as error:
        raise CommandError(f"{argv[0]}: {error}") from error
    if check and done.returncode:
        tail = "\n".join((done.stderr + done.stdout).strip().splitlines()[-15:])
        raise CommandError(f"{' '.join(argv)}: exit code {done.returncode}\n{tail}")
    return done.stdout


def succeeds(argv: Sequence[str], *, netns: str | None = None, timeout: float = 30) -> bool:
    """Return whether the command can be run and exits with 0."""
    try:
        run(argv, netns=netns, timeout=timeout)
    except CommandError:
        return False
    return True


def start_time(pid: int) -> int | None:
    """Read when the process started, in clock ticks since boot; None if all of it is dead."""
    fields = _stat(Path(f"/proc/{pid}/stat"))
    # A leader that is a zombie may have threads that live, and hold its files and locks.
    return int(fields[19]) if fields and (_lives(fields) or _has_threads(pid)) else None


def _has_threads(pid: int) -> bool:
    """Return whether any of the process's threads has not ended."""
    return any(_lives(_stat(stat)) for stat in Path(f"/proc/{pid}/task").glob("*/stat"))


def _lives(fields: list[str]) -> bool:
    return bool(fields) and fields[0] not in "ZX"


def _stat(path: Path) -> list[str]:
    """Read the fields after the name, which may hold spaces, see proc(5); none if it is gone."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []


def pids() -> list[int]:
    """List the pids of the processes that there are."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def environment_of(pid: int) -> dict[str, str]:
    """Read the environment that a process was started with; empty if it cannot be read."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in raw.decode(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs if name}


def arguments(pid: int) -> tuple[str, ...]:
    """Read the command line of a process; empty if it is gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(raw.decode(errors="replace").split("\0")[:-1])


def marked(state: Path, component: str | None = None) -> list[Identity]:
    """Find every living process of this lab, or of one of its components, orphaned or not."""
    found = []
    for pid in pids():
        environment = environment_of(pid)
        if environment.get(LAB_MARK) != str(state) or pid == os.getpid():
            continue
        if component is not None and environment.get(COMPONENT_MARK) != component:
            continue
        start = start_time(pid)
        if start is not None:
            found.append(Identity(pid, start))
    return found


def session(leader: Identity) -> list[Identity]:
    """Find the living processes of the session that the leader founded, whether it lives or not.

    The kernel does not give a pid out again while it names a session, so they are the leader's.
    """
    if start_time(leader.pid) not in (None, leader.start):
        return []
    found = []
    for pid in pids():
        fields = _stat(Path(f"/proc/{pid}/stat"))
        if fields and int(fields[3]) == leader.pid:
            start = start_time(pid)
            if start is not None:
                found.append(Identity(pid, start))
    return found


def send(identity: Identity, number: signal.Signals, *, group: bool = False) -> None:
    """Signal the process (or its group) if it is still the one that is meant."""
    if not identity.alive:
        return
    try:
        if group and os.getpgid(identity.pid) == identity.pid:
            os.killpg(identity.pid, number)
        else:
            os.kill(identity.pid, number)
    except ProcessLookupError:
        return


def wait_until(condition: Callable[[], bool], timeout: float, pause: float = 0.05) -> bool:
    """Ask again and again until the condition holds.

    :returns: False when the time is up.
    """
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


def kill_all(processes: Iterable[Identity], timeout: float = 10) -> bool:
    """Send SIGKILL to these processes, and wait until they are gone.

    :returns: False if one is left (it hangs in the kernel).
    """
    victims = list(processes)
    for victim in victims:
        send(victim, signal.SIGKILL)
    return wait_until(lambda: not any(victim.alive for victim in victims), timeout)
