"""Everything that is tested, from nothing: `python -m lab.suite`, or `make test`.

The stages are tox environments; this brings what they need (tox, programs, the lab, the product on
it), runs them one after another and sums up. The lab comes up while the first stages run; it is
stopped at the end if it was not up before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lab import tox
from lab.lifecycle import Lab
from lab.paths import Paths

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Result:
    """What came of a stage."""

    name: str
    ok: bool
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: int = 0


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
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(
                self._step, "lab up", [sys.executable, "-m", "lab", "up", "--vm", "1"], quiet=True
            )
            self._tox_stage(command, "lint")
            self._tox_stage(command, f"py3{sys.version_info.minor}")
            is_up = coming.result()
        self._tox_stage(command, "component")
        if is_up:
            self._tox_stage(command, "contract")
            if self._step("kuryr up", [sys.executable, "-m", "lab.kuryr", "up", "--debug"]):
                self._tox_stage(command, "functional")
                self._tox_stage(command, "audit")  # of what all this left in logs
        if not was_up and "KEEP_LAB" not in os.environ:
            self._step("lab down", [sys.executable, "-m", "lab", "down"], quiet=True)
        return self._summary()

    def _tox_stage(self, command: list[str], name: str) -> None:
        report = self.reports / f"{name}.xml"
        env = {
            "PYTEST_ADDOPTS": f"--junitxml={report} -p no:cacheprovider",
            # for the audit: what counts, and where stages leave something for it
            "KURYR_LAB_SUITE_BEGAN": self._began.isoformat(),
            "KURYR_LAB_REPORTS": str(self.reports),
            "PATH": f"{self.paths.bin}:{os.environ['PATH']}",  # Open vSwitch's tools
        }
        self._step(name, [*command, "-e", name], env=env, report=report)

    def _step(
        self,
        name: str,
        argv: list[str],
        *,
        env: dict[str, str] | None = None,
        report: Path | None = None,
        quiet: bool = False,
    ) -> bool:
        """Run a command and note its result; a quiet one shows its output if it fails."""
        print(f"\n=== {name}" + (" (beside the next)" if quiet else ""), flush=True)
        begin = time.monotonic()
        output = self.reports / f"{name.replace(' ', '-')}.log"
        with output.open("wb") as log:
            done = subprocess.run(
                argv,
                cwd=REPOSITORY,
                env={**os.environ, **(env or {})},
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=log if quiet else None,
                stderr=subprocess.STDOUT if quiet else None,
            )
        ok = done.returncode == 0
        if quiet and not ok:
            print(output.read_text(errors="replace"))
        counts = _counts(report) if report else (0, 0, 0)
        self.results.append(Result(name, ok, time.monotonic() - begin, *counts))
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
        print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
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


if __name__ == "__main__":
    sys.exit(Suite().run())
