"""Addresses, names and networks of the lab. Plain data; nothing here touches the machine.

    underlay 198.18.0.0/24, fd18::/64    between the nodes (tunnels, kubelets), and `outside`
    public   172.24.4.0/24, fd24::/64    external network, on node1; `router` leads to the underlay

Networks of the project k8s on one router:

    pods     10.62.0.0/16,  fd62::/64
    nodes    10.63.0.0/24,  fd63::/64    the nodes' own ports, which the product makes
    services 10.96.0.0/15,  fd96::/111   the lower half is the Service range
    vms      10.64.0.0/24,  fd64::/64
    workers  10.68.0.0/24,  fd68::/64    nodes that are virtual machines; only if there are any

Networks of another project: tenant2 10.65.0.0/24, shared-net 10.66.0.0/24.
"""

from __future__ import annotations

from dataclasses import dataclass

UNDERLAY_PREFIX = "198.18.0.0/24"
OUTSIDE_V4, OUTSIDE_V6 = "198.18.0.100", "fd18::100"
ROUTER_V4, ROUTER_V6 = "198.18.0.254", "fd18::fe"
SERVICE_RANGES = "10.96.0.0/16,fd96::/112"
KUBERNETES_SERVICE_V4, KUBERNETES_SERVICE_V6 = "10.96.0.1", "fd96::1"
CLUSTER_DNS, CLUSTER_DNS_V6 = "10.96.0.10", "fd96::a"
API_PORT = 6443
POD_MTU = 1442  # 1500 less what geneve adds
UNDERLAY_MTU = 1600


@dataclass(frozen=True)
class Node:
    """A node of the cluster, which is one chassis of OVN."""

    name: str
    index: int

    @property
    def netns(self) -> str | None:
        """The node's network namespace; None for node1, which has the machine's own."""
        return None if self.index == 1 else self.name

    @property
    def chassis(self) -> str:
        """The name in OVN and Neutron: another one than in Kubernetes, to show any confusion."""
        return f"chassis{self.index}"

    @property
    def underlay_v4(self) -> str:
        return f"198.18.0.{self.index}"

    @property
    def underlay_v6(self) -> str:
        return f"fd18::{self.index}"

    @property
    def internal_v4(self) -> str:
        """The Node's InternalIP in Kubernetes."""
        return self.underlay_v4

    @property
    def internal_v6(self) -> str:
        return self.underlay_v6

    @property
    def bridge_v4(self) -> str:
        """The pods' range of the reference bridge plugin."""
        return f"10.244.{self.index}.0/24"

    @property
    def bridge_v6(self) -> str:
        return f"fd44:0:0:{self.index}::/64"

    @property
    def cgroup(self) -> str:
        return f"{CGROUP}/{self.name}"


@dataclass(frozen=True)
class Worker:
    """A node of the cluster that is a virtual machine, on node1.

    Its network card is the parent port of a Neutron trunk. Another card, with virtual functions,
    is on the physical network of node1.
    """

    name: str
    index: int

    @property
    def netns(self) -> str | None:
        """The network namespace of the machine's own processes: they run on node1."""
        return None

    @property
    def internal_v4(self) -> str:
        """The machine's address on the Neutron network `workers`."""
        return f"10.68.0.{10 + self.index}"

    @property
    def internal_v6(self) -> str:
        return f"fd68::{10 + self.index}"

    @property
    def mac(self) -> str:
        return f"fa:16:3e:68:00:{10 + self.index:02x}"

    @property
    def tap(self) -> str:
        """The host's end of its network card, in br-int of node1."""
        return f"tap-{self.name}"

    @property
    def card_tap(self) -> str:
        """The host's end of its card with virtual functions, in br-ex of node1."""
        return f"card-{self.name}"

    @property
    def card_mac(self) -> str:
        return f"fa:16:3e:68:01:{10 + self.index:02x}"

    @property
    def agent_port(self) -> int:
        """The port number of 127.0.0.1 where commands for the machine are taken."""
        return 7000 + self.index

    @property
    def cgroup(self) -> str:
        """The control group of its pods: it has the machine for itself."""
        return "/"


CGROUP = "/kuryr-lab"


# of each kind: addresses and ports are derived from one digit
MOST_NODES = 9


