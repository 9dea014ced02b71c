"""The end of the lab: stopping it, and removing what daemons leave behind in the kernel."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from lab import topology
from lab.host import cgroups, mounts, wiring
from lab.kubernetes import cni_bridge
from lab.lifecycle.graph import Step, execute
from lab.lifecycle.supervisor import Supervisor
from lab.openstack.config import OCTAVIA_SOCKETS
from lab.ovn import daemons as ovn
from lab.paths import Paths
from lab.process import kill_all, marked, run
from lab.progress import Progress

_BRIDGES = ("br-int", "br-ul", "br-ex", "ovs-netdev", "kuryr0")
# The last one: the ports that a killed daemon had parked on node1
_LINKS = (
    *("ul-node", "ul-outside", "ul-router", "ex-router", "tap-vm", "card-vm"),
    *(topology.AMPHORA, "park"),
)
# What refers to the objects of a cloud, below the state. The databases come last: as long as they
# are there, there is something to forget.
_OF_A_CLOUD = ("lab.json", "components", "kuryr", "nodes", "run/amp", "data")


def stop_components(supervisor: Supervisor, progress: Progress) -> None:
    """Stop every component, each before what it needs; a failure does not stop the others."""
    records = {name: record for name, record in supervisor.records().items() if record.process}
    users: dict[str, list[str]] = {name: [] for name in records}
    for name, record in records.items():
        for need in record.component.needs:
            if need in users:
                users[need].append(name)
    # The one that is stopped "needs" that its users are stopped.
    steps = [
        Step(
            f"stop {name}",
            partial(supervisor.stop, name),
            tuple(f"stop {user}" for user in users[name]),
            1.0,
        )
        for name in records
    ]
    execute(steps, progress, workers=24)


def remove_traces(paths: Paths, nodes: Iterable[topology.Node]) -> None:
    """Kill every process of the lab that is left; remove mounts, namespaces, links, cgroups."""
    kill_all(cgroups.processes(topology.CGROUP))
    kill_all(marked(paths.state))
    mounts.unmount_below(paths.state)
    for node in nodes:
        if node.netns is None:
            cni_bridge.remove_bridge(node)
            wiring.delete_leftovers_of_the_daemon(node.netns)
        else:
            wiring.delete_namespace(node.netns)
    amphorae = wiring.namespaces(f"{topology.AMPHORA}-")
    own = (topology.OUTSIDE_NAMESPACE, topology.ROUTER_NAMESPACE, topology.VM_NAMESPACE)
    for name in (*own, *amphorae):
        wiring.delete_namespace(name)
    for link in wiring.links():
        if link in _BRIDGES or link.startswith(_LINKS):
            wiring.delete_link(link)
    cgroups.remove(topology.CGROUP)
    shutil.rmtree(OCTAVIA_SOCKETS, ignore_errors=True)


def remove_node(paths: Paths, supervisor: Supervisor, node: topology.Node) -> None:
    """Take one node out of a running lab: its daemons, its pods, and what others know of it."""
    records = supervisor.records()
    for name in sorted(records, key=lambda name: records[name].component.builtin):
        # What other programs registered for the node first: it may use what the lab runs there.
        if name.endswith(f"-{node.name}") or records[name].component.netns == node.name:
            supervisor.forget(name)
    kill_all(cgroups.processes(node.cgroup))
    kill_all(marked(paths.state, f"containerd-{node.name}"))
    mounts.unmount_below(paths.node(node.name).root)
    cgroups.remove(node.cgroup)
    if node.netns is not None:
        wiring.delete_namespace(node.netns)
    wiring.delete_link(f"ul-{node.name}")
    shutil.rmtree(paths.node(node.name).root, ignore_errors=True)
    # These databases may not run now.
    tools = (
        [
            "ovn-sbctl",
            f"--db=unix:{ovn.run_dir(paths)}/ovn-sb.sock",
            "--timeout=5",
            "--if-exists",
            "chassis-del",
            node.chassis,
        ],
        [
            "ovs-vsctl",
            f"--db=unix:{paths.node('node1').ovs_socket}",
            "--timeout=5",
            "--if-exists",
            "del-port",
            f"ul-{node.name}",
        ],
    )
    for name, *arguments in tools:
        run([str(paths.bin / name), *arguments], check=False)


def purge(paths: Paths) -> None:
    """Delete everything but the cache."""
    mounts.unmount_below(paths.state)
    for path in list(paths.state.iterdir()) if paths.state.exists() else []:
        if path.name != "lock":
            _delete(path)


def forget_cloud(paths: Paths) -> None:
    """Delete the databases of a cloud that has stopped, and of the cluster and the nodes on it.

    Certificates, logs and what was chosen for the lab stay.
    """
    for name in _OF_A_CLOUD:
        _delete(paths.state / name)
    paths.create()


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
