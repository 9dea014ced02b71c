"""60 real Pods on the lab: creation to Ready, where the time goes, beside the bridge plugin.

The same Deployment, on the same nodes, in turns: with the product without pools and with pools
that are full, where it is created, deleted and created again, and with the reference `bridge`. All
times are of this program's clock, at the arrival of watch events. How long Neutron takes for a
port is measured in the same run, by as many bare creations as there are Pods.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.lab.deployment import Round, deploy
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
KEPT = 5  # ports that a pool keeps for Pods to come
FILLED = 240.0  # seconds for pools to fill, or to be emptied


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument("--pods", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2, help="of each, in turns")


def measure(options: argparse.Namespace) -> Report:
    """In turns, Neutron between them; afterwards the lab has the product without pools."""
    lab = Lab()
    found = facts.load(lab.paths.facts)
    kube = Kube(found)
    rounds: dict[str, list[Round]] = {OURS: [], FULL: [], AGAIN: [], BRIDGE: []}
    neutron: list[float] = []
    quiet = Progress(quiet=True)
    without, kept = Installation(progress=quiet), Installation(progress=quiet, pool="neutron")
    for number in range(options.rounds):
        kept.up()
        _fill(kept, options.pods)
        for name in (FULL, AGAIN):
            prefix = f"{name.split()[-1]}-{number}"
            rounds[name].append(deploy(kube, prefix, options.pods, with_vifs=True))
        kept.pools.drain(FILLED)
        without.up()
        rounds[OURS].append(deploy(kube, f"kuryr-{number}", options.pods, with_vifs=True))
        neutron.append(_bare_ports(found, options.pods))
        with _on_the_bridge(lab, found):
            rounds[BRIDGE].append(deploy(kube, f"bridge-{number}", options.pods))
    return _report(rounds, neutron, options.pods)


def _fill(installation: Installation, count: int) -> None:
    """Have each node park what it will need, and what a pool keeps besides."""
    hosts = {node.name: node.chassis for node in installation.lab.nodes.values()}
    installation.pools.populate(hosts, count // len(hosts) + 1 + KEPT, FILLED)


def _bare_ports(found: facts.Lab, count: int) -> float:
    """Seconds for so many ports straight from Neutron, one after another, then deleted."""
    api = Api(f"{found.cloud.neutron_url}/v2.0", admin_token())
    network = found.cloud.networks["pods"].id
    node = next(iter(found.nodes.values()))
    made: list[str] = []
    begin = time.monotonic()
    try:
        for number in range(count):
            body = {
                "network_id": network,
                "name": f"bench-{number}",
                "device_owner": "compute:bench",
                "binding:host_id": node.chassis,
            }
            made.append(api.post("/ports", {"port": body})["port"]["id"])
        return time.monotonic() - begin
    finally:
        for port in made:
            api.delete(f"/ports/{port}")


def _report(rounds: dict[str, list[Round]], neutron: list[float], count: int) -> Report:
    figures: dict[str, Any] = {"pods": count, "neutron_seconds": neutron}
    whole = []
    for name, measured in rounds.items():
        ready = [pod.ready for each in measured for pod in each.pods]
        gone = [pod.gone for each in measured for pod in each.pods]
        figures[name] = {
            "ready_p50": percentile(ready, 0.5),
            "ready_p99": percentile(ready, 0.99),
            "all_ready": statistics.median(each.all_ready for each in measured),
            "pods_per_second": count / statistics.median(each.all_ready for each in measured),
            "gone_p50": percentile(gone, 0.5),
            "all_gone": statistics.median(each.all_gone for each in measured),
            "rounds": [[each.all_ready, each.all_gone] for each in measured],
            "phases": {
                phase: percentile([p.phases[phase] for e in measured for p in e.pods], 0.5)
                for phase in PHASES
                if all(phase in p.phases for e in measured for p in e.pods)
            },
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
                "Whose the difference is (all ready, seconds)",
                ("", "seconds"),
                [
                    [f"{OURS} - {BRIDGE}", difference],
                    [f"{count} bare ports from Neutron, one after another", bare],
                    [
                        "rest: ours (negative: Neutron works beside what is ours)",
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


_COLUMNS = ("ready_p50", "ready_p99", "all_ready", "pods_per_second", "gone_p50", "all_gone")


@contextlib.contextmanager
def _on_the_bridge(lab: Lab, found: facts.Lab) -> Iterator[None]:
    """New Pods are the bridge plugin's meanwhile; the controller stands still, or it would make
    ports for them as well.
    """
    lab.supervisor.stop(CONTROLLER)
    conflists = [Path(node.cni_conf_dir) / "10-kuryr.conflist" for node in found.nodes.values()]
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
