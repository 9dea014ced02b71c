"""OVN: the central databases and northd, and on each node Open vSwitch and ovn-controller.

Open vSwitch uses its userspace datapath, so the kernel needs neither its module nor geneve. The
underlay between the nodes is the bridge br-ul of each node; node1's is the switch for all.
ovn-controllers reach the southbound database through its UNIX socket, which every network
namespace sees: the management of OVN does not depend on OVN.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from lab import topology
from lab.host import wiring
from lab.install import openvswitch
from lab.lifecycle import probes
from lab.lifecycle.graph import Step
from lab.lifecycle.supervisor import Component
from lab.paths import Paths
from lab.process import CommandError, run, wait_until
from lab.topology import Node

_PORTS = {"ovn-nb": 6641, "ovn-sb": 6642}
NORTHBOUND, SOUTHBOUND = (f"tcp:127.0.0.1:{port}" for port in _PORTS.values())
_QUIET = ("-vconsole:info", "-vsyslog:off")


def run_dir(paths: Paths) -> Path:
    """Return the directory of the central daemons' sockets and pid files."""
    return paths.run / "ovn"


def central(paths: Paths) -> list[Component]:
    """List the central daemons: the two databases and northd."""
    directory = run_dir(paths)
    env = {"OVN_RUNDIR": str(directory), "OVS_RUNDIR": str(directory)}
    databases = [
        Component(
            name,
            (
                "ovsdb-server",
                str(paths.data / "ovn" / f"{name}.db"),
                *_QUIET,
                f"--remote=punix:{directory}/{name}.sock",
                f"--remote=ptcp:{port}:127.0.0.1",
                f"--unixctl={directory}/{name}.ctl",
                f"--pidfile={directory}/{name}.pid",
            ),
            ready=(
                probes.command(
                    "ovsdb-client", "list-dbs", f"unix:{directory}/{name}.sock", pattern="OVN_"
                ),
            ),
            env=env,
            timeout=30,
        )
        for name, port in _PORTS.items()
    ]
    northd = Component(
        "ovn-northd",
        (
            "ovn-northd",
            *_QUIET,
            f"--ovnnb-db=unix:{directory}/ovn-nb.sock",
            f"--ovnsb-db=unix:{directory}/ovn-sb.sock",
            f"--pidfile={directory}/ovn-northd.pid",
        ),
        ready=(probes.command("ovn-appctl", "-t", "ovn-northd", "status", pattern="active"),),
        needs=("ovn-nb", "ovn-sb"),
        env=env,
        timeout=30,
    )
    return [*databases, northd]


def environment(paths: Paths, node: Node) -> dict[str, str]:
    """Build the environment that tools need to reach the node's Open vSwitch."""
    directory = str(paths.node(node.name).ovs)
    return {
        "OVS_RUNDIR": directory,
        "OVN_RUNDIR": directory,
        "OVS_DBDIR": directory,
        "OVS_SYSCONFDIR": directory,
    }


def of_node(paths: Paths, node: Node) -> list[Component]:
    """List the node's daemons: database, switch and controller."""
    directory = paths.node(node.name).ovs
    socket = f"unix:{paths.node(node.name).ovs_socket}"
    env = environment(paths, node)
    database = Component(
        f"ovsdb-{node.name}",
        (
            "ovsdb-server",
            str(directory / "conf.db"),
            *_QUIET,
            f"--remote=p{socket}",
            f"--unixctl={directory}/ovsdb-server.ctl",
            f"--pidfile={directory}/ovsdb-server.pid",
        ),
        ready=(probes.command("ovsdb-client", "list-dbs", socket, pattern="Open_vSwitch"),),
        env=env,
        netns=node.netns,
        timeout=30,
    )
    switch = Component(
        f"ovs-vswitchd-{node.name}",
        # --monitor: a second process that starts it again at once after a crash.
        (
            "ovs-vswitchd",
            socket,
            *_QUIET,
            "--monitor",
            f"--unixctl={directory}/ovs-vswitchd.ctl",
            f"--pidfile={directory}/ovs-vswitchd.pid",
        ),
        ready=(
            probes.command(
                "ovs-appctl",
                "-t",
                f"{directory}/ovs-vswitchd.ctl",
                "version",
                pattern="ovs-vswitchd",
            ),
        ),
        needs=(f"ovsdb-{node.name}",),
        env=env,
        netns=node.netns,
        timeout=30,
    )
    controller = Component(
        f"ovn-controller-{node.name}",
        ("ovn-controller", socket, *_QUIET, f"--pidfile={directory}/ovn-controller.pid"),
        ready=(
            probes.command(
                "ovn-appctl",
                "-t",
                "ovn-controller",
                "connection-status",
                pattern=r"(?m)^connected",
            ),
        ),
        needs=(f"ovs-vswitchd-{node.name}", "ovn-sb"),
        env=env,
        netns=node.netns,
        timeout=30,
    )
    return [database, switch, controller]


