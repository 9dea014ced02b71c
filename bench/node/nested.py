"""ADD and DEL on a node in a virtual machine, with a subport of its trunk."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.report import Report, Table, percentile
from bench.waiting import wait_for
from lab import facts
from lab.kuryr.installation import Installation, kubectl
from lab.lifecycle.lab import Lab
from lab.lifecycle.supervisor import Supervisor
from lab.process import run
from lab.progress import Progress

NAMESPACE, POD = "kuryr-bench", "nested"
PROGRAM = Path(__file__).with_name("nested_machine.py")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument(
        "--count", type=int, default=20, help="how many ADDs to measure, one after another (20)"
    )


def measure(options: argparse.Namespace) -> Report:
    """Plug the interface of one Pod again and again; return the report."""
    progress = Progress(quiet=True)
    Lab(progress=progress).up(vms=1)
    Installation(progress=progress).up()
    lab = facts.load()
    worker = next(iter(lab.workers.values()))
    with ExitStack() as stack:
        stack.enter_context(_without_kubelet(worker.name))
        uid = stack.enter_context(_pod(lab, worker.name))
        arguments = {
            "plugin": f"{worker.cni_bin_dir}/kuryr-cni",
            "conflist": f"{worker.cni_conf_dir}/10-kuryr.conflist",
            "args": f"K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={POD};K8S_POD_UID={uid}",
            "count": options.count,
        }
        python = ("/usr/bin/python3", "-ISE", "-c", PROGRAM.read_text(), json.dumps(arguments))
        times: dict[str, list[float]] = json.loads(run([*worker.command, *python], timeout=300))
    return _report(times)


def _report(times: dict[str, list[float]]) -> Report:
    report = Report("nested")
    rows = []
    for name, values in times.items():
        ms = [value * 1000 for value in values]
        rows.append((name, len(ms), percentile(ms, 0.5), percentile(ms, 0.99)))
        report.figures[name] = {"p50": rows[-1][2], "p99": rows[-1][3]}
    title = "In the machine (QEMU without KVM), one after another, ms"
    report.tables.append(Table(title, ("WHAT", "COUNT", "P50", "P99"), rows))
    return report


@contextmanager
def _without_kubelet(node: str) -> Iterator[None]:
    """Stop the node's kubelet, which would plug the Pod too; start it at the end."""
    supervisor, name = Supervisor(), f"kubelet-{node}"
    supervisor.stop(name)
    try:
        yield
    finally:
        supervisor.start(name)


@contextmanager
def _pod(lab: facts.Lab, node: str) -> Iterator[str]:
    """Create a Pod, wait for its KuryrPort's VIFs, and yield its uid; delete it at the end."""
    container = {"name": "main", "image": lab.images[0], "imagePullPolicy": "Never"}
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
    meta = {"name": POD, "namespace": NAMESPACE}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    own = ("-n", NAMESPACE)
    kubectl(lab, "apply", "-f", "-", stdin=json.dumps(namespace))
    try:
        accounts = ("get", "serviceaccounts", "-o", "name")
        _wait_for(lambda: kubectl(lab, *own, *accounts), "the namespace has a service account")
        kubectl(lab, "apply", "-f", "-", stdin=json.dumps(pod))
        vifs = ("-o", "jsonpath={.status.vifs}", "--ignore-not-found")
        kuryrport = ("get", "kuryrport", POD, *vifs)
        _wait_for(lambda: kubectl(lab, *own, *kuryrport), "the KuryrPort has VIFs")
        yield kubectl(lab, *own, "get", "pod", POD, "-o", "jsonpath={.metadata.uid}")
    finally:
        kubectl(lab, *own, "delete", "pod", POD, "--force", "--ignore-not-found")
        kuryrports = ("get", "kuryrports", "-o", "name")
        _wait_for(lambda: not kubectl(lab, *own, *kuryrports), "the KuryrPort is gone")
        kubectl(lab, "delete", "namespace", NAMESPACE, "--wait=false")


def _wait_for(condition: Callable[[], object], what: str) -> None:
    wait_for(condition, what, 60, pause=0.2)
