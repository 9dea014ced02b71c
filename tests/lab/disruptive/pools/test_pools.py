"""Pools on the real stack: Pods take ports that are there, parked and ACTIVE, and return them.

Nobody else takes ports meanwhile: these tests look at whole pools.
"""

import pytest

from lab.churn.leftovers import POOL_TAG
from lab.kubernetes.client import Follower, Kube
from lab.kuryr.installation import CONTROLLER, Installation, daemon
from lab.openstack.rest import ApiError
from lab.progress import Progress
from tests.lab import metrics
from tests.lab.cluster import addresses, fresh_cluster, pod

NODES = ("node1", "node1", "node2", "node2")
pytestmark = pytest.mark.lab_only


@pytest.fixture
def pools(configured):
    """What the controller says of its pools."""
    return Installation(progress=Progress(quiet=True)).pools


@pytest.fixture
def cluster(pools):
    """A namespace of one's own; after the test every port is a Pod's or in a pool."""
    with fresh_cluster() as cluster:
        yield cluster
    until_nobody_lacks_a_port(cluster, pools)


def until_nobody_lacks_a_port(cluster, pools):
    """Neutron's ports are those of Pods and of pools, which know what Pods have; all pools have
    what they want, and the nodes have it plugged."""
    hosts = {node.chassis for node in cluster.lab.nodes.values()}

    def is_full(pool):
        coming = pool["creating"] + pool["returning"] + pool["waiting"]
        parked = pool["parked"] if pool["place"] in hosts else pool["available"]
        return not coming and parked == pool["available"] >= pool["target"]

    def differences():
        kept, ports = pools.all(), pools.ports()
        recorded, made = cluster.recorded_ports(), cluster.ports()
        in_use = {port for port, state in ports.items() if state == "in_use"}
        yield "pools that are not full", [pool for pool in kept if not is_full(pool)]
        yield "of nobody", [made[port] for port in made.keys() - recorded - ports.keys()]
        yield "not in Neutron", (recorded | ports.keys()) - made.keys()
        yield "in use, without a Pod", in_use - recorded
        yield "of a Pod, not in use", recorded & ports.keys() - in_use

    def settled():
        try:
            found = {what: which for what, which in differences() if which}
        except (OSError, ApiError) as error:
            found = {"the controller does not lead yet": error}
        seen.append(found)
        return not found

    seen = []
    try:
        cluster.wait_for("every port is a Pod's or in a pool", settled)
    except AssertionError as error:
        raise AssertionError(f"{error}; what differs: {seen[-1]}") from None


def available(pools):
    return {port for port, state in pools.ports().items() if state == "available"}


def requests(found, outcome):
    """Return how many requests of ports on nodes had that outcome, by the controller's metrics."""
    return found.value("kuryr_pool_requests_total", driver="neutron", outcome=outcome)


def parked(cluster):
    """Ids of the ports that the nodes say they keep plugged."""
    found = cluster.get("kuryrportpools")
    return {port for item in found for port in item.get("status", {}).get("parked", {})}


def batch(prefix):
    """Pods on every node: {name: Pod}. No more than a pool has available after them."""
    return {
        f"{prefix}-{number}": pod(f"{prefix}-{number}", node=node)
        for number, node in enumerate(NODES)
    }


def summed(cluster, pools):
    """Sum up the pools of each node: {node: [available, parked, in use, target]}. Pods whose
    security groups differ, such as those of the demo, take from pools of their own."""
    kept = pools.all()
    return {
        name: [
            sum(pool[number] for pool in kept if pool["place"] == node.chassis)
            for number in ("available", "parked", "in_use", "target")
        ]
        for name, node in cluster.lab.nodes.items()
    }


def shown(cluster):
    """What `kubectl get kuryrportpools` prints: {node: [available, parked, in use, target]}."""
    rows = map(str.split, cluster.kubectl("get", "kuryrportpools", "--no-headers").splitlines())
    return {row[0]: [int(number) for number in row[1:-1]] for row in rows}


def test_pods_on_all_nodes_have_ports_of_pools_and_reach_each_other(cluster, pools):
    cluster.apply(pod("a", node="node1"), pod("b", node="node2"))
    cluster.wait_ready("a", "b")
    ports, states = cluster.ports(), pools.ports()
    for name in "ab":
        port = cluster.vif(name)["id"]
        assert POOL_TAG in ports[port]["tags"]
        assert states[port] == "in_use"
    found = {name: addresses(cluster.get("pod", name)) for name in "ab"}
    for source, target in ("ab", "ba"):
        cluster.until_pings(source, *found[target])
    until_nobody_lacks_a_port(cluster, pools)
    expected = summed(cluster, pools)
    assert all(in_use for _, _, in_use, _ in expected.values())
    cluster.wait_for("kubectl shows it", lambda: shown(cluster) == expected)