def create_databases(paths: Paths, nodes: tuple[Node, ...]) -> None:
    """Create the files of the databases that do not exist yet."""
    run_dir(paths).mkdir(parents=True, exist_ok=True)
    wanted = {paths.data / "ovn" / f"{name}.db": name for name in _PORTS}
    wanted |= {paths.node(node.name).ovs / "conf.db": "vswitch" for node in nodes}
    for file, schema in wanted.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            temporary = file.with_suffix(".new")
            temporary.unlink(missing_ok=True)
            run(
                [
                    _tool(paths, "ovsdb-tool"),
                    "create",
                    str(temporary),
                    str(openvswitch.schema(paths, schema)),
                ]
            )
            temporary.rename(file)


def vsctl(paths: Paths, node: Node, *arguments: str, timeout: float = 40) -> str:
    """Run ovs-vsctl against the node's Open vSwitch."""
    database = f"--db=unix:{paths.node(node.name).ovs_socket}"
    return run(
        [_tool(paths, "ovs-vsctl"), database, f"--timeout={timeout:.0f}", *arguments],
        timeout=timeout + 5,
    )


def identify(paths: Paths, node: Node) -> None:
    """Write who this chassis is; before ovs-vswitchd and ovn-controller start."""
    vsctl(paths, node, "--no-wait", "init")
    ids = {
        "system-id": node.chassis,
        "hostname": node.chassis,
        "rundir": str(paths.node(node.name).ovs),
        "ovn-remote": f"unix:{run_dir(paths)}/ovn-sb.sock",
        "ovn-encap-type": "geneve",
        "ovn-encap-ip": node.underlay_v4,
        "ovn-bridge": "br-int",
        "ovn-bridge-datapath-type": "netdev",
        "ovn-monitor-all": "true",
        "ovn-remote-probe-interval": "60000",
    }
    if node.index == 1:
        ids |= {"ovn-bridge-mappings": "physnet1:br-ex", "ovn-cms-options": "enable-chassis-as-gw"}
    vsctl(
        paths,
        node,
        "--no-wait",
        "set",
        "Open_vSwitch",
        ".",
        *(f'external_ids:{key}="{value}"' for key, value in ids.items()),
    )


def build_bridges(paths: Paths, node: Node) -> None:
    """Build br-int, br-ul with the node's underlay addresses, and on node1 br-ex.

    The devices of the bridges go with ovs-vswitchd: this also repairs them after its restart.
    """
    netdev = "datapath_type=netdev"
    vsctl(
        paths,
        node,
        "--may-exist",
        "add-br",
        "br-int",
        "--",
        "set",
        "Bridge",
        "br-int",
        netdev,
        "fail-mode=secure",
        "other-config:disable-in-band=true",
        "--",
        "--may-exist",
        "add-br",
        "br-ul",
        "--",
        "set",
        "Bridge",
        "br-ul",
        netdev,
    )
    _await_device("br-ul", node)
    wiring.configure(
        "br-ul",
        (f"{node.underlay_v4}/24", f"{node.underlay_v6}/64"),
        netns=node.netns,
        mtu=topology.UNDERLAY_MTU,
    )
    wiring.checksums_in_software("br-ul", node.netns)
    for network, via in _behind(topology.ROUTER_V4, topology.ROUTER_V6):
        wiring.route(network, via, "br-ul", netns=node.netns)
    if node.index == 1:
        vsctl(
            paths, node, "--may-exist", "add-br", "br-ex", "--", "set", "Bridge", "br-ex", netdev
        )
        _await_device("br-ex", node)
        wiring.configure("br-ex", (f"{topology.MACHINE_PUBLIC}/24",), netns=None)
        wiring.checksums_in_software("br-ex", None)
        return
    wiring.add_veth(
        f"ul-{node.name}", "ul0", netns=None, peer_netns=node.netns, mtu=topology.UNDERLAY_MTU
    )
    vsctl(paths, node, "--may-exist", "add-port", "br-ul", "ul0")


