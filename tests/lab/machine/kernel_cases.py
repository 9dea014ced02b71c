"""Cases that want what the host need not have: VLANs in its kernel, a card with VFs."""

import ast
import shlex
import shutil
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from lab import facts
from lab.paths import REPOSITORY, Paths
from lab.process import run
from tests.lab.cluster import machine

CASES = (Path("tests/node/vlan_in_machine.py"), Path("tests/node/sriov_in_machine.py"))
# What the cases need of this clone, which need not be where the machine sees the same files.
PARTS = ("kuryr_k8s", "lab", "tests", "setup.cfg")
PASSED = "passed"


def names():
    """Return the names of the cases."""
    return list(_files())


def _files():
    """Return the file of each case."""
    return {
        function.name: cases
        for cases in CASES
        for function in ast.parse((REPOSITORY / cases).read_text()).body
        if getattr(function, "name", "").startswith("test_")
    }


def run_in_machine(chosen):
    """Run these cases in the first node that is a virtual machine.

    :returns: for each case `PASSED`, or what pytest says of its first failure.
    """
    lab = facts.load()
    worker = machine(lab)
    # the machine shares this directory with its host, at the same path, and caches nothing of it
    clone = Paths.from_environment().node(worker.name).root / "clone"
    copy_to(clone)
    report = clone / "report.xml"
    files = _files()
    cases = [f"{files[name]}::{name}" for name in chosen]
    script = (
        # programs of the host may have changed since the machine read them
        "echo 2 > /proc/sys/vm/drop_caches && mkdir -p /run/netns && "
        # PYTEST_ADDOPTS comes along from here, and may name files that are only here
        f"cd {shlex.quote(str(clone))} && unset PYTEST_ADDOPTS && "
        "export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=. && "
        f"export PATH={shlex.quote(str(lab.bin))}:$PATH && "  # Open vSwitch's tools
        f"{shlex.quote(sys.executable)} -m pytest -q -p no:cacheprovider "
        f"--junitxml={shlex.quote(str(report))} {shlex.join(cases)}"
    )
    printed = run([*worker.command, "/bin/sh", "-c", script], timeout=800, check=False)
    print(printed)
    assert report.exists(), printed
    found = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        name, _, _parameters = case.get("name").partition("[")
        if found.get(name, PASSED) == PASSED:
            found[name] = outcome(case)
    return found


def copy_to(clone):
    """Copy the parts that the cases need, without what earlier runs left there."""
    shutil.rmtree(clone, ignore_errors=True)
    clone.mkdir(parents=True)
    for part in PARTS:
        source = REPOSITORY / part
        if source.is_dir():
            shutil.copytree(source, clone / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, clone)


def outcome(case):
    """Return `PASSED`, or why the case of a JUnit report did not pass."""
    troubles = [part for part in case if part.tag in ("failure", "error", "skipped")]
    return "\n".join(part.text or part.get("message") for part in troubles) or PASSED
