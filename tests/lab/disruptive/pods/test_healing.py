"""Running Pods have their network back, whatever the node's Open vSwitch or its links lose."""

import contextlib
import json
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest

from lab.churn.leftovers import NETNS, PARKED
from lab.churn.pings import Pinger
from lab.lifecycle.lab import Lab
from lab.ovn import daemons as ovn
from lab.process import run
from tests.lab.cluster import addresses, pod
from tests.lab.disruptive.pods.switch_rows import own_rows, rows

NODE = "node2"
LIMIT = 5.0  # seconds
PATIENCE = 30.0  # seconds: longer than the limit, for the table
pytestmark = [pytest.mark.lab_only, pytest.mark.complete]


class Target(NamedTuple):
    """A Pod on the node: the name of its port's interface there, and its network namespace."""

    tap: str
    netns: str


class Cause(NamedTuple):
    """What happens to the node. The seconds count from the end of `strike`."""

    name: str
    strike: Callable[[Lab, Target], object]


class Outcome(NamedTuple):
    """What a cause did to a Pod; no seconds if its traffic did not come back."""

    kind: str
    cause: str
    seconds: dict[str, float | None]

    def __str__(self):
        shown = ("never" if s is None else f"{s:5.1f} s" for s in self.seconds.values())
        return f"{self.kind:9} {self.cause:34} {'  '.join(shown)}"


def node_of(lab):
    return next(node for node in lab.nodes if node.name == NODE)


def delete_row(lab, target):
    ovn.vsctl(lab.paths, node_of(lab), "del-port", target.tap)


def delete_end_on_the_node(lab, target):
    run(["ip", "link", "del", target.tap], netns=node_of(lab).netns)


def delete_end_in_the_pod(_lab, target):
    run(["nsenter", f"--net={target.netns}", "--", "ip", "link", "del", "eth0"])


def restart(component, *, kill=False):
    return lambda lab, _target: lab.restart([f"{component}-{NODE}"], kill=kill)


def replace_database(lab, _target):
    """As a reinstallation does: an empty conf.db, which is then configured like the old one."""
    node, supervisor = node_of(lab), lab.supervisor
    with lab.locked():
        for component in ("ovn-controller", "ovs-vswitchd", "ovsdb"):
            supervisor.stop(f"{component}-{NODE}")
        (lab.paths.node(NODE).ovs / "conf.db").unlink()
        ovn.create_databases(lab.paths, (node,))
        supervisor.start(f"ovsdb-{NODE}")
        ovn.identify(lab.paths, node)
        supervisor.start(f"ovs-vswitchd-{NODE}")
        ovn.build_bridges(lab.paths, node)
        supervisor.start(f"ovn-controller-{NODE}")  # it is connected when this returns


CAUSES = (
    Cause("row deleted", delete_row),
    Cause("node's end of the link deleted", delete_end_on_the_node),
    Cause("Pod's end of the link deleted", delete_end_in_the_pod),
    Cause("ovn-controller restarted", restart("ovn-controller")),
    Cause("ovn-controller killed", restart("ovn-controller", kill=True)),
    Cause("ovs-vswitchd restarted", restart("ovs-vswitchd")),
    Cause("ovsdb-server restarted", restart("ovsdb")),
    Cause("conf.db recreated", replace_database),
)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("ordinary", marks=pytest.mark.product("plain")),
        pytest.param("pooled", marks=pytest.mark.product("full")),
    ],
)
def test_traffic_of_a_running_pod_is_back_within_seconds(cluster, kind):
    lab = Lab()
    cluster.apply(pod("source", node="node1"))
    cluster.wait_ready("source")
    [source] = own_rows(cluster, "node1", "source")
    target, found = None, []
    for cause in CAUSES:
        target = target or start_target(cluster, kind)
        before = interface_of(cluster, target)
        found.append(Outcome(kind, cause.name, struck(lab, cluster, source, target, cause)))
        print(found[-1], flush=True)
        if None in found[-1].seconds.values():
            cluster.delete("pod", "target")
            target = None
            continue
        assert interface_of(cluster, target) == before, cause.name
        assert cluster.fetch("source", f"http://{before['podIPs'][0]}:8080/") == "target"
        cluster.wait_for("the KuryrPort tells so", lambda: cluster.vif("target")["active"])
    assert [str(each) for each in found if is_late(each)] == []
    told = [reason for reason, _message in cluster.events("target")]
    assert "KuryrInterfaceRestored" in told


def is_late(outcome):
    return any(seconds is None or seconds > LIMIT for seconds in outcome.seconds.values())


def start_target(cluster, kind):
    """Start the Pod whose port is struck; in a pool, it has one that was parked before."""
    if kind == "pooled":
        cluster.wait_for(
            "a port of the pool is parked",
            lambda: any(
                PARKED in row.ids and NETNS not in row.ids and "ovn-installed" in row.ids
                for row in rows(NODE).values()
            ),
        )
    cluster.apply(pod("target", node=NODE))
    cluster.wait_ready("target")
    cluster.wait_for("the record says so", lambda: cluster.vif("target")["active"])
    [row] = own_rows(cluster, NODE, "target")
    assert (PARKED in row.ids) == (kind == "pooled")
    return Target(row.name, row.ids[NETNS])


def struck(lab, cluster, source, target, cause):
    """Strike while the source pings the target.

    :returns: the seconds until it is answered again, by family.
    """
    ips = addresses(cluster.get("pod", "target"))
    cluster.until_pings("source", *ips)
    with contextlib.ExitStack() as stack:
        pingers = {
            "IPv6" if ":" in ip else "IPv4": stack.enter_context(Pinger(source.ids[NETNS], ip))
            for ip in ips
        }
        for pinger in pingers.values():
            assert pinger.mark(PATIENCE) is not None
        cause.strike(lab, target)
        begin = time.monotonic()
        seconds = {}
        for family, pinger in pingers.items():
            left = max(begin + PATIENCE - time.monotonic(), 0.5)
            answered = pinger.mark(left) is not None
            seconds[family] = time.monotonic() - begin if answered else None
        return seconds


def interface_of(cluster, target):
    """What a Pod knows of its interface and cannot miss, and the addresses that others know."""

    def shown(*words):
        command = ["nsenter", f"--net={target.netns}", "--", "ip", "-j", *words]
        return json.loads(run(command) or "[]")

    [link] = shown("address", "show", "dev", "eth0")
    routes = {
        (each["dst"], each.get("gateway"))
        for family in ("-4", "-6")
        for each in shown(family, "route", "show", "dev", "eth0")
    }
    return {
        "mac": link["address"],
        "mtu": link["mtu"],
        "addresses": {f"{each['local']}/{each['prefixlen']}" for each in link["addr_info"]},
        "routes": routes,
        "podIPs": addresses(cluster.get("pod", "target")),
    }
