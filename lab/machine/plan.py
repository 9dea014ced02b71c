"""The part of virtual machines in the lab's plan: components, and steps between them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from lab import facts
from lab.host import wiring
from lab.install import images, qemu
from lab.kubernetes import node
from lab.lifecycle.graph import Step
from lab.lifecycle.supervisor import Component, Supervisor
from lab.machine import kernel, machine, network
from lab.ovn import daemons as ovn
from lab.paths import Paths
from lab.process import run
from lab.topology import Node, Worker

_WARM = 0.5  # seconds; steps below it are not worth a line
# By the label the product knows how to plug Pods there; no Pod gets there by chance.
_LABEL = "--node-labels=pod_vif=nested-vlan"
_TAINT = "--register-with-taints=lab.local/vm=:NoSchedule"


def components(paths: Paths, worker: Worker) -> list[Component]:
    """List the components of a machine: itself, and containerd and kubelet in it."""
    containerd, kubelet = (
        machine.inside(paths, worker, each) for each in node.components(paths, worker)
    )
    kubelet = replace(kubelet, argv=(*kubelet.argv, _LABEL, _TAINT))
    return [machine.component(paths, worker), containerd, kubelet]


class WorkerPlan:
    """The steps for some machines.

    :param made: the cloud, and what makes things in it; known once the networks are there.
    """

    def __init__(
        self,
        paths: Paths,
        workers: Sequence[Worker],
        nodes: Sequence[Node],
        made: Callable[[], tuple[facts.Cloud, network.WorkerSetup]],
    ) -> None:
        self.paths, self.workers, self.nodes = paths, workers, nodes
        self.trunks: dict[str, tuple[str, str]] = {}
        self._made = made

    def steps(self) -> list[Step]:
        """List the steps besides the daemons; none without machines."""
        if not self.workers:
            return []
        paths = self.paths
        steps = [
            Step("qemu", lambda: qemu.install(paths), ("packages",), _WARM),
            Step("kernel", lambda: kernel.install(paths), ("images",), _WARM),
            Step("workers", self._network, ("ports",), _WARM),
        ]
        for each in self.workers:
            steps += [
                Step(
                    f"machine-{each.name}",
                    partial(self._prepare, each),
                    ("kernel", "build-cni-plugins", "certificates"),
                    _WARM,
                ),
                Step(
                    f"trunk-{each.name}",
                    partial(self._plug, each),
                    ("workers", f"vm-{each.name}"),
                    _WARM,
                ),
                Step(
                    f"images-{each.name}",
                    partial(load_images, paths, each),
                    ("images", f"containerd-{each.name}"),
                    _WARM,
                ),
            ]
        return steps

    def before(self) -> dict[str, tuple[str, ...]]:
        """List the steps, other than daemons, that each daemon has to wait for."""
        found: dict[str, tuple[str, ...]] = {}
        for each in self.workers:
            found |= {
                f"vm-{each.name}": ("qemu", f"machine-{each.name}"),
                f"containerd-{each.name}": ("build-containerd",),
                f"kubelet-{each.name}": (f"images-{each.name}", f"trunk-{each.name}"),
            }
        return found

    def describe(self) -> dict[str, facts.Worker]:
        """Build the part of lab.json that describes the machines."""
        return {each.name: self._describe(each) for each in self.workers}

    def _prepare(self, worker: Worker) -> None:
        node.write_files(self.paths, worker)
        machine.prepare(self.paths, worker)

    def _network(self) -> None:
        cloud, setup = self._made()
        setup.network(cloud)

    def _plug(self, worker: Worker) -> None:
        cloud, setup = self._made()
        host = self.nodes[0]
        self.trunks[worker.name] = _, port = setup.trunk(cloud, worker, host)
        ovn.plug(self.paths, host, worker.tap, port)
        ovn.vsctl(self.paths, host, "--may-exist", "add-port", "br-ex", worker.card_tap)

    def _describe(self, worker: Worker) -> facts.Worker:
        own = self.paths.node(worker.name)
        trunk, port = self.trunks[worker.name]
        return facts.Worker(
            name=worker.name,
            v4=worker.internal_v4,
            v6=worker.internal_v6,
            trunk_id=trunk,
            port_id=port,
            tap=worker.tap,
            command=list(machine.command(self.paths, worker)),
            containerd_socket=str(own.containerd_socket),
            cni_conf_dir=str(own.cni_conf),
            cni_bin_dir=str(own.cni_bin),
            kubelet_root=str(own.kubelet),
        )


def load_images(paths: Paths, worker: Worker) -> None:
    """Import the images, after containerd has started."""
    images.load(
        paths,
        paths.node(worker.name).containerd_socket,
        partial(machine.command, paths, worker),
        images.SMALL,
    )


def boot_order(worker: Worker) -> tuple[str, ...]:
    """List the components that start again after the machine, in this order."""
    return tuple(f"{kind}-{worker.name}" for kind in ("containerd", "kubelet", "kuryr-daemon"))


def remove(paths: Paths, supervisor: Supervisor, worker: Worker) -> None:
    """Remove a machine from a running lab; its trunk stays in Neutron."""
    for name in (*reversed(boot_order(worker)), f"vm-{worker.name}"):
        supervisor.forget(name)
    database = f"--db=unix:{paths.node('node1').ovs_socket}"
    ovs = [str(paths.bin / "ovs-vsctl"), database, "--timeout=5"]
    for tap in (worker.tap, worker.card_tap):
        run([*ovs, "--if-exists", "del-port", tap], check=False)
        wiring.delete_link(tap)
    shutil.rmtree(paths.node(worker.name).root, ignore_errors=True)
