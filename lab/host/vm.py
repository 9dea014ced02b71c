"""vm1: a network namespace on the Neutron network `vms`, which stands for a virtual machine."""

from __future__ import annotations

from lab import facts, topology
from lab.host import wiring
from lab.lifecycle import probes
from lab.lifecycle.supervisor import Component
from lab.ovn import daemons as ovn
from lab.paths import Paths, write_atomic
from lab.topology import Node

_TAP = f"tap-{topology.VM_NAMESPACE}"


def component(paths: Paths) -> Component:
    """Describe the web server in the namespace: port 8080, both families."""
    return Component(
        "vm1-http",
        (
            str(paths.bin / "busybox"),
            "httpd",
            "-f",
            "-p",
            "[::]:8080",
            "-h",
            str(paths.run / "vm1"),
        ),
        ready=(
            probes.command(
                "curl",
                "-sf",
                "-m",
                "2",
                f"http://{topology.VM_V4}:8080/",
                netns=topology.VM_NAMESPACE,
            ),
        ),
        netns=topology.VM_NAMESPACE,
        timeout=20,
        grace=2,
    )


def plug(paths: Paths, cloud: facts.Cloud, node: Node, port_id: str) -> None:
    """Make the namespace and attach it to the node's br-int."""
    name = topology.VM_NAMESPACE
    write_atomic(paths.run / "vm1" / "index.html", "vm1\n")
    wiring.add_namespace(name)
    wiring.add_veth(_TAP, "eth0", netns=node.netns, peer_netns=name, mtu=topology.POD_MTU)
    wiring.configure(
        "eth0", (f"{topology.VM_V4}/24", f"{topology.VM_V6}/64"), netns=name, mac=topology.VM_MAC
    )
    ovn.plug(paths, node, _TAP, port_id)
    subnets = cloud.networks["vms"]
    for subnet, destination in ((subnets.v4, "0.0.0.0/0"), (subnets.v6, "::/0")):
        if subnet is not None:
            wiring.route(destination, subnet.gateway, "eth0", netns=name)
