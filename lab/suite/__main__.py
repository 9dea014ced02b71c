"""The whole test suite: `python -m lab.suite`, or `make test`; `--complete`: `make test-all`.

The stages (stages.py) run in one tox environment. This program provides what they need (tox,
programs, the lab, the product on it), runs them in two rows side by side, verifies that every test
was run by a stage, and sums up. At the end the lab is as it was before: stopped, or configured as
it was.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from lab.install import python313, tox
from lab.kuryr import installation
from lab.lifecycle.lab import Lab
from lab.paths import Paths
from lab.progress import Progress
from lab.suite import orphans, reports, stages
from lab.suite.runner import Result, Runner
from lab.suite.stages import Needs, Stage

_PYTHON = sys.executable
_UP = (_PYTHON, "-m", "lab", "up")
_CLOUD = ("--only", "openstack", "--only", "facts")
_KURYR_UP = (_PYTHON, "-m", "lab.kuryr", "up")
_API_SERVER = ("etcd", "kube-apiserver")
# The row that needs nothing but processors has a fifth of them where both rows want them.
_BEHIND = ("nice", "-n", "5")


class Suite:
    """One run of all stages.

    :param complete: run all tests that there are, as ``make test-all`` does.
    :param only: names of stages; the others, and what only they need, are left out.
    :param seed: chooses the samples of all stages.
    """

    def __init__(self, *, complete: bool, only: Sequence[str], seed: int) -> None:
        self._complete = complete
        self._seed = f"--seed={seed}"
        self._stages = {
            stage.name: stage
            for stage in stages.all_stages(complete=complete)
            if not only or stage.name in only
        }
        self._partial = bool(only)
        self._begin = time.monotonic()
        self._began = datetime.now(UTC)
        self.paths = Paths.from_environment()
        self.paths.create()
        self.reports = self.paths.run / "reports"
        shutil.rmtree(self.reports, ignore_errors=True)
        self.reports.mkdir(parents=True)
        self.runner = Runner(self.paths.state, Progress())
        self._lab = Lab()
        self._was_up = set(self._lab.status().values()) == {"ready"}
        self._vms_before = self._lab.vms
        self._options_before = installation.options(self.paths) if self._was_up else []
        # tests restart the programs as processes
        self._options = [each for each in self._options_before if each != installation.IN_PODS]
        self._there: dict[Needs, Future[bool]] = {}
        self._tox = Path()

    def run(self) -> int:
        """Run all stages, even after one has failed.

        :returns: the exit code.
        """
        if Needs.CLOUD in self._needed():
            # before the stages, which end with all that has the marks of this lab
            self._lab.forget_other_cloud()
        with ThreadPoolExecutor(8) as pool:
            there = self._there
            there[Needs.ENVIRONMENT] = pool.submit(self._environment)
            steps = {
                Needs.PROGRAMS: self._programs,
                Needs.CLOUD: self._cloud,
                Needs.PRODUCT: self._product,
            }
            for need, step in steps.items():
                if need in self._needed():
                    there[need] = pool.submit(step)
            lab_row = pool.submit(self._lab_row, pool)
            for stage in stages.HERE:
                self._run(stage, behind=True)
            collected = None if self._partial else self._collect()
            lab_row.result()
            self._run(stages.AUDIT)
        if not self.runner.interrupted:
            if collected:
                self._verify(collected)
            if Needs.CLOUD in self._there:
                self._leave()
        return self._summary()

    def _environment(self) -> bool:
        """Make the environment of all stages, and once the metadata of entry points."""
        with self.runner.progress.during("tox"):
            self._tox = tox.ensure(self.paths)
        ready = self.runner.step("prepare", tox.prepare(self.paths, self._tox))
        entry_points = tox.entry_points(self.paths, self._tox)
        ready = ready and self.runner.step("entry points", entry_points)
        if self._complete and ready:
            with self.runner.progress.during("Python 3.13"):
                interpreter = python313.install(self.paths)
            os.environ["TOX_DISCOVER"] = str(interpreter)
            ready = self.runner.step("prepare-3.13", tox.prepare(self.paths, self._tox, "py313"))
        return ready

    def _programs(self) -> bool:
        """Build the programs before tests want the processors: builds use all there are."""
        names = () if Needs.PRODUCT in self._needed() else _API_SERVER
        return self.runner.step("programs", [_PYTHON, "-m", "lab", "build", *names])

    def _needed(self) -> set[Needs]:
        """Collect what the stages of this run need, and what has to be there before that."""
        needed = {stage.needs for stage in self._stages.values()}
        if Needs.MACHINE in needed:
            needed.add(Needs.PRODUCT)
        if Needs.PRODUCT in needed:
            needed |= {Needs.CLOUD, Needs.PROGRAMS}
        return needed

    def _cloud(self) -> bool:
        """Bring up OpenStack alone: stages test it while Kubernetes is built."""
        return self.runner.step("cloud up", [*_UP, "--vm", "0", *_CLOUD]) and self.runner.step(
            "cloud clear", [_PYTHON, "-m", "lab.suite.cloud_remains"]
        )

    def _product(self) -> bool:
        """Bring up the rest of the lab, and put the product on it."""
        ready = self._there[Needs.CLOUD].result() and self._there[Needs.PROGRAMS].result()
        return (
            ready
            and self.runner.step("lab up", [*_UP, "--vm", "0"])
            and self.runner.step("kuryr up", [*_KURYR_UP, "--debug", *self._options])
        )

    def _machine(self) -> bool:
        """Add a node that is a virtual machine."""
        if not self._there[Needs.PRODUCT].result():
            return False
        kuryr_up = [*_KURYR_UP, "--debug", *self._options]
        return self.runner.step("machine up", [*_UP, "--vm", "1"]) and self.runner.step(
            "machine kuryr", kuryr_up
        )

    def _lab_row(self, pool: ThreadPoolExecutor) -> None:
        for together in stages.LAB:
            if any(stage.needs is Needs.MACHINE and self._wanted(stage) for stage in together):
                self._there[Needs.MACHINE] = pool.submit(self._machine)
            list(pool.map(self._run, together))

    def _run(self, stage: Stage, *, behind: bool = False) -> None:
        if not self._wanted(stage):
            return
        for need in (Needs.ENVIRONMENT, stage.needs):
            if not self._there[need].result():
                self.runner.missing(stage.name, f"there is no {need}")
                return
        argv = stage.argv(complete=self._complete)
        report = self.reports / f"{stage.name}.xml"
        if not stage.command:
            argv += [self._seed, f"--junitxml={report}", "-p", "no:cacheprovider"]
        variables = {
            # for the audit: what counts, and where stages leave something for it
            "KURYR_LAB_SUITE_BEGAN": self._began.isoformat(),
            "KURYR_LAB_REPORTS": str(self.reports),
            "PATH": f"{self.paths.bin}:{os.environ['PATH']}",  # Open vSwitch's tools
        }
        variables |= {"HYPOTHESIS_PROFILE": "full" if self._complete else "quick"}
        command = [*(_BEHIND if behind else ()), *self._inside(stage.python, argv)]
        self.runner.step(stage.name, command, env=variables, report=report)

    def _wanted(self, stage: Stage) -> bool:
        return stage.name in self._stages

    def _inside(self, environment: str, argv: Sequence[str]) -> list[str]:
        return [*tox.inside(self.paths, self._tox, environment), *argv]

    def _collect(self) -> Path | None:
        """List all tests that there are.

        :returns: where pytest's list is.
        """
        if not self._there[Needs.ENVIRONMENT].result():
            return None
        more = stages.COMPLETE if self._complete else stages.SAMPLED
        listing = self.reports / "collected.txt"
        script = 'listing="$1"; shift; exec "$@" > "$listing"'
        argv = ["pytest", *stages.COLLECTION, *more, self._seed, "--collect-only", "-q"]
        collect = self._inside("py", [*argv, "-p", "no:cacheprovider"])
        command = [*_BEHIND, "sh", "-c", script, "sh", str(listing), *collect]
        done = self.runner.step("collect", command, env=stages.COLLECTION_ENV)
        return listing if done else None

    def _verify(self, collected: Path) -> None:
        """Fail unless the stages ran all tests that pytest listed."""
        written = [self.reports / f"{name}.xml" for name in self._stages]
        never = reports.never_run(collected.read_text(), written)
        end = tuple(f"no stage ran {line}" for line in reports.by_file(never))
        # first: its reasons are those of the stages after it
        self.runner.results.insert(0, Result("every test", not never, end=end))

    def _leave(self) -> None:
        """Leave the lab as it was."""
        if self._was_up:
            self.runner.step("as before", [*_UP, "--vm", str(self._vms_before)])
            self.runner.step("kuryr before", [*_KURYR_UP, *self._options_before])
        elif "KEEP_LAB" not in os.environ:
            self.runner.step("lab down", [_PYTHON, "-m", "lab", "down"])

    def _summary(self) -> int:
        results = self.runner.results
        passed = sum(result.passed for result in results)
        failed = sum(result.failed for result in results)
        skipped = sum(result.skipped for result in results)
        ok = all(result.ok for result in results) and not failed and not skipped
        line = "{:<14} {:<7} {:>8} {:>7} {:>7} {:>7} {:>8}".format
        print("\n" + line("STAGE", "RESULT", "SECONDS", "CPU", "PASSED", "FAILED", "SKIPPED"))
        for r in results:
            word = "ok" if r.ok else "FAILED"
            times = (f"{r.seconds:.1f}", f"{r.cpu_seconds:.1f}")
            print(line(r.name, word, *times, r.passed, r.failed, r.skipped))
        verdict = "all stages passed" if ok else "not all stages passed"
        print(f"\n{verdict}, after {time.monotonic() - self._begin:.0f} s")
        print(f"{passed} passed, {failed} failed, {skipped} skipped; samples: {self._seed}")
        if self.runner.interrupted and Needs.CLOUD in self._there:
            print("interrupted: the lab stays as it is now; `python3 -m lab down` takes it down")
        for result in results:
            found = list(reports.failures(self.reports / f"{result.name}.xml"))
            for reason in found or (() if result.ok else result.end):
                print(f"{result.name}: {reason}")
        sys.stdout.flush()
        return 0 if ok else 1


def main() -> int:
    """Run the stages that the command line asks for.

    :returns: the exit code: 1 where a stage failed, or where another run uses this lab.
    """
    parser = argparse.ArgumentParser(prog="python3 -m lab.suite", description=__doc__)
    parser.add_argument(
        "--complete", action="store_true", help="all faults, and Python 3.13 as well"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[stage.name for stage in stages.all_stages(complete=True)],
        default=[],
        help="run this stage, and what it needs; may be repeated",
    )
    parser.add_argument(
        "--seed", type=int, help="choose the samples of the run that printed this number"
    )
    arguments = parser.parse_args()
    paths = Paths.from_environment()
    paths.create()
    with orphans.only_run(paths) as alone:
        if not alone:
            print("another run of the suite is under way on this lab", file=sys.stderr)
            return 1
        orphans.clear(paths)
        seed = secrets.randbelow(10**6) if arguments.seed is None else arguments.seed
        suite = Suite(complete=arguments.complete, only=arguments.only, seed=seed)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: suite.runner.stop())
        return suite.run()


if __name__ == "__main__":
    sys.exit(main())
