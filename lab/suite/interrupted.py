"""Remains of interrupted runs on the lab: how they are found, and how they are cleared.

A namespace of a test says which run made it. A run that is over and did not remove its namespaces
was interrupted.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from lab import facts
from lab.kubernetes.client import kubectl
from lab.process import Identity, start_time, succeeds

# Labels of what tests make in the cluster: the run, and the machine's process that it is.
RUN = "kuryr-tests/run"
_VARIABLE = "KURYR_TESTS_RUN"
# A chain of CNI plugins that a test puts before the product's own on a node.
CHAIN = "00-chain.conflist"


def this_run() -> str:
    """Return the name of the run of tests that this process belongs to.

    The first process that asks gives the run its name; its children inherit it.
    """
    if _VARIABLE not in os.environ:
        pid = os.getpid()
        os.environ[_VARIABLE] = f"{pid}-{start_time(pid)}"
    return os.environ[_VARIABLE]


def is_over(run: str) -> bool:
    """Return whether the process that gave the run its name has ended."""
    pid, _, start = run.partition("-")
    return not Identity(int(pid), int(start)).alive


def clear(lab: facts.Lab) -> list[str]:
    """Remove what interrupted runs have left.

    Namespaces end in the background: nobody else uses what is in them.

    :returns: the names of their namespaces.
    """
    for node in lab.nodes.values():
        (Path(node.cni_conf_dir) / CHAIN).unlink(missing_ok=True)
        remove_kube_proxy(node)
    found = []
    for kind in ("namespace", "node"):
        left = _left_over(lab, kind)
        if left:
            kubectl(lab, "delete", kind, *left, "--ignore-not-found", "--wait=false")
        found += left if kind == "namespace" else []
    for node in lab.nodes.values():
        for name in found:
            (static_pods(node) / f"{name}.json").unlink(missing_ok=True)
    return found


def remove_kube_proxy(node: facts.Node) -> None:
    """Remove what kube-proxy has left in the packet filter of a node."""
    for family in ("ip", "ip6"):
        succeeds(["nft", "delete", "table", family, "kube-proxy"], netns=node.netns)


def static_pods(node: facts.Node) -> Path:
    """Return the directory from which the node's kubelet reads static Pods."""
    settings = Path(node.kubelet_root).parent / "kubelet.json"
    return Path(json.loads(settings.read_text())["staticPodPath"])


def _left_over(lab: facts.Lab, kind: str) -> list[str]:
    """Return the names of the objects that interrupted runs have made."""
    escaped = RUN.replace(".", "\\.")
    row = f'{{.metadata.name}} {{.metadata.labels.{escaped}}}{{"\\n"}}'
    output = f"--output=jsonpath={{range .items[*]}}{row}{{end}}"
    rows = kubectl(lab, "get", kind, f"--selector={RUN}", output).splitlines()
    return [name for name, run in map(str.split, rows) if is_over(run)]
