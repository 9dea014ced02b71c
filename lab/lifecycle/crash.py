"""A node's crash: everything on it ends at once by SIGKILL, and comes back.

Two kinds. When processes are killed, what they had made in the kernel stays: network namespaces,
veths, mounts. When a node reboots that goes too; what is on disk (Open vSwitch's conf.db,
containerd's and the kubelet's directories, the daemon's spool) stays in both.
"""

from __future__ import annotations

import shutil

from lab.host import cgroups, mounts, wiring
from lab.lifecycle.lab import Lab
from lab.lifecycle.supervisor import Record
from lab.ovn import daemons as ovn
from lab.process import Identity, kill_all, marked
from lab.topology import Node

# In this order they come back.
_ORDER = ("ovsdb", "ovs-vswitchd", "ovn-controller", "containerd", "kubelet", "kuryr-daemon")


class NotPossible(Exception):
    """This node cannot crash alone."""


def components(lab: Lab, node: Node) -> dict[str, Record]:
    """Find the node's components that the supervisor runs, in the order of their start."""
    records = lab.supervisor.records()
    names = (f"{kind}-{node.name}" for kind in _ORDER)
    return {name: records[name] for name in names if name in records}


def processes(lab: Lab, node: Node) -> list[Identity]:
    """List every process of the node: daemons, their children, shims, and what runs in Pods."""
    found = cgroups.processes(node.cgroup)
    for name in components(lab, node):
        found += marked(lab.paths.state, name)
    return found


def kill(lab: Lab, node: Node) -> int:
    """Send SIGKILL to everything on the node, until nothing is left.

    :returns: how many processes it was.
    """
    victims = set(processes(lab, node))
    kill_all(victims)
    while late := set(processes(lab, node)):  # started by one that was killed a moment later
        kill_all(late)
        victims |= late
    return len(victims)


def restart_killed(lab: Lab, node: Node) -> None:
    """Start the node's components again, in order; what the kernel kept is left as it is."""
    for name in components(lab, node):
        lab.supervisor.start(name)
        if name.startswith("ovs-vswitchd"):
            ovn.build_bridges(lab.paths, node)


def forget_kernel(lab: Lab, node: Node) -> None:
    """Remove what a reboot takes: network namespaces with their links, mounts, what is in /run.

    :raises NotPossible: the node is the machine itself.
    """
    if node.netns is None:
        raise NotPossible(f"{node.name} is the machine's own network namespace")
    root = lab.paths.node(node.name).root
    mounts.unmount_below(root)
    shutil.rmtree(root / "containerd-state", ignore_errors=True)
    wiring.delete_namespace(node.netns)
    # node1 is the switch as well: a port whose device was replaced would forward no tunnels
    cable = f"ul-{node.name}"
    ovn.vsctl(lab.paths, lab.nodes[0], "--if-exists", "del-port", cable)
    wiring.delete_link(cable)
    cgroups.remove(node.cgroup)


def crash(lab: Lab, node: Node, *, reboot: bool = False) -> int:
    """Kill everything on the node, and return when it runs again.

    :returns: how many processes were killed.
    :raises NotPossible: a reboot of the node that is the machine itself.
    """
    if reboot and node.netns is None:
        raise NotPossible(f"{node.name} is the machine's own network namespace")
    with lab.locked():
        count = kill(lab, node)
        if reboot:
            forget_kernel(lab, node)
        else:
            restart_killed(lab, node)
    if reboot:
        lab.up()  # as after the machine's start: whatever is missing is made again
    return count
