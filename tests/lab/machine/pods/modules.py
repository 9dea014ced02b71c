"""Modules of this directory that run on the machine while a test does."""

import contextlib
import shlex
import subprocess
import sys

from lab.paths import Paths
from tests.lab.machine import kernel_cases


@contextlib.contextmanager
def running(worker, module, *arguments):
    """Run a module on the machine until the test is over; yield the first line that it prints."""
    clone = Paths.from_environment().node(worker.name).root / "plugin"
    kernel_cases.copy_to(clone)
    command = [sys.executable, "-m", f"tests.lab.machine.pods.{module}", *arguments]
    script = f"cd {shlex.quote(str(clone))} && "
    script += f"PYTHONDONTWRITEBYTECODE=1 exec {shlex.join(command)}"
    argv = [*worker.command, "/bin/sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            first = process.stdout.readline().strip()
            if not first or first.startswith("Traceback"):
                raise AssertionError(f"{module} has ended: {first} {process.stdout.read()}")
            yield first
        finally:
            process.terminate()
