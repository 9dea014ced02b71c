import itertools
import os
import subprocess
from pathlib import Path

import pytest
from pyroute2 import netns

from tests.node import workbench


@pytest.fixture(autouse=True)
def own_node():
    """Each test in a network namespace of its own: whatever else runs on this machine, perhaps
    another kuryr-k8s-daemon, is neither seen nor touched.
    """
    if not workbench.available():
        pytest.fail("these tests run as root, and need ovsdb-server and ip")
    name = f"kuryrnode{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    with Path("/proc/thread-self/ns/net").open() as home:
        netns.setns(name)  # threads started from here on inherit it
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            netns.setns(home.fileno())
            subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.fixture
def database(tmp_path):
    database = workbench.Database(tmp_path)
    database.start()
    database.fill()
    yield database
    database.stop()


@pytest.fixture
def remote(database):
    return f"unix:{database.socket}"


@pytest.fixture
def namespaces():
    """Makes network namespaces: their names; the path is /run/netns/NAME."""
    numbers, made = itertools.count(), []

    def make():
        name = f"kuryrtest{os.getpid()}x{next(numbers)}"
        subprocess.run(["ip", "netns", "add", name], check=True)
        made.append(name)
        return name

    yield make
    for name in made:
        subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)