def workers(count: int) -> tuple[Worker, ...]:
    """List the first virtual machines."""
    return tuple(Worker(f"vmnode{index}", index) for index in range(1, count + 1))


def nodes(count: int) -> tuple[Node, ...]:
    """List the first nodes."""
    return tuple(Node(f"node{index}", index) for index in range(1, count + 1))


API_ADDRESS = Node("node1", 1).underlay_v4
API_URL = f"https://{API_ADDRESS}:{API_PORT}"


@dataclass(frozen=True)
class Network:
    """A Neutron network with a subnet per address family."""

    name: str
    v4: str
    v6: str | None = None
    gateway_v4: str | None = None
    gateway_v6: str | None = None
    pool_v4: tuple[str, str] | None = None
    pool_v6: tuple[str, str] | None = None


# The router must not have the first address of `services`, which is the ClusterIP of `kubernetes`,
# and Neutron must not give ClusterIPs to ports of its own: gateway and pool are in the upper half.
NETWORKS = (
    Network("pods", "10.62.0.0/16", "fd62::/64"),
    Network("nodes", "10.63.0.0/24", "fd63::/64"),
    Network(
        "services",
        "10.96.0.0/15",
        "fd96::/111",
        gateway_v4="10.97.255.254",
        gateway_v6="fd96::1:fffe",
        pool_v4=("10.97.0.1", "10.97.0.253"),
        pool_v6=("fd96::1:1", "fd96::1:fd"),
    ),
    Network("vms", "10.64.0.0/24", "fd64::/64"),
)
# The machines know their gateways before Neutron runs.
WORKER_NETWORK = Network(
    "workers", "10.68.0.0/24", "fd68::/64", gateway_v4="10.68.0.1", gateway_v6="fd68::1"
)
# External; its gateway is the namespace `router`, which stands for the data centre's router.
PUBLIC_NETWORK = Network(
    "public",
    "172.24.4.0/24",
    "fd24::/64",
    gateway_v4="172.24.4.2",
    gateway_v6="fd24::2",
    pool_v4=("172.24.4.20", "172.24.4.254"),
)
MACHINE_PUBLIC = "172.24.4.1"  # the machine, as somebody outside who uses floating IPs
# Neutron's router there: the networks behind it are reached by way of it, since it translates no
# addresses but floating IPs.
CLOUD_ROUTER_V4, CLOUD_ROUTER_V6 = "172.24.4.10", "fd24::a"
# What nodes answer by way of `router` if it asks them at their InternalIPs.
BEHIND_ROUTER = ("pods", "nodes", "services", "vms", "workers")
TENANT_NETWORK = Network("tenant2-net", "10.65.0.0/24")
SHARED_NETWORK = Network("shared-net", "10.66.0.0/24")
LB_MANAGEMENT = Network("lb-mgmt-net", "10.67.0.0/24")

# Security groups of the project k8s: from which networks ingress is allowed. Services: a load
# balancer's hairpin, when a member reaches itself, comes with the virtual address as its source,
# and amphorae have addresses there. A group of the controller's lets Pods be reached from there,
# and from the nodes.
# public: the machine, as somebody outside who uses a floating IP.
SECURITY_GROUPS = {
    "pods": ("pods", "vms", "public"),
    "nodes": ("pods", "nodes", "services", "vms"),
    "vms": ("pods", "nodes", "services", "vms"),
}

# With virtual machines among the nodes: these too let their network in.
WORKER_SECURITY_GROUPS = {
    "pods": ("workers",),
    "nodes": ("workers",),
    "vms": ("workers",),
    "workers": ("pods", "nodes", "services", "vms", "workers"),
}

VM_NAMESPACE = "vm1"
VM_V4, VM_V6, VM_MAC = "10.64.0.11", "fd64::11", "fa:16:3e:64:00:0b"
OUTSIDE_NAMESPACE = "outside"
ROUTER_NAMESPACE = "router"
# Of both its devices: OVN's databases remember it when the lab is down.
ROUTER_MAC = "02:00:00:24:00:02"
# The first part of the names of the amphorae's namespaces and devices.
AMPHORA = "amp"


def network(name: str) -> Network:
    """Find the network with this name: public, or one of the project k8s."""
    known = (*NETWORKS, WORKER_NETWORK, PUBLIC_NETWORK)
    return next(network for network in known if network.name == name)
