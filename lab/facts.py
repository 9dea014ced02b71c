"""lab.json: the facts for programs that use the lab.

from lab import facts
lab = facts.load()
lab.cloud.networks["pods"].id, lab.nodes["node2"].ovs_socket, lab.kubernetes.url
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lab.paths import Paths, write_atomic


@dataclass(frozen=True)
class Subnet:
    """A Neutron subnet."""

    id: str
    cidr: str
    gateway: str | None


@dataclass(frozen=True)
class Network:
    """A Neutron network; a family that it does not have is None."""

    id: str
    project_id: str
    v4: Subnet | None
    v6: Subnet | None


@dataclass(frozen=True)
class Cloud:
    """The objects in OpenStack that programs need."""

    keystone_url: str
    neutron_url: str
    octavia_url: str
    clouds_yaml: str
    projects: dict[str, str] = field(default_factory=dict)
    networks: dict[str, Network] = field(default_factory=dict)
    security_groups: dict[str, str] = field(default_factory=dict)
    router_id: str = ""
    barbican_url: str = ""

    @property
    def project_id(self) -> str:
        """The project of the cluster."""
        return self.projects["k8s"]


@dataclass(frozen=True)
class Node:
    """One node: names, addresses, sockets, directories. netns is None for the machine's own."""

    name: str
    netns: str | None
    chassis: str
    underlay_v4: str
    underlay_v6: str
    ovs_socket: str
    ovs_rundir: str
    containerd_socket: str
    cni_conf_dir: str
    cni_bin_dir: str
    kubelet_root: str


@dataclass(frozen=True)
class Worker:
    """A node that is a virtual machine: its addresses, its trunk and the parent port.

    `command` precedes the command line of a program in the machine. Paths are the machine's (the
    CNI ones also the host's).
    """

    name: str
    v4: str
    v6: str
    trunk_id: str
    port_id: str
    tap: str
    command: list[str]
    containerd_socket: str
    cni_conf_dir: str
    cni_bin_dir: str
    kubelet_root: str


@dataclass(frozen=True)
class Kubernetes:
    """The control plane: its address, and the files for logging in."""

    url: str
    ca: str
    admin_kubeconfig: str
    service_ranges: str
    cluster_dns: str
    audit_log: str
    etcd_url: str


@dataclass(frozen=True)
class Machine:
    """A network namespace that is no node: vm1, or the client outside."""

    netns: str
    v4: str
    v6: str
    port_id: str | None = None


@dataclass(frozen=True)
class Lab:
    """All facts of one lab."""

    state: str
    bin: str
    openstack_venv: str
    cloud: Cloud
    kubernetes: Kubernetes
    nodes: dict[str, Node]
    vm1: Machine
    outside: Machine
    images: list[str]
    workers: dict[str, Worker] = field(default_factory=dict)


def load(path: Path | None = None) -> Lab:
    """Read lab.json.

    :raises FileNotFoundError: the lab was never up.
    """
    data = json.loads((path or Paths.from_environment().facts).read_text())
    cloud = data["cloud"]
    networks = {}
    for name, network in cloud["networks"].items():
        subnets = {
            family: Subnet(**network[family]) if network[family] else None
            for family in ("v4", "v6")
        }
        networks[name] = Network(**{**network, **subnets})
    return Lab(
        **{
            **data,
            "cloud": Cloud(**{**cloud, "networks": networks}),
            "kubernetes": Kubernetes(**data["kubernetes"]),
            "nodes": {name: Node(**node) for name, node in data["nodes"].items()},
            "vm1": Machine(**data["vm1"]),
            "outside": Machine(**data["outside"]),
            "workers": {name: Worker(**worker) for name, worker in data["workers"].items()},
        }
    )


def save(lab: Lab, path: Path) -> None:
    """Write lab.json."""
    write_atomic(path, json.dumps(asdict(lab), indent=1) + "\n")
