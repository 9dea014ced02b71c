"""The clock: it goes on where the event loop's own one stands still."""

import subprocess
import sys

SUSPENDED = 1_000_000  # seconds
PROGRAM = """
import time
from kuryr_k8s.engine.clock import CLOCK
print(CLOCK.now() - time.monotonic())
"""


def test_time_in_which_the_machine_was_suspended_counts():
    """A time namespace shows a machine that was suspended for so long."""
    namespace = ("unshare", "--user", "--time", "--boottime", str(SUSPENDED), "--fork")
    command = [*namespace, sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert round(float(done.stdout)) == SUSPENDED
