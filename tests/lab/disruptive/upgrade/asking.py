"""Clients that never stop asking, and count what is not answered."""

import contextlib
import subprocess

from lab.install import images
from tests.lab.cluster import pod

# From the first answer on. What is not answered within 3 s is lost. Each line: how many times it
# has asked, and how often in vain.
_LOOP = (
    "until {ask}; do sleep 0.2; done; asked=0; lost=0; while :; do asked=$((asked + 1)); "
    '{ask} || lost=$((lost + 1)); echo "$asked $lost"; sleep 0.1; done'
)


def asking_pod(name, node, url):
    """Return a Pod that asks for the URL."""
    command = ["sh", "-c", f"trap 'exit 0' TERM; {_loop(url)}"]
    return pod(name, node=node, command=command, container={"image": images.CURL})


def count_of_pod(cluster, name):
    """Return how many times the Pod has asked, and how often in vain."""
    return _numbers(cluster.kubectl("logs", "--tail=1", name))


class Outside:
    """A client on this machine, outside of the cluster."""

    def __init__(self, file):
        self._file = file

    @contextlib.contextmanager
    def asking(self, url):
        """Ask for the URL while the block runs."""
        with self._file.open("w") as output:
            process = subprocess.Popen(["sh", "-c", _loop(url)], stdout=output)
        try:
            yield self
        finally:
            process.kill()
            process.wait()

    def count(self):
        """Return how many times it has asked, and how often in vain."""
        return _numbers(self._file.read_text())


def _loop(url):
    return _LOOP.format(ask=f"curl -sf -o /dev/null --max-time 3 {url}")


def _numbers(text):
    """Read the last line; nothing is asked before the first one."""
    lines = text.split("\n")[:-1]
    asked, lost = map(int, lines[-1].split()) if lines else (0, 0)
    return asked, lost
