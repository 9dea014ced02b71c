"""The whole lab as one graph: programs, files, daemons and the work between them.

`up` runs the graph; each step starts as soon as what it needs is there, so that the builds, the
control plane and OpenStack come up side by side.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

from lab import facts, topology
from lab.host import vm, wiring
from lab.install import binaries, debian, golang, images, openvswitch
from lab.install import openstack as python_services
from lab.kubernetes import certificates as pki
from lab.kubernetes import control_plane as kubernetes
from lab.kubernetes import node
from lab.lifecycle.graph import Step
from lab.lifecycle.supervisor import Component, Supervisor, builtin
from lab.machine import plan as worker_plan
from lab.machine.network import WorkerSetup
from lab.openstack import cloud
from lab.openstack import services as openstack
from lab.ovn import daemons as ovn
from lab.paths import Paths

_WARM = 0.5  # seconds; steps below it are not worth a line


class Plan:
    """The steps and components of a lab with a number of nodes, and of nodes that are VMs."""

    def __init__(self, paths: Paths, supervisor: Supervisor, count: int, vms: int = 0) -> None:
        self.paths = paths
        self.nodes = topology.nodes(count)
        self._supervisor = supervisor
        self._projects: dict[str, str] = {}
        self._cloud: facts.Cloud | None = None
        self._vm_port = ""
        self._workers = worker_plan.WorkerPlan(
            paths, topology.workers(vms), self.nodes, self._made
        )

    def components(self) -> list[Component]:
        """List every daemon, with what it needs in the graph."""
        found = [
            *ovn.central(self.paths),
            *openstack.components(self.paths),
            *kubernetes.components(self.paths),
            vm.component(self.paths),
        ]
        for each in self.nodes:
            found += [*ovn.of_node(self.paths, each), *node.components(self.paths, each)]
        for worker in self._workers.workers:
            found += worker_plan.components(self.paths, worker)
        return [builtin(component) for component in found]

    def steps(self) -> list[Step]:
        """List all steps, daemons included."""
        before = self._before()
        found = [*self._programs(), *self._work(), *self._workers.steps()]
        for component in self.components():
            needs = (*component.needs, *before.get(component.name, ()))
            found.append(
                Step(component.name, partial(self._supervisor.start, component.name), needs)
            )
        return found

    def after_restart(self, name: str) -> None:
        """Repair what the restart of one daemon undoes, and nobody else repairs."""
        for each in self.nodes:
            if name == f"ovs-vswitchd-{each.name}":
                ovn.build_bridges(self.paths, each)
        for worker in self._workers.workers:
            if name == f"vm-{worker.name}":
                self._boot(worker)

    def _boot(self, worker: topology.Worker) -> None:
        """Start what ran in the machine; its containerd has forgotten everything."""
        for name in reversed(worker_plan.boot_order(worker)):
            self._supervisor.stop(name)  # it ends by itself, but perhaps not yet
        for name in worker_plan.boot_order(worker):
            if self._supervisor.find(name) is not None:
                self._supervisor.start(name)
            if name == f"containerd-{worker.name}":
                worker_plan.load_images(self.paths, worker)

    def _before(self) -> dict[str, tuple[str, ...]]:
        """List the steps, other than daemons, that each daemon has to wait for."""
        before = {
            "ovn-nb": ("ovn-databases",),
            "ovn-sb": ("ovn-databases",),
            "mariadb": ("mariadb-data",),
            "keystone": ("keystone-schema", "bridges-node1"),
            "neutron": ("neutron-schema", "accounts"),
            "barbican": ("barbican-schema", "accounts"),
            "octavia-agent": ("octavia-files", "ports"),
            "etcd": ("build-etcd",),
            "kube-apiserver": ("build-kube-apiserver", "certificates", "bridges-node1"),
            "kube-controller-manager": ("build-kubernetes",),
            "kube-scheduler": ("build-kubernetes",),
            "vm1-http": ("ports", "images"),
        }
        for each in self.nodes:
            before |= {
                f"ovsdb-{each.name}": ("ovn-databases", f"namespace-{each.name}"),
                f"ovs-vswitchd-{each.name}": (f"chassis-{each.name}",),
                f"ovn-controller-{each.name}": (f"bridges-{each.name}",),
                f"containerd-{each.name}": (f"node-{each.name}",),
                f"kubelet-{each.name}": (f"images-{each.name}", "underlay"),
            }
        # All kubelets of a machine remove and make the same socket, that of device plugins: of two
        # that do so at once, one ends.
        for previous, each in pairwise(self.nodes):
            before[f"kubelet-{each.name}"] += (f"kubelet-{previous.name}",)
        return before | self._workers.before()

    def _programs(self) -> list[Step]:
        """List the steps that install and build.

        The builds are in a row, since each of them uses all processors.
        """
        paths = self.paths
        found = [
            Step("packages", lambda: debian.install(paths), (), _WARM),
            Step("python", self._python, ("packages",), _WARM),
            Step("programs-ovs", lambda: self._link(openvswitch.PROGRAMS), (), _WARM),
        ]
        previous: tuple[str, ...] = ()
        for name, programs in golang.ORDER.items():
            step = f"build-{name}"
            found.append(Step(step, partial(self._link, programs), previous, _WARM))
            previous = (step,)
        return found

    def _python(self) -> None:
        venv = python_services.install(self.paths)
        binaries.link(self.paths, {"openstack": venv / "bin/openstack"})

    def _link(self, names: tuple[str, ...] | dict[str, str]) -> None:
        binaries.link(self.paths, binaries.ensure(names, self.paths))

    def _work(self) -> list[Step]:
        paths = self.paths
        found = [
            Step("namespaces", self._wiring, ("packages",), _WARM),
            Step("certificates", self._certificates, ("packages",), _WARM),
            *ovn.steps(paths, self.nodes),
            *openstack.steps(paths),
            Step("accounts", self._accounts, ("keystone",), _WARM),
            Step("networks", self._networks, ("neutron", "accounts"), _WARM),
            Step(
                "ports",
                self._plug_ports,
                (
                    "networks",
                    "underlay",
                    "ovn-northd",
                    *(f"ovn-controller-{each.name}" for each in self.nodes),
                ),
                _WARM,
            ),
            Step(
                "facts",
                self._facts,
                ("ports", *(f"trunk-{each.name}" for each in self._workers.workers)),
                _WARM,
            ),
            Step("octavia-files", self._octavia_files, ("octavia-schema", "networks"), _WARM),
            Step("images", self._images, ("packages", "build-pause"), _WARM),
            Step(
                "former-nodes", self._forget_nodes, ("build-kubernetes", "kube-apiserver"), _WARM
            ),
        ]
        for each in self.nodes:
            found += [
                Step(
                    f"namespace-{each.name}",
                    partial(self._namespace, each),
                    ("namespaces",),
                    _WARM,
                ),
                Step(
                    f"node-{each.name}",
                    partial(node.prepare, paths, self._supervisor, each),
                    (
                        "build-containerd",
                        "build-cni-plugins",
                        "certificates",
                        f"namespace-{each.name}",
                    ),
                    _WARM,
                ),
                Step(
                    f"images-{each.name}",
                    partial(node.load_images, paths, each),
                    ("images", f"containerd-{each.name}"),
                    _WARM,
                ),
            ]
        return found

    def _wiring(self) -> None:
        wiring.share_namespace_directory()
        wiring.enable_forwarding()

    def _namespace(self, node: topology.Node) -> None:
        if node.netns is not None:
            wiring.add_namespace(node.netns)

    def _certificates(self) -> None:
        pki.create(self.paths, (*self.nodes, *self._workers.workers))
        kubernetes.write_files(self.paths)

    def _images(self) -> None:
        images.archives(self.paths)
        binaries.link(self.paths, {"busybox": images.busybox(self.paths)})

    def _forget_nodes(self) -> None:
        current: list[topology.Node | topology.Worker] = [*self.nodes, *self._workers.workers]
        node.forget_former(self.paths, [each.name for each in current])

    def _accounts(self) -> None:
        self._projects = cloud.ensure_accounts()

    def _networks(self) -> None:
        openstack.free_flat_network(self.paths)
        found = cloud.NeutronSetup(self._projects).networks()
        self._cloud = replace(found, clouds_yaml=str(self.paths.clouds))

    def _made(self) -> tuple[facts.Cloud, WorkerSetup]:
        assert self._cloud is not None
        return self._cloud, WorkerSetup(self._projects)

    def _octavia_files(self) -> None:
        assert self._cloud is not None
        openstack.prepare_octavia(self.paths, self._cloud.networks["lb-mgmt-net"].id)

    def _plug_ports(self) -> None:
        """Bind vm1's port in Neutron, then put it into Open vSwitch."""
        assert self._cloud is not None
        setup = cloud.NeutronSetup(self._projects)
        openstack.add_sriov_agent(self.paths, self.nodes[0].chassis)
        self._vm_port = setup.vm_port(self._cloud, self.nodes[0])
        vm.plug(self.paths, self._cloud, self.nodes[0], self._vm_port)

    def _facts(self) -> None:
        assert self._cloud is not None
        described = describe(self.paths, self.nodes, self._cloud, self._vm_port)
        facts.save(replace(described, workers=self._workers.describe()), self.paths.facts)