def _behind(v4: str, v6: str) -> Iterator[tuple[str, str]]:
    """Yield the networks behind Neutron's router, each with the gateway of its family."""
    for name in topology.BEHIND_ROUTER:
        network = topology.network(name)
        yield network.v4, v4
        if network.v6 is not None:
            yield network.v6, v6


def _await_device(name: str, node: Node) -> None:
    """Wait for a bridge's device: it comes a moment after the daemon."""
    if not wait_until(lambda: wiring.link_exists(name, node.netns), 15):
        raise CommandError(f"{node.name}: ovs-vswitchd does not make {name}")


def connect_underlay(paths: Paths, nodes: tuple[Node, ...]) -> None:
    """Attach the other nodes, the client `outside` and the router to node1's br-ul."""
    first = nodes[0]
    _connect_router(paths, first)
    wiring.add_namespace(topology.OUTSIDE_NAMESPACE)
    wiring.add_veth(
        "ul-outside",
        "eth0",
        netns=None,
        peer_netns=topology.OUTSIDE_NAMESPACE,
        mtu=topology.UNDERLAY_MTU,
    )
    wiring.configure(
        "eth0",
        (f"{topology.OUTSIDE_V4}/24", f"{topology.OUTSIDE_V6}/64"),
        netns=topology.OUTSIDE_NAMESPACE,
        mtu=1500,
    )
    for port in ("ul-outside", *(f"ul-{node.name}" for node in nodes[1:])):
        vsctl(paths, first, "--may-exist", "add-port", "br-ul", port)


def _connect_router(paths: Paths, node: Node) -> None:
    """Attach the data centre's router to the underlay and to the external network."""
    netns, public = topology.ROUTER_NAMESPACE, topology.PUBLIC_NETWORK
    wiring.add_namespace(netns)
    for bridge, device, addresses in (
        ("br-ul", "underlay", (f"{topology.ROUTER_V4}/24", f"{topology.ROUTER_V6}/64")),
        ("br-ex", "public", (f"{public.gateway_v4}/24", f"{public.gateway_v6}/64")),
    ):
        port = f"{bridge.removeprefix('br-')}-router"
        wiring.add_veth(port, device, netns=None, peer_netns=netns, mtu=1500)
        wiring.configure(device, addresses, netns=netns, mac=topology.ROUTER_MAC, mtu=1500)
        vsctl(paths, node, "--may-exist", "add-port", bridge, port)
    for network, via in _behind(topology.CLOUD_ROUTER_V4, topology.CLOUD_ROUTER_V6):
        wiring.route(network, via, "public", netns=netns)


def plug(paths: Paths, node: Node, tap: str, port_id: str) -> None:
    """Put a device into the node's br-int as a Neutron port; return when OVN has installed it.

    An ovn-controller that was killed may leave the interface without that mark for good: then it
    is put in anew.
    """
    identify = ("set", "Interface", tap, f"external_ids:iface-id={port_id}")
    add = ("--may-exist", "add-port", "br-int", tap, "--", *identify)
    until = ("wait-until", "Interface", tap, "external_ids:ovn-installed=true")
    vsctl(paths, node, *add)
    try:
        vsctl(paths, node, *until, timeout=20)
    except CommandError:
        vsctl(paths, node, "--if-exists", "del-port", tap)
        vsctl(paths, node, *add)
        vsctl(paths, node, *until, timeout=60)


def steps(paths: Paths, nodes: tuple[Node, ...]) -> list[Step]:
    """List the steps between the daemons: files before them, bridges after them."""
    found = [
        Step("ovn-databases", lambda: create_databases(paths, nodes), ("programs-ovs",), 0.5),
        Step(
            "underlay",
            lambda: connect_underlay(paths, nodes),
            tuple(f"bridges-{node.name}" for node in nodes),
            0.5,
        ),
    ]
    for node in nodes:
        found += [
            Step(
                f"chassis-{node.name}",
                partial(identify, paths, node),
                (f"ovsdb-{node.name}",),
                0.5,
            ),
            Step(
                f"bridges-{node.name}",
                partial(build_bridges, paths, node),
                (f"ovs-vswitchd-{node.name}", f"namespace-{node.name}"),
                0.5,
            ),
        ]
    return found


def _tool(paths: Paths, name: str) -> str:
    return str(openvswitch.install(paths) / "bin" / name)
