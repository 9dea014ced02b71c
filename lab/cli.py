"""The command line of the lab: `python -m lab COMMAND`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence

from lab import topology
from lab.install import binaries, golang
from lab.kubernetes import cni_bridge
from lab.lifecycle import crash
from lab.lifecycle.crash import NotPossible
from lab.lifecycle.graph import StepError
from lab.lifecycle.lab import GROUPS, Lab
from lab.lifecycle.names import UnknownName
from lab.lifecycle.supervisor import ComponentError
from lab.ovn import daemons as ovn
from lab.process import CommandError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    :returns: the exit code.
    """
    options = _parser().parse_args(arguments)
    if os.geteuid() != 0:
        print("the lab makes network namespaces and mounts: run it as root", file=sys.stderr)
        return 1
    try:
        code: int = options.function(Lab(), options)
    except (StepError, ComponentError, CommandError, UnknownName, NotPossible) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; what runs keeps running: `up` goes on from here", file=sys.stderr)
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab",
        description=("OpenStack and Kubernetes on this machine, for development and tests."),
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="install, build, start; return when all is ready")
    up.add_argument("--nodes", type=int, metavar="N", help="number of nodes (2, or as before)")
    up.add_argument("--vm", type=int, metavar="N", help="besides, nodes that are VMs (0)")
    up.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help=(f"only this component or step and what it needs; or one of {', '.join(GROUPS)}"),
    )
    up.set_defaults(function=_up)

    build = commands.add_parser("build", help="install or build single programs")
    build.add_argument("names", nargs="*", metavar="NAME", help="such as etcd; all by default")
    build.set_defaults(function=_build)

    down = commands.add_parser("down", help="stop everything and clean up")
    down.add_argument("--purge", action="store_true", help="forget databases, keys and logs too")
    down.set_defaults(function=_down)

    commands.add_parser("status", help="what runs").set_defaults(function=_status)

    logs = commands.add_parser("logs", help="the end of a component's log")
    logs.add_argument("name")
    logs.add_argument("-n", type=int, default=50, help="number of lines")
    logs.add_argument("-f", action="store_true", help="go on printing")
    logs.set_defaults(function=_logs)

    restart = commands.add_parser("restart", help="restart components")
    restart.add_argument(
        "names",
        nargs="+",
        metavar="NAME",
        help="a component, or short: daemon, controller, ovn-controller … mean those of all nodes",
    )
    restart.add_argument("--kill", action="store_true", help="with SIGKILL")
    restart.set_defaults(function=_restart)

    death = commands.add_parser("crash", help="kill -9 everything on a node, and bring it back")
    death.add_argument("node", metavar="NODE")
    death.add_argument("--reboot", action="store_true", help="what is in the kernel goes too")
    death.set_defaults(function=_crash)

    env = commands.add_parser("env", help='settings for a shell: eval "$(python -m lab env)"')
    env.add_argument("--node", default="node1", metavar="NAME")
    env.add_argument("--cloud", default="lab", help="OS_CLOUD: lab (admin), kuryr or tenant2")
    env.set_defaults(function=_env)

    bridge = commands.add_parser("cni-bridge", help="put the reference bridge on the nodes")
    bridge.add_argument("--off", action="store_true", help="take it away")
    bridge.set_defaults(function=_bridge)
    return parser


def _up(lab: Lab, options: argparse.Namespace) -> int:
    if options.nodes is not None and not 1 <= options.nodes <= topology.MOST_NODES:
        print(f"--nodes: from 1 to {topology.MOST_NODES}", file=sys.stderr)
        return 2
    if options.vm is not None and not 0 <= options.vm <= 9:
        print("--vm: from 0 to 9", file=sys.stderr)
        return 2
    lab.up(options.nodes, tuple(options.only), options.vm)
    return 0


def _build(lab: Lab, options: argparse.Namespace) -> int:
    batches = golang.ORDER  # what is built together shares most of the work
    if options.names:
        batches = {name: (name,) for name in options.names}
    for name, programs in batches.items():
        begin = time.monotonic()
        with lab.progress.during(f"build {name}"):
            binaries.link(lab.paths, binaries.ensure(programs, lab.paths))
        lab.progress.done(f"build {name}", time.monotonic() - begin)
    return 0


def _down(lab: Lab, options: argparse.Namespace) -> int:
    lab.down(purge=options.purge)
    return 0


def _status(lab: Lab, _: argparse.Namespace) -> int:
    states = lab.status()
    records = lab.supervisor.records()
    for name, state in states.items():
        process = records[name].process
        pid = str(process.pid) if process is not None and process.alive else "-"
        print(f"{name:<28} {state:<10} {pid:>8}  {lab.supervisor.log(name)}")
    return 0 if states and set(states.values()) == {"ready"} else 1


def _logs(lab: Lab, options: argparse.Namespace) -> int:
    if lab.supervisor.find(options.name) is None:
        raise ComponentError(f"there is no component {options.name}; see `status`")
    if options.f:
        log = str(lab.supervisor.log(options.name))
        os.execvp("tail", ["tail", "-n", str(options.n), "-F", log])
    print(lab.supervisor.tail(options.name, options.n))
    return 0


def _restart(lab: Lab, options: argparse.Namespace) -> int:
    lab.restart(options.names, kill=options.kill)
    return 0


def _crash(lab: Lab, options: argparse.Namespace) -> int:
    node = next((node for node in lab.nodes if node.name == options.node), None)
    if node is None:
        print(f"there is no {options.node}", file=sys.stderr)
        return 2
    count = crash.crash(lab, node, reboot=options.reboot)
    lab.progress.note(f"{node.name} is back after {count} processes were killed")
    return 0


def _env(lab: Lab, options: argparse.Namespace) -> int:
    node = next((node for node in lab.nodes if node.name == options.node), None)
    if node is None:
        print(f"there is no {options.node}", file=sys.stderr)
        return 2
    for name, value in _environment(lab, node, options.cloud).items():
        print(f"export {name}={shlex.quote(value)}")
    print(f'export PATH={shlex.quote(str(lab.paths.bin))}:"$PATH"')
    return 0


def _environment(lab: Lab, node: topology.Node, cloud: str) -> dict[str, str]:
    own, central = lab.paths.node(node.name), ovn.run_dir(lab.paths)
    return ovn.environment(lab.paths, node) | {
        "KUBECONFIG": str(lab.paths.admin_kubeconfig),
        "OS_CLIENT_CONFIG_FILE": str(lab.paths.clouds),
        "OS_CLOUD": cloud,
        "OVN_NB_DB": f"unix:{central}/ovn-nb.sock",
        "OVN_SB_DB": f"unix:{central}/ovn-sb.sock",
        "CONTAINERD_ADDRESS": str(own.containerd_socket),
        "CONTAINERD_NAMESPACE": "k8s.io",
        "CONTAINER_RUNTIME_ENDPOINT": f"unix://{own.containerd_socket}",
        "NODE_NAME": node.name,
        "NODE_NETNS": node.netns or "",
    }


def _bridge(lab: Lab, options: argparse.Namespace) -> int:
    (cni_bridge.disable if options.off else cni_bridge.enable)(lab.paths, lab.nodes)
    return 0