def describe(
    paths: Paths, nodes: tuple[topology.Node, ...], found: facts.Cloud, vm_port: str
) -> facts.Lab:
    """Build the content of lab.json.

    :param vm_port: the id of vm1's port.
    """
    return facts.Lab(
        state=str(paths.state),
        bin=str(paths.bin),
        openstack_venv=str(python_services.location(paths)),
        cloud=found,
        kubernetes=facts.Kubernetes(
            url=topology.API_URL,
            ca=str(paths.pki / "ca.crt"),
            admin_kubeconfig=str(paths.admin_kubeconfig),
            service_ranges=topology.SERVICE_RANGES,
            cluster_dns=topology.CLUSTER_DNS,
            audit_log=str(kubernetes.audit_log(paths)),
            etcd_url=kubernetes.ETCD_URL,
        ),
        nodes={each.name: _describe_node(paths, each) for each in nodes},
        vm1=facts.Machine(topology.VM_NAMESPACE, topology.VM_V4, topology.VM_V6, vm_port),
        outside=facts.Machine(
            topology.OUTSIDE_NAMESPACE, topology.OUTSIDE_V4, topology.OUTSIDE_V6
        ),
        images=list(images.IMAGES),
    )


def _describe_node(paths: Paths, each: topology.Node) -> facts.Node:
    own = paths.node(each.name)
    return facts.Node(
        name=each.name,
        netns=each.netns,
        chassis=each.chassis,
        underlay_v4=each.underlay_v4,
        underlay_v6=each.underlay_v6,
        ovs_socket=str(own.ovs_socket),
        ovs_rundir=str(own.ovs),
        containerd_socket=str(own.containerd_socket),
        cni_conf_dir=str(own.cni_conf),
        cni_bin_dir=str(own.cni_bin),
        kubelet_root=str(own.kubelet),
    )
