"""Kubernetes' own end-to-end tests of the network on the lab: `python -m lab.conformance`.

The tests are built from Kubernetes' module, and their images by hand. By default all specs of
[sig-network] run that are [Conformance]; with --more those that any cluster without kube-proxy can
be asked. Prints a table; ends with 1 if a spec failed whose failure has no reason in specs.py. The
lab is up without virtual machines, with the product and its Services on it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab import facts
from lab.conformance import images, results, specs
from lab.install import binaries
from lab.install.images import import_archive
from lab.lifecycle.lab import Lab
from lab.process import run as run_command


def main(arguments: list[str]) -> int:
    """Run the specs that the command line asks for, and print a table.

    :returns: the exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m lab.conformance", description=__doc__)
    parser.add_argument("--times", type=int, default=1, help="runs, one after another")
    parser.add_argument("--more", action="store_true", help="specs beyond [Conformance]")
    parser.add_argument("--focus", help="a regular expression of the specs to run instead")
    parser.add_argument("--skip", help="a regular expression of specs to leave out")
    options = parser.parse_args(arguments)
    lab = Lab()
    if facts.load(lab.paths.facts).workers:
        print("nodes that are virtual machines lack the images: python3 -m lab up --vm 0")
        return 2
    programs = binaries.ensure(["e2e.test", "kubectl"], lab.paths)
    archives = images.archives(lab.paths).values()
    for node in lab.nodes:
        for archive in archives:
            import_archive(lab.paths, lab.paths.node(node.name).containerd_socket, archive)
    focus = options.focus or (specs.MORE if options.more else specs.CONFORMANCE)
    skip = [specs.NOT_ASKED] if options.focus is None else []
    skip += [options.skip] if options.skip else []
    runs = []
    for number in range(1, options.times + 1):
        report = lab.paths.run / "conformance" / str(number)
        shutil.rmtree(report, ignore_errors=True)
        if options.more and options.focus is None:
            found = _run(lab, programs, focus, [*skip, specs.APART], report / "most")
            found += _run(lab, programs, specs.APART, skip, report / "apart")
        else:
            found = _run(lab, programs, focus, skip, report)
        runs.append(found)
    version = run_command([str(programs["kubectl"]), "version", "--client"]).splitlines()[0]
    print(f"\n{version.replace('Client Version: ', 'Kubernetes ')}", flush=True)
    for line in results.table(runs, specs.REASONS):
        print(line)
    unexplained = [
        result.spec
        for each in runs
        for result in each
        if result.failure and results.reason_of(result.spec, specs.REASONS) is None
    ]
    return 1 if unexplained or not all(runs) else 0


def _run(
    lab: Lab, programs: dict[str, Path], focus: str, skip: Sequence[str], report: Path
) -> list[results.Result]:
    """Run the specs once, in one process; what they print goes to a file beside the report."""
    report.mkdir(parents=True)
    command = [
        str(programs["e2e.test"]),
        f"--kubeconfig={lab.paths.admin_kubeconfig}",
        f"--kubectl-path={programs['kubectl']}",
        "--provider=skeleton",
        "--disable-log-dump",
        f"--num-nodes={len(lab.nodes)}",
        f"--report-dir={report}",
        f"--ginkgo.focus={focus}",
        "--ginkgo.timeout=3h",
        "--ginkgo.no-color",
        "--ginkgo.succinct",
    ]
    if skip:
        command.append(f"--ginkgo.skip={'|'.join(skip)}")
    with (report / "output").open("w") as output:
        subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
    return results.read(report / "junit_01.xml")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
