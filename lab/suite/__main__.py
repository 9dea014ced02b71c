"""Everything that is tested, from nothing: `python -m lab.suite`, or `make test`.

The stages are tox environments; this brings what they need (tox, programs, the lab, the product on
it), runs them and sums up. They go in two rows side by side: what is tested on the lab mostly
waits for the cloud, what needs nothing of the lab but its programs fills the processors meanwhile.
The node that is a virtual machine is there for its own tests only: it costs a quarter of a
processor. The lab is stopped at the end if it was not up before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lab.install import tox
from lab.lifecycle.lab import Lab
from lab.paths import REPOSITORY, Paths

NODE = "tests/node"  # the daemon in network namespaces of its own
MACHINE = "tests/lab/machine"  # what wants the node that is a virtual machine
SOME = ("-m", "not complete")
UP = (sys.executable, "-m", "lab", "up")
CLOUD = ("--only", "openstack", "--only", "facts")
# Cases of one service come one after another: quotas are for all of them, and those of ports are
# for VIPs as well.
OCTAVIA = "load_balancer or quota"
REASON_LINES = 5  # of the end of a stage that failed otherwise
REASON = 300  # characters of why a test failed that the summary shows


@dataclass(frozen=True)
class Result:
    """What came of a stage."""

    name: str
    ok: bool
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    end: tuple[str, ...] = ()  # of what it printed


class Suite:
    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._began = datetime.now(UTC)
        self.paths = Paths.from_environment()
        self.paths.create()
        self.results: list[Result] = []
        self.reports = self.paths.run / "reports"
        shutil.rmtree(self.reports, ignore_errors=True)
        self.reports.mkdir(parents=True)

    def run(self) -> int:
        """All stages, also after one has failed; the exit code."""
        lab = Lab()
        was_up = set(lab.status().values()) == {"ready"}
        command = tox.ensure(self.paths)
        with ThreadPoolExecutor(4) as pool:
            prepared = pool.submit(self._prepare, command)
            has_cloud = pool.submit(self._step, "cloud up", [*UP, "--vm", "0", *CLOUD])
            is_up = pool.submit(self._lab_up, has_cloud)
            on_the_lab = pool.submit(self._on_the_lab, command, prepared, has_cloud, is_up)
            # the other row is the longer one: this one has the processors when that one waits
            # (to be nice is not enough, with which that one takes half as long again)
            behind = ["chrt", "--idle", "0", *command]
            self._tox_stage(behind, "lint")
            self._tox_stage(behind, "unit", env="py")
            is_up.result()  # it brings the programs
            prepared.result()
            self._tox_stage(behind, "component", "--numprocesses=2")
            self._tox_stage(behind, "node", NODE, env="functional")
            self._tox_stage(behind, "fakes", "--real=no", env="contract")
            if on_the_lab.result():
                self._tox_stage(command, "audit")  # of what all this left in logs
        if not was_up and "KEEP_LAB" not in os.environ:
            self._step("lab down", [sys.executable, "-m", "lab", "down"])
        return self._summary()

    def _lab_up(self, has_cloud: Future[bool]) -> bool:
        """The rest of it; whether the product could be installed there, too."""
        has_cloud.result()
        return self._step("lab up", [*UP, "--vm", "1"]) and self._step(
            "kuryr up", [sys.executable, "-m", "lab.kuryr", "up", "--debug"]
        )

    def _on_the_lab(
        self,
        command: list[str],
        prepared: Future[None],
        has_cloud: Future[bool],
        is_up: Future[bool],
    ) -> bool:
        """The cloud alone first, while Kubernetes is built; whether there was all to test on."""
        prepared.result()
        if has_cloud.result():
            self._contract(command)
        if not is_up.result():
            return False
        self._tox_stage(command, "machine", MACHINE, *SOME, env="functional")
        self._step("machine off", [*UP, "--vm", "0"])
        quiet = ("tests/lab/quiet", "--numprocesses=4")
        self._tox_stage(command, "quiet", *quiet, *SOME, env="functional")
        self._tox_stage(command, "disruptive", "tests/lab/disruptive", *SOME, env="functional")
        return True

    def _contract(self, command: list[str]) -> None:
        """Side by side: each mostly waits for its service."""
        with ThreadPoolExecutor(1) as pool:
            only = ("--real=only", "-k")
            octavia = pool.submit(
                self._tox_stage, command, "octavia", *only, OCTAVIA, env="contract"
            )
            self._tox_stage(command, "neutron", *only, f"not ({OCTAVIA})", env="contract")
            octavia.result()

    def _prepare(self, command: list[str]) -> None:
        """Make the environments that the two rows share: tox has no lock for them."""
        self._step("prepare", [*command, "--notest", "-e", "component,contract,functional,audit"])

    def _tox_stage(self, command: list[str], name: str, *args: str, env: str = "") -> None:
        report = self.reports / f"{name}.xml"
        variables = {
            "PYTEST_ADDOPTS": f"--junitxml={report} -p no:cacheprovider",
            # for the audit: what counts, and where stages leave something for it
            "KURYR_LAB_SUITE_BEGAN": self._began.isoformat(),
            "KURYR_LAB_REPORTS": str(self.reports),
            "PATH": f"{self.paths.bin}:{os.environ['PATH']}",  # Open vSwitch's tools
        }
        argv = [*command, "-e", env or name, *(("--", *args) if args else ())]
        self._step(name, argv, env=variables, report=report)

    def _step(
        self,
        name: str,
        argv: list[str],
        *,
        env: dict[str, str] | None = None,
        report: Path | None = None,
    ) -> bool:
        """Run a command, show each line under its name, and note its result."""
        print(f"=== {name}", flush=True)
        begin = time.monotonic()
        with subprocess.Popen(
            argv,
            cwd=REPOSITORY,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as running:
            assert running.stdout is not None
            end = deque[str](maxlen=REASON_LINES)
            for line in running.stdout:
                print(f"{name:<11}| {line}", end="", flush=True)
                end.append(line.rstrip())
        ok = running.returncode == 0
        counts = _counts(report) if report else (0, 0, 0)
        self.results.append(Result(name, ok, time.monotonic() - begin, *counts, tuple(end)))
        return ok

    def _summary(self) -> int:
        passed = sum(result.passed for result in self.results)
        failed = sum(result.failed for result in self.results)
        skipped = sum(result.skipped for result in self.results)
        ok = all(result.ok for result in self.results) and not failed and not skipped
        line = "{:<12} {:<7} {:>8} {:>7} {:>7} {:>8}".format
        print("\n" + line("STAGE", "RESULT", "SECONDS", "PASSED", "FAILED", "SKIPPED"))
        for r in self.results:
            word = "ok" if r.ok else "FAILED"
            print(line(r.name, word, f"{r.seconds:.1f}", r.passed, r.failed, r.skipped))
        verdict = "all is well" if ok else "not all is well"
        print(f"\n{verdict}, after {time.monotonic() - self._begin:.0f} s")
        print(f"{passed} passed, {failed} failed, {skipped} skipped")
        for result in self.results:
            found = list(_failures(self.reports / f"{result.name}.xml"))
            for what in found or (() if result.ok else result.end):
                print(f"{result.name}: {what}")
        sys.stdout.flush()
        return 0 if ok else 1


def _counts(report: Path) -> tuple[int, int, int]:
    """Tests passed, failed and skipped, from a JUnit report."""
    if not report.exists():
        return (0, 0, 0)
    suites = list(ET.parse(report).getroot().iter("testsuite"))

    def count(*names: str) -> int:
        return sum(int(suite.get(name) or 0) for suite in suites for name in names)

    failed, skipped = count("failures", "errors"), count("skipped")
    return (count("tests") - failed - skipped, failed, skipped)


def _failures(report: Path) -> Iterator[str]:
    """The tests that failed, each with the beginning of its reason: who sees only the end of a
    long output sees these."""
    if not report.exists():
        return
    for case in ET.parse(report).getroot().iter("testcase"):
        for why in (*case.findall("failure"), *case.findall("error")):
            reason = " ".join((why.get("message") or "").split())
            yield f"{case.get('classname')}::{case.get('name')}: {reason[:REASON]}"


if __name__ == "__main__":
    sys.exit(Suite().run())
