"""The cases of VIFVlanNested, which want a kernel with VLANs: the host's need not have them."""

import sys
from pathlib import Path

from lab import facts
from lab.process import run
from tests.lab.cluster import machine

REPOSITORY = Path(__file__).resolve().parents[3]
CASES = REPOSITORY / "tests" / "node" / "vlan_in_machine.py"


def run_in_machine():
    """Run them in the first node that is a virtual machine; what they printed.

    :raises lab.process.CommandError: one of them failed.
    """
    worker = machine(facts.load())
    script = (
        # PYTEST_ADDOPTS comes along from here, and may name files that are only here
        "echo 2 > /proc/sys/vm/drop_caches && "
        f"cd {REPOSITORY} && mkdir -p /run/netns && unset PYTEST_ADDOPTS && "
        f"PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=. "
        f"{sys.executable} -m pytest -q -p no:cacheprovider {CASES}"
    )
    return run([*worker.command, "/bin/sh", "-c", script], timeout=800)
