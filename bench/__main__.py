"""`python -m bench NAME [--json] [options]`; `python -m bench all` for one after another."""

from __future__ import annotations

import argparse
import importlib
import sys

from bench.report import Report

MODULES = {
    "pods": "bench.pods.benchmark",
    "services": "bench.services.benchmark",
    "l7": "bench.l7.benchmark",
    "rollout": "bench.rollout.benchmark",
    "restart": "bench.restart.benchmark",
    "neutronports": "bench.neutron_ports.benchmark",
    "storm": "bench.storm.benchmark",
    "cni": "bench.node.cni",
    "lab": "bench.lab.pods",
    "lab_services": "bench.lab.services",
    "lab_rollout": "bench.lab.rollout",
    "lab_burst": "bench.lab.burst",
    "lab_l7": "bench.lab.l7",
    "nested": "bench.node.nested",
    "ancestor": "bench.ancestor.benchmark",
}
NOT_IN_ALL = ("ancestor",)  # installs a foreign program


def main(argv: list[str]) -> int:
    """Run the benchmark that the arguments name and print its report.

    :returns: the exit code: 1 if a target was missed.
    """
    if argv[:1] == ["all"]:
        return max(main([name, *argv[1:]]) for name in MODULES if name not in NOT_IN_ALL)
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, path in MODULES.items():
        module = importlib.import_module(path)
        command = commands.add_parser(name, help=(module.__doc__ or "").partition("\n")[0])
        command.add_argument("--json", action="store_true", help="print all figures as JSON")
        module.add_options(command)
        command.set_defaults(measure=module.measure)
    options = parser.parse_args(argv)
    report: Report = options.measure(options)
    print(report.as_json() if options.json else report.as_text(), flush=True)
    return 0 if report.reached else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
