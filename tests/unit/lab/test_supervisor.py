"""A component of the lab is gone only when all of it is: its successor must not meet it."""

import fcntl
import sys

import pytest

from lab.lifecycle import probes
from lab.lifecycle.supervisor import Component, Supervisor
from lab.paths import Paths

# The first thread ends and leaves a zombie; the other one lives, and has the lock.
PROGRAM = """
import ctypes, fcntl, sys, threading, time
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("locked", file=open(sys.argv[2], "w"))
ctypes.CDLL(None).syscall(60, 0)
"""


@pytest.fixture
def supervisor(tmp_path):
    found = Supervisor(Paths(tmp_path / "cache", tmp_path / "state"))
    found.paths.create()
    yield found
    for name in found.records():
        found.forget(name)


def holder(tmp_path):
    locked = tmp_path / "locked"
    argv = (sys.executable, "-c", PROGRAM, str(tmp_path / "lock"), str(locked))
    return Component("holder", argv, ready=(probes.command("cat", str(locked), pattern="lock"),))


def is_free(path):
    with path.open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.parametrize("end", [Supervisor.stop, Supervisor.kill])
def test_process_whose_first_thread_has_ended_is_ended_with_all_its_threads(
    supervisor, tmp_path, end
):
    supervisor.register(holder(tmp_path))
    supervisor.start("holder")
    assert supervisor.find("holder").alive
    assert not is_free(tmp_path / "lock")
    end(supervisor, "holder")
    assert is_free(tmp_path / "lock")


def test_start_leaves_alone_what_lives_in_a_thread_only(supervisor, tmp_path):
    supervisor.register(holder(tmp_path))
    supervisor.start("holder")
    before = supervisor.find("holder").process
    supervisor.start("holder")
    assert supervisor.find("holder").process == before
