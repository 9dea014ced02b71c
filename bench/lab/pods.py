"""60 real Pods on the lab: creation to Ready, where the time goes, beside the bridge plugin.

The same Deployment is created on the same nodes in turns: with the product and full pools, where
it is created, deleted and created again; with the product without pools; and with the reference
`bridge`. Times are taken when watch events arrive. The same run measures Neutron alone, by as many
bare creations of ports as there are Pods.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.lab.deployment import PodTimes, Round, deploy
from bench.report import Report, Table, Target, percentile
from lab import facts
from lab.kubernetes import cni_bridge
from lab.kubernetes.client import Kube
from lab.kuryr.installation import CONTROLLER, Installation
from lab.lifecycle.lab import Lab
from lab.openstack.cloud import admin_token
from lab.openstack.rest import Api
from lab.progress import Progress

PHASES = ("schedule", "VIF", "ADD", "ready")
OURS, FULL, AGAIN, BRIDGE = "kuryr", "kuryr, pools full", "kuryr, pools again", "bridge"
KEPT = 5  # ports that a pool keeps available
FILL_SECONDS = 240.0  # for pools to be filled, or emptied


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument(
        "--pods", type=int, default=60, help="how many Pods to create at once (60)"
    )
    parser.add_argument("--rounds", type=int, default=2, help="of each kind, in turns (2)")


def measure(options: argparse.Namespace) -> Report:
    """Measure all kinds in turns, and Neutron between them; return the report.

    Afterwards the lab has the product without pools.
    """
    lab = Lab()
    lab_facts = facts.load(lab.paths.facts)
    kube = Kube(lab_facts)
    rounds: dict[str, list[Round]] = {OURS: [], FULL: [], AGAIN: [], BRIDGE: []}
    neutron: list[float] = []
    quiet = Progress(quiet=True)
    without_pools = Installation(progress=quiet)
    with_pools = Installation(progress=quiet, pool="neutron")
    for number in range(options.rounds):
        with_pools.up()
        _fill_pools(with_pools, options.pods)
        for name in (FULL, AGAIN):
            prefix = f"{name.split()[-1]}-{number}"
            rounds[name].append(deploy(kube, prefix, options.pods, with_vifs=True))
        with_pools.pools.drain(FILL_SECONDS)
        without_pools.up()
        rounds[OURS].append(deploy(kube, f"kuryr-{number}", options.pods, with_vifs=True))
        neutron.append(_bare_ports(lab_facts, options.pods))
        with _with_bridge_plugin(lab, lab_facts):
            rounds[BRIDGE].append(deploy(kube, f"bridge-{number}", options.pods))
    return _report(rounds, neutron, options.pods)


def _fill_pools(installation: Installation, count: int) -> None:
    """Have each node park the ports for its Pods, and those that its pool keeps available."""
    hosts = {node.name: node.chassis for node in installation.lab.nodes.values()}
    installation.pools.populate(hosts, count // len(hosts) + 1 + KEPT, FILL_SECONDS)


def _bare_ports(lab: facts.Lab, count: int) -> float:
    """Create ports directly in Neutron, one after another, and delete them.

    :returns: the seconds of the creations.
    """
    api = Api(f"{lab.cloud.neutron_url}/v2.0", admin_token())
    network = lab.cloud.networks["pods"].id
    node = next(iter(lab.nodes.values()))
    ports: list[str] = []
    begin = time.monotonic()
    try:
        for number in range(count):
            body = {
                "network_id": network,
                "name": f"bench-{number}",
                "device_owner": "compute:bench",
                "binding:host_id": node.chassis,
            }
            ports.append(api.post("/ports", {"port": body})["port"]["id"])
        return time.monotonic() - begin
    finally:
        for port in ports:
            api.delete(f"/ports/{port}")


def _report(rounds: dict[str, list[Round]], neutron: list[float], count: int) -> Report:
    figures: dict[str, Any] = {"pods": count, "neutron_seconds": neutron}
    whole = []
    for name, measured in rounds.items():
        ready = [pod.ready for round_ in measured for pod in round_.pods]
        gone = [pod.gone for round_ in measured for pod in round_.pods]
        all_ready = statistics.median(round_.all_ready for round_ in measured)
        figures[name] = {
            "ready_p50": percentile(ready, 0.5),
            "ready_p99": percentile(ready, 0.99),
            "all_ready": all_ready,
            "pods_per_second": count / all_ready,
            "gone_p50": percentile(gone, 0.5),
            "all_gone": statistics.median(round_.all_gone for round_ in measured),
            "rounds": [[round_.all_ready, round_.all_gone] for round_ in measured],
            "phases": _median_phases([pod for round_ in measured for pod in round_.pods]),
        }
        row = figures[name]
        whole.append([name, *(row[key] for key in _COLUMNS)])
    ours, bridge = figures[OURS], figures[BRIDGE]
    ratios = [
        [f"{name} / {BRIDGE}", *(figures[name][key] / bridge[key] for key in _COLUMNS)]
        for name in (OURS, FULL, AGAIN)
    ]
    phases = [
        [phase, *(figures[name]["phases"].get(phase, "-") for name in rounds)] for phase in PHASES
    ]
    difference = ours["all_ready"] - bridge["all_ready"]
    bare = statistics.median(neutron)
    figures |= {"difference": difference, "neutron_median": bare, "ours": difference - bare}
    titles = ("ready p50", "p99", "all ready", "pods/s", "gone p50", "all gone")
    return Report(
        "lab",
        [
            Table(
                f"{count} Pods of a Deployment over two nodes; seconds; rounds in turns",
                ("", *titles),
                [*whole, *ratios],
            ),
            Table(
                "Where the time of a Pod goes (median, seconds)",
                ("", *rounds),
                phases,
            ),
            Table(
                "Shares of the difference (all ready, seconds)",
                ("", "seconds"),
                [
                    [f"{OURS} - {BRIDGE}", difference],
                    [f"{count} bare ports from Neutron, one after another", bare],
                    [
                        "rest: the product (negative: it works while Neutron does)",
                        difference - bare,
                    ],
                ],
            ),
        ],
        [
            Target(
                f"{name}: ready p99 / {BRIDGE}",
                figures[name]["ready_p99"] / bridge["ready_p99"],
                1.15,
            )
            for name in (FULL, AGAIN)
        ],
        figures,
    )


def _median_phases(pods: list[PodTimes]) -> dict[str, float]:
    """Return the median seconds of each phase that all Pods have."""
    return {
        phase: percentile([pod.phases[phase] for pod in pods], 0.5)
        for phase in PHASES
        if all(phase in pod.phases for pod in pods)
    }


_COLUMNS = ("ready_p50", "ready_p99", "all_ready", "pods_per_second", "gone_p50", "all_gone")


@contextlib.contextmanager
def _with_bridge_plugin(lab: Lab, lab_facts: facts.Lab) -> Iterator[None]:
    """Configure the bridge plugin for new Pods, and the product again at the end.

    The controller is stopped meanwhile: it would make ports for the Pods.
    """
    lab.supervisor.stop(CONTROLLER)
    conflists = [
        Path(node.cni_conf_dir) / "10-kuryr.conflist" for node in lab_facts.nodes.values()
    ]
    for path in conflists:
        path.rename(path.with_suffix(".away"))
    cni_bridge.enable(lab.paths, lab.nodes)
    try:
        yield
    finally:
        cni_bridge.disable(lab.paths, lab.nodes)
        for path in conflists:
            path.with_suffix(".away").rename(path)
        lab.supervisor.start(CONTROLLER)
