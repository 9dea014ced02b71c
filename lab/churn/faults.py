"""Faults of the lab: restarts, kills and crashes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from lab.kuryr.installation import daemon
from lab.lifecycle import crash
from lab.lifecycle.lab import Lab
from lab.topology import Node

RESTARTED = ("neutron", "ovn-controller", "kube-apiserver", "daemon", "controller")
# Traffic does not go through these: their restart must not lose a single ping.
ASIDE = ("neutron", "kube-apiserver", "daemon", "controller")


class Fault(NamedTuple):
    """A fault of the lab. `strike` returns when what was struck runs again."""

    what: str
    how: str
    strike: Callable[[], object]
    harmless: bool = False


def nothing() -> Fault:
    """Return the fault that strikes nothing: the churn alone, for comparison."""
    return Fault("nothing", "", lambda: time.sleep(8))


def restarts(lab: Lab, *, kill: bool) -> list[Fault]:
    """List a restart for each of RESTARTED, in an orderly way or by SIGKILL."""

    def fault(name: str) -> Fault:
        how = "kill -9" if kill else "restart"
        # not that of a node in an emulator: none of the Pods is there, and it takes a minute
        meant = [daemon(node.name) for node in lab.nodes] if name == "daemon" else [name]
        return Fault(name, how, lambda: lab.restart(meant, kill=kill), name in ASIDE)

    return [fault(name) for name in RESTARTED]


def crashes(lab: Lab, node: Node) -> list[Fault]:
    """List both kinds of a node's crash."""
    return [
        Fault(node.name, "all killed", lambda: crash.crash(lab, node)),
        Fault(node.name, "rebooted", lambda: crash.crash(lab, node, reboot=True)),
    ]