def test_next_pods_take_ports_that_are_parked_and_none_is_made(cluster, pools):
    first, second = batch("first"), batch("second")
    cluster.apply(*first.values())
    cluster.wait_ready(*first)
    had = {name: cluster.vif(name)["id"] for name in first}
    cluster.delete("pods", "--all")
    cluster.wait_for("the KuryrPorts are gone", lambda: not cluster.get("kuryrports"))
    until_nobody_lacks_a_port(cluster, pools)
    free = available(pools)
    assert set(had.values()) <= free
    assert set(had.values()) <= parked(cluster)

    def are_active():
        ports = cluster.ports()
        return {ports[port]["status"] for port in free} == {"ACTIVE"}

    cluster.wait_for("what is free is ACTIVE", are_active)
    before, counted = set(cluster.ports()), metrics.of_controller()
    heard = {}  # the interface of each Pod, as it was recorded first

    def hear(name, item, _now):
        if entry := ((item or {}).get("status", {}).get("vifs") or {}).get("eth0"):
            heard.setdefault(name, entry["vif"]["versioned_object.data"])

    path = f"/apis/openstack.org/v1/namespaces/{cluster.namespace}/kuryrports"
    with Follower(Kube(cluster.lab), path, hear):
        cluster.apply(*second.values())
        cluster.wait_ready(*second)
        cluster.wait_for("all have been heard of", lambda: heard.keys() == second.keys())
    for name in second:
        assert heard[name]["id"] in free
        assert heard[name]["active"], name
    assert set(cluster.ports()) == before
    told = metrics.of_controller()
    assert requests(told, "hit") - requests(counted, "hit") >= len(second)
    assert requests(told, "miss") == requests(counted, "miss")
    # only those wait that find their pool empty
    waits = told.value("kuryr_pool_wait_seconds_count", driver="neutron")
    assert waits == requests(told, "miss")
    cluster.until_pings("second-0", addresses(cluster.get("pod", "second-2"))[0])


@pytest.mark.parametrize("how", [pytest.param("stopped", marks=pytest.mark.complete), "killed"])
def test_program_that_is_started_again_loses_no_port(cluster, pools, how):
    cluster.apply(pod("here", node="node1"), pod("there", node="node2"))
    cluster.wait_ready("here", "there")
    there = addresses(cluster.get("pod", "there"))[0]
    cluster.until_pings("here", there)
    until_nobody_lacks_a_port(cluster, pools)
    before, plugged = set(cluster.ports()), parked(cluster)
    strike = {"stopped": cluster.supervisor.stop, "killed": cluster.supervisor.kill}[how]
    for program in (CONTROLLER, daemon("node2")):
        cluster.apply(pod(program, node="node2"))
        strike(program)
        cluster.supervisor.start(program)
        cluster.wait_ready(program)
        until_nobody_lacks_a_port(cluster, pools)
        assert before <= set(cluster.ports())
        # the node says so of one that it had to plug anew a moment later
        cluster.wait_for("all are plugged", lambda: plugged <= parked(cluster))
    cluster.ping("here", there)


def test_freed_pools_leave_pods_their_ports_and_are_filled_again_by_the_next(cluster, pools):
    cluster.apply(pod("stays", node="node2"))
    cluster.wait_ready("stays")
    cluster.until_pings("stays", cluster.lab.vm1.v4)
    until_nobody_lacks_a_port(cluster, pools)
    free = available(pools)
    assert free
    code, listed = cluster.kuryr_k8s("pools", "list")
    assert code == 0, listed
    for pool in listed["pools"]:
        assert cluster.kuryr_k8s("pools", "free", pool["id"]) == (0, {"ports": pool["available"]})
    cluster.wait_for("they are gone", lambda: not free & set(cluster.ports()))
    cluster.wait_for("nodes have unplugged them", lambda: not free & parked(cluster))
    assert not {f"tap{port}"[:14] for port in free} & {name for _, name in cluster.taps()}
    cluster.ping("stays", cluster.lab.vm1.v4)
    cluster.apply(pod("next", node="node2"))
    cluster.wait_ready("next")
    until_nobody_lacks_a_port(cluster, pools)
    assert available(pools)
